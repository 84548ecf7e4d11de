// A config of another trainer in our keys: what has a meaning here is carried over, all else is named with
// the reason.
#pragma once

#include <string>
#include <vector>

#include "garam/app/config_dialects.h"

namespace garam {

struct ImportedConfig {
    Dialect dialect = Dialect::trl;
    std::string yaml;  // our keys that were set, without comments
    // Of keys that are left out, or mean something else here: "axolotl.yml:7: load_in_4bit: true: why".
    std::vector<std::string> left_out;
    // What the result lacks to be trained with ("data.train is not set: …"); empty: nothing.
    std::string missing;

    // The YAML with all of that as comments at its head.
    std::string to_text(const std::string& file) const;
};

// Throws Error where the file cannot be read or is of no dialect known.
ImportedConfig import_config(const std::vector<ConfigLine>& lines, const std::string& file);

}  // namespace garam
