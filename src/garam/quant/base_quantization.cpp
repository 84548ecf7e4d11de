#include "garam/quant/base_quantization.h"

#include <algorithm>

#include "garam/quant/four_bit.h"

namespace garam {

bool is_skipped(const BaseQuantization& options, std::string_view module) {
    return std::any_of(
        options.skip_modules.begin(), options.skip_modules.end(), [&](const std::string& name) {
            if (name.empty()) return false;
            const bool begins =
                module.starts_with(name) &&
                (module.size() == name.size() || name.ends_with('.') || module[name.size()] == '.');
            return begins || module.ends_with(name);
        });
}

std::string in_words(const BaseQuantization& options) {
    return std::string(name_of(options.format)) + ", blocks of " + std::to_string(options.block) +
           (options.double_quantization ? ", scales in 8 bits" : "");
}

}  // namespace garam
