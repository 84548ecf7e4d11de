#define PCRE2_CODE_UNIT_WIDTH 8
#include "garam/text/pattern.h"

#include <pcre2.h>

#include "garam/core/error.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

constexpr std::size_t kMaxPatternBytes = 64 * 1024;
constexpr std::size_t kJitStackStart = 64 * 1024;
constexpr std::size_t kJitStackMax = 16 * 1024 * 1024;
// Steps of one match attempt, as PCRE2 counts them: compiled code counts one of some hundred, and a million take it about
// 0.1 s. The published patterns need few. An attempt that ends at one of these is made again with the next; all that
// are made again may take kPatience together, for one text.
constexpr std::uint32_t kMatchLimits[] = {2'000, 50'000, 1'000'000, 10'000'000};
constexpr std::uint32_t kPatience = 12'000'000;
constexpr std::uint32_t kHeapLimit = 256 * 1024;  // KiB, of the interpreter

struct FreeCode {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
struct FreeContext {
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeStack {
    void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

std::string message_of(int code) {
    PCRE2_UCHAR text[256];
    pcre2_get_error_message(code, text, sizeof(text));
    return reinterpret_cast<const char*>(text);
}

// Where Oniguruma's syntax says the same in other letters. PCRE2's \s takes in U+180E and depends on
// options; the property is what Oniguruma means. \h is a hexadecimal digit there, \u has four of them.
std::string translated(std::string_view expression) {
    std::string out;
    bool in_class = false;
    for (std::size_t i = 0; i < expression.size(); ++i) {
        if (expression[i] != '\\' || i + 1 == expression.size()) {
            if (expression[i] == '[') in_class = true;
            if (expression[i] == ']') in_class = false;
            out += expression[i];
            continue;
        }
        const char next = expression[++i];
        if (next == 's') {
            out += "\\p{White_Space}";
        } else if (next == 'S') {
            out += "\\P{White_Space}";
        } else if (next == 'h') {
            out += in_class ? "0-9a-fA-F" : "[0-9a-fA-F]";
        } else if (next == 'H' && !in_class) {
            out += "[^0-9a-fA-F]";
        } else if (next == 'u' && i + 4 < expression.size()) {
            out += "\\x{" + std::string(expression.substr(i + 1, 4)) + "}";
            i += 4;
        } else {
            out += '\\';
            out += next;
        }
    }
    return out;
}

// What a thread needs to match: kept, since making it costs more than a short match.
struct Workspace {
    std::unique_ptr<pcre2_match_data, FreeMatch> match{pcre2_match_data_create(32, nullptr)};
    std::unique_ptr<pcre2_match_context, FreeContext> context{pcre2_match_context_create(nullptr)};
    std::unique_ptr<pcre2_jit_stack, FreeStack> stack{
        pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr)};

    Workspace() {
        GARAM_CHECK(match && context && stack, "no memory for matching");
        pcre2_set_heap_limit(context.get(), kHeapLimit);
        pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    }
};

}  // namespace

struct Pattern::Compiled {
    std::string source;
    std::string expression;
    std::unique_ptr<pcre2_code, FreeCode> code;
};

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

Pattern::Pattern(std::string_view expression, const std::string& source, Engine engine)
    : known_(engine == Engine::fastest ? known_pattern(expression) : KnownPattern::none),
      compiled_(std::make_unique<Compiled>()) {
    if (known_ != KnownPattern::none) return;
    if (expression.size() > kMaxPatternBytes)
        throw Error(source + ": a pattern of " + std::to_string(expression.size()) +
                    " bytes; at most " + std::to_string(kMaxPatternBytes) + " are supported");
    compiled_->source = source;
    compiled_->expression = std::string(expression);
    const std::string pattern = translated(expression);
    int error = 0;
    PCRE2_SIZE where = 0;
    compiled_->code.reset(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                      &where, nullptr));
    if (!compiled_->code)
        throw Error(source + ": pattern \"" + compiled_->expression +
                    "\" is not one that is supported: " + message_of(error));
    // Without just-in-time compilation (a hardened kernel) the interpreter gives the same matches.
    pcre2_jit_compile(compiled_->code.get(), PCRE2_JIT_COMPLETE);
}

void Pattern::find_all(std::string_view text, std::vector<ByteSpan>& out) const {
    if (known_ != KnownPattern::none) {
        scan(known_, text, out);
        return;
    }
    thread_local Workspace workspace;
    std::uint32_t patience = kPatience;
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    for (std::size_t at = 0; at < text.size();) {
        int found = PCRE2_ERROR_MATCHLIMIT;
        for (const std::uint32_t limit : kMatchLimits) {
            const bool is_again = limit > kMatchLimits[0];
            if (is_again && limit > patience) break;
            patience -= is_again ? limit : 0;
            pcre2_set_match_limit(workspace.context.get(), limit);
            // The text was checked once; checking it in each call would be quadratic.
            found = pcre2_match(compiled_->code.get(), subject, text.size(), at,
                                PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, workspace.match.get(),
                                workspace.context.get());
            if (found != PCRE2_ERROR_MATCHLIMIT) break;
        }
        if (found == PCRE2_ERROR_NOMATCH) break;
        if (found < 0)
            throw Error(compiled_->source + ": pattern \"" + compiled_->expression +
                        "\" gave up on a text of " + std::to_string(text.size()) +
                        " bytes: " + message_of(found));
        const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(workspace.match.get());
        if (ends[1] <= ends[0] || ends[0] < at)
            throw Error(compiled_->source + ": pattern \"" + compiled_->expression +
                        "\" uses \\K, which is not supported");
        out.push_back({ends[0], ends[1]});
        at = ends[1];
    }
}

}  // namespace garam
