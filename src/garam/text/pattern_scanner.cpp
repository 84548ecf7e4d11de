#include "garam/text/pattern_scanner.h"

#include "garam/core/error.h"
#include "garam/text/character_class.h"
#include "garam/text/tokenizer_files.h"

namespace garam {

const char* const kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr CharacterClass kNothing = 0;
constexpr CharacterClass kWhite = kSpace | kNewline;

// A text and where its characters end. Positions are bytes.
class Scan {
  public:
    explicit Scan(std::string_view text)
        : text_(text.data()), size_(text.size()), classes_(CharacterClasses::table()) {}

    std::size_t size() const { return size_; }
    char byte(std::size_t at) const { return text_[at]; }
    CharacterClass kind(std::size_t at, std::size_t& length) const {
        return classes_.at(text_ + at, length);
    }

    // End of the run of characters of these kinds that begins at `at`.
    std::size_t run(std::size_t at, CharacterClass kinds) const {
        while (at < size_) {
            const auto lead = static_cast<unsigned char>(text_[at]);
            std::size_t length = 1;
            const CharacterClass found = lead < 0x80 ? classes_.of_ascii(lead) : kind(at, length);
            if ((found & kinds) == 0) break;
            at += length;
        }
        return at;
    }

    struct White {
        std::size_t end;            // of the run
        std::size_t last;           // begin of its last character
        std::size_t after_newline;  // end of its last newline; 0: there is none
    };
    // A run of white space that begins at `at`.
    White white(std::size_t at) const {
        White run{at, at, 0};
        while (run.end < size_) {
            std::size_t length = 0;
            const CharacterClass found = kind(run.end, length);
            if ((found & kWhite) == 0) break;
            run.last = run.end;
            run.end += length;
            if (found == kNewline) run.after_newline = run.end;
        }
        return run;
    }

    // Length of "'s", "'t", "'m", "'d", "'re", "'ve" or "'ll" at `at`, where an apostrophe stands; else 0.
    std::size_t contraction(std::size_t at, bool any_case) const {
        if (at + 1 >= size_) return 0;
        const auto letter = [&](std::size_t i) {
            const char c = i < size_ ? text_[i] : '\0';
            return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
        };
        const char next = letter(at + 1);
        switch (next) {
            case 's':
            case 't':
            case 'm':
            case 'd':
                return 2;
            case 'r':
            case 'v':
                return letter(at + 2) == 'e' ? 3 : 0;
            case 'l':
                return letter(at + 2) == 'l' ? 3 : 0;
            default:
                // U+017F, the long s, is an s in another case.
                return any_case && next == '\xC5' && letter(at + 2) == '\xBF' ? 3 : 0;
        }
    }

  private:
    const char* text_;
    std::size_t size_;
    const CharacterClasses& classes_;
};

void scan_numbers(const Scan& scan, std::vector<ByteSpan>& out) {
    for (std::size_t at = 0; at < scan.size();) {
        std::size_t length = 0;
        if (scan.kind(at, length) == kNumber) out.push_back({at, at + length});
        at += length;
    }
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// kNumbersApart: numbers were cut out before, so for what stands before one the text ends there.
template <bool kNumbersApart>
void scan_gpt2(const Scan& scan, std::vector<ByteSpan>& out) {
    const std::size_t size = scan.size();
    for (std::size_t at = 0; at < size;) {
        const std::size_t begin = at;
        std::size_t length = 0;
        CharacterClass kind = scan.kind(at, length);
        at += length;
        if (scan.byte(begin) == '\'') {
            if (const std::size_t taken = scan.contraction(begin, false); taken > 0) {
                at = begin + taken;
                out.push_back({begin, at});
                continue;
            }
        }
        if ((kind & kWhite) != 0) {
            std::size_t next_length = 0;
            const CharacterClass next = at < size ? scan.kind(at, next_length) : kWhite;
            const bool joins = scan.byte(begin) == ' ' && (next & kWhite) == 0 &&
                               !(kNumbersApart && next == kNumber);
            if (!joins) {
                const Scan::White white = scan.white(begin);
                at = white.end;
                std::size_t unused = 0;
                const bool at_end =
                    at == size || (kNumbersApart && scan.kind(at, unused) == kNumber);
                // One is left for what comes next, if there are several.
                if (!at_end && white.last > begin) at = white.last;
                out.push_back({begin, at});
                continue;
            }
            kind = next;
            at += next_length;
        }
        if (!(kNumbersApart && kind == kNumber)) at = scan.run(at, kind);
        out.push_back({begin, at});
    }
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,most}| ?[^\s\p{L}\p{N}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+
template <int kMostNumbers>
void scan_llama3(const Scan& scan, std::vector<ByteSpan>& out) {
    const std::size_t size = scan.size();
    for (std::size_t at = 0; at < size;) {
        const std::size_t begin = at;
        std::size_t length = 0;
        const CharacterClass kind = scan.kind(at, length);
        at += length;
        std::size_t next_length = 0;
        const CharacterClass next = at < size ? scan.kind(at, next_length) : kNothing;
        const std::size_t contraction =
            scan.byte(begin) == '\'' ? scan.contraction(begin, true) : 0;
        if (kind == kLetter) {
            at = scan.run(at, kLetter);
        } else if (contraction > 0) {
            at = begin + contraction;
        } else if (kind == kNumber) {
            for (int i = 1; i < kMostNumbers && at < size; ++i) {
                if (scan.kind(at, length) != kNumber) break;
                at += length;
            }
        } else if (kind != kNewline && next == kLetter) {
            at = scan.run(at + next_length, kLetter);
        } else if (kind == kOther || (scan.byte(begin) == ' ' && next == kOther)) {
            at = scan.run(at, kOther);
            at = scan.run(at, kNewline);
        } else {
            const Scan::White white = scan.white(begin);
            at = white.after_newline > 0                  ? white.after_newline
                 : white.end < size && white.last > begin ? white.last
                                                          : white.end;
        }
        out.push_back({begin, at});
    }
}

}  // namespace

KnownPattern known_pattern(std::string_view expression) {
    if (expression == "\\p{N}") return KnownPattern::number;
    if (expression == kGpt2Pattern) return KnownPattern::gpt2;
    if (expression == tokenizer_json::kLlama3Pattern) return KnownPattern::llama3;
    if (expression == tokenizer_json::kQwen2Pattern) return KnownPattern::qwen2;
    return KnownPattern::none;
}

void scan(KnownPattern pattern, std::string_view text, std::vector<ByteSpan>& out) {
    const Scan scan(text);
    switch (pattern) {
        case KnownPattern::number:
            return scan_numbers(scan, out);
        case KnownPattern::gpt2:
            return scan_gpt2<false>(scan, out);
        case KnownPattern::numbers_in_gpt2:
            return scan_gpt2<true>(scan, out);
        case KnownPattern::llama3:
            return scan_llama3<3>(scan, out);
        case KnownPattern::qwen2:
            return scan_llama3<1>(scan, out);
        case KnownPattern::none:
            break;
    }
    GARAM_CHECK(false, "a pattern without a scanner");
}

}  // namespace garam
