#include "fuzz/mutate.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <iterator>
#include <string_view>

namespace garam::fuzz {
namespace {

std::string piece_of(const std::string& bytes, std::uint64_t longest, Random& random) {
    if (bytes.empty()) return {};
    const std::size_t at = random.below(bytes.size());
    return bytes.substr(at, 1 + random.below(longest));
}

// Where words of a text begin and end: runs of letters and digits, and single other characters.
std::size_t word_end(std::string_view text, std::size_t at) {
    const auto inner = [&](std::size_t i) {
        return std::isalnum(static_cast<unsigned char>(text[i])) != 0 || text[i] == '_';
    };
    std::size_t end = at + 1;
    if (inner(at)) {
        while (end < text.size() && inner(end))
            ++end;
    }
    return end;
}

}  // namespace

std::uint64_t edge_number(Random& random) {
    constexpr std::uint64_t kEdges[] = {
        0,          1,          2,          3,          7,          8,           31,
        32,         33,         64,         127,        255,        256,         1000,
        4095,       0x7fff,     0xffff,     0x10000,    0x7fffffff, 0x80000000,  0xffffffff,
        1ull << 32, 1ull << 40, 1ull << 53, 1ull << 59, 1ull << 60, 1ull << 61,  1ull << 62,
        ~0ull >> 1, 1ull << 63, ~0ull,      ~0ull - 7,  ~0ull - 31, 100'000'000, 1ull << 36};
    const std::uint64_t edge = kEdges[random.below(std::size(kEdges))];
    switch (random.below(6)) {
        case 0:
            return edge + 1;
        case 1:
            return edge - 1;
        case 2:
            return random.next_u64() >> random.below(64);
        default:
            return edge;
    }
}

std::string odd_text(Random& random) {
    static const std::string kOdd[] = {std::string("\0", 1),
                                       "\xff",
                                       "\xc0\x80",
                                       "\xed\xa0\x80",
                                       "\xf4\x90\x80\x80",
                                       "\xe2\x80",
                                       "\u00a0",
                                       "\u200d",
                                       "\ufeff",
                                       "\ufffd",
                                       "\u0130",
                                       "\u00df",
                                       "e\u0301",
                                       "\U0001f600",
                                       "\n",
                                       "\r\n",
                                       "\t",
                                       "\\",
                                       "\"",
                                       "'",
                                       "{",
                                       "}",
                                       "\u2581",
                                       "\u0120",
                                       "<0x0A>",
                                       "%s%n",
                                       "../../x",
                                       "/",
                                       "\xf0\x9f\x98"};
    const std::string text = kOdd[random.below(std::size(kOdd))];
    std::string result = text;
    constexpr std::uint64_t kTimes[] = {1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 70, 70, 1000, 20000};
    for (std::uint64_t n = kTimes[random.below(std::size(kTimes))]; n > 1; --n)
        result += text;
    return result;
}

void mutate_bytes(std::string& bytes, const std::string& other, Random& random) {
    if (bytes.empty()) bytes = std::string(1, '\0');
    // Headers come first and are where most of the structure is.
    const std::size_t range =
        random.below(2) == 0 ? bytes.size() : std::min<std::size_t>(bytes.size(), 512);
    const std::size_t at = random.below(range);
    switch (random.below(11)) {
        case 0:
        case 1:
            bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
            break;
        case 2:
            bytes[at] = static_cast<char>(random.below(256));
            break;
        case 3:
        case 4: {
            constexpr std::size_t kWidths[] = {1, 2, 4, 8};
            const std::size_t width = kWidths[random.below(4)];
            const std::size_t place = random.below(2) == 0 ? at : at / width * width;
            const std::uint64_t value = edge_number(random);
            if (place + width <= bytes.size()) std::memcpy(bytes.data() + place, &value, width);
            break;
        }
        case 5:
            bytes.erase(at, 1 + random.below(64));
            break;
        case 6:
            bytes.insert(at, piece_of(bytes, 64, random));
            break;
        case 7:
            bytes.insert(at, piece_of(other, 256, random));
            break;
        case 8:
            bytes.resize(random.below(bytes.size() + 1));
            break;
        case 9:  // the beginning of one, the end of the other
            if (!other.empty())
                bytes = bytes.substr(0, at) + other.substr(random.below(other.size()));
            break;
        default: {
            const std::string piece = piece_of(other, 32, random);
            bytes.replace(at, std::min(piece.size(), bytes.size() - at), piece);
            break;
        }
    }
}

void mutate_text(std::string& text, const std::string& other, const std::vector<std::string>& words,
                 Random& random) {
    if (text.empty()) text = "x";
    const std::size_t at = random.below(text.size());
    const std::size_t end = word_end(text, at);
    switch (random.below(10)) {
        case 0:
        case 1:
            if (!words.empty()) text.insert(at, words[random.below(words.size())]);
            break;
        case 2:
            if (!words.empty()) text.replace(at, end - at, words[random.below(words.size())]);
            break;
        case 3:
            text.erase(at, end - at);
            break;
        case 4: {  // a piece again and again
            const std::string piece =
                random.below(2) == 0 ? text.substr(at, end - at) : piece_of(text, 40, random);
            constexpr std::uint64_t kTimes[] = {1, 1, 1, 2, 2, 3, 20, 20, 300, 3000};
            std::string many;
            for (std::uint64_t n = kTimes[random.below(std::size(kTimes))]; n > 0; --n)
                many += piece;
            text.insert(at, many);
            break;
        }
        case 5:
            text.replace(at, end - at, std::to_string(edge_number(random)));
            break;
        case 6:
            text.insert(at, odd_text(random));
            break;
        case 7: {  // a line to another place
            const std::size_t line =
                text.rfind('\n', at) == std::string::npos ? 0 : text.rfind('\n', at) + 1;
            const std::size_t line_end = std::min(text.find('\n', at), text.size() - 1);
            text.insert(random.below(text.size()), text.substr(line, line_end + 1 - line));
            break;
        }
        case 8:
            text.insert(at, piece_of(other, 100, random));
            break;
        default:
            mutate_bytes(text, other, random);
    }
}

void mutate(InputFiles& files, const InputFiles& other, const std::vector<std::string>& words,
            Random& random) {
    if (files.empty()) return;
    static const std::string kNothing;
    for (std::uint64_t changes = random.below(2) == 0 ? 1 : 1 + random.below(3); changes > 0;
         --changes) {
        InputFile& file = files[random.below(files.size())];
        const std::string* donor = &kNothing;
        for (const InputFile& candidate : other)
            if (candidate.name == file.name) donor = &candidate.bytes;
        // Now and then any format is but bytes.
        if (random.below(8) == 0) {
            mutate_bytes(file.bytes, *donor, random);
        } else if (file.name.ends_with(".json") || file.name.ends_with(".jsonl")) {
            mutate_json(file.bytes, *donor, words, random);
        } else if (file.name.ends_with(".safetensors")) {
            mutate_safetensors(file.bytes, *donor, random);
        } else if (file.name.ends_with(".gguf")) {
            mutate_gguf(file.bytes, *donor, random);
        } else {
            mutate_text(file.bytes, *donor, words, random);
        }
        if (file.bytes.size() > kLargestInput) file.bytes.resize(kLargestInput);
    }
    if (files.size() > 1 && random.below(64) == 0)
        files.erase(files.begin() + static_cast<std::ptrdiff_t>(random.below(files.size())));
}

}  // namespace garam::fuzz
