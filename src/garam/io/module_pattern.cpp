#define PCRE2_CODE_UNIT_WIDTH 8
#include "garam/io/module_pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <cctype>

#include "garam/core/error.h"

namespace garam {
namespace {

constexpr std::size_t kMaxBytes = 4096;
// Names have some fifty letters: an expression that needs more was made to hang.
constexpr std::uint32_t kMatchLimit = 1'000'000;
constexpr std::uint32_t kDepthLimit = 10'000;
constexpr std::uint32_t kHeapLimit = 16 * 1024;  // KiB

struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

std::string message_of(int code) {
    PCRE2_UCHAR text[256];
    pcre2_get_error_message(code, text, sizeof(text));
    return reinterpret_cast<const char*>(text);
}

}  // namespace

struct ModulePattern::Compiled {
    std::string source;
    std::string expression;
    std::unique_ptr<pcre2_code, Free> code;
};

ModulePattern::~ModulePattern() = default;
ModulePattern::ModulePattern(ModulePattern&&) noexcept = default;
ModulePattern& ModulePattern::operator=(ModulePattern&&) noexcept = default;

ModulePattern::ModulePattern(const std::string& expression, const std::string& source)
    : compiled_(std::make_unique<Compiled>()) {
    if (expression.size() > kMaxBytes)
        throw Error(source + ": a regular expression of " + std::to_string(expression.size()) +
                    " bytes; at most " + std::to_string(kMaxBytes) + " are supported");
    compiled_->source = source;
    compiled_->expression = expression;
    int error = 0;
    PCRE2_SIZE where = 0;
    compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()),
                                        expression.size(),
                                        PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_NEVER_UTF |
                                            PCRE2_NEVER_UCP | PCRE2_NEVER_BACKSLASH_C,
                                        &error, &where, nullptr));
    if (!compiled_->code)
        throw Error(source + ": \"" + expression +
                    "\" is no regular expression that is supported: " + message_of(error));
}

bool ModulePattern::fits(const std::string& name) const {
    const std::unique_ptr<pcre2_match_data, Free> match(pcre2_match_data_create(1, nullptr));
    const std::unique_ptr<pcre2_match_context, Free> context(pcre2_match_context_create(nullptr));
    GARAM_CHECK(match && context, "no memory for matching");
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_depth_limit(context.get(), kDepthLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimit);
    const int found = pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(name.data()),
                                  name.size(), 0, 0, match.get(), context.get());
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found < 0)
        throw Error(compiled_->source + ": \"" + compiled_->expression + "\" gave up on the name " +
                    name + ": " + message_of(found));
    return true;
}

bool is_module_name(const std::string& text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
    });
}

}  // namespace garam
