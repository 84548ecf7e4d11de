// Config files: YAML, read into dotted keys with the text as it was written and its line.
//
// Nested maps become dotted keys ("train:" over "seed: 1" gives train.seed; "train.seed: 1" does
// too). Scalars keep their text: whether 1e-4 is a number is for the key to say. Anchors and
// aliases work. Refused with file and line: duplicate keys, lists of anything but scalars, tags,
// merge keys, several documents, more than 1 MiB, nesting beyond 32, more than 10,000 values or 16 MiB of
// keys and values (aliases multiply).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "garam/core/config_table.h"

namespace garam {

struct ConfigLine {
    std::string key;  // "train.seed"
    ConfigText value;
    std::string source;  // "spam.yaml:7"
};

// Whether lists of maps and lists are read too, with the item's number as a part of the key:
// "datasets.0.path".
enum class YamlLists : std::uint8_t { of_values, of_maps };

// In the order of the file. Throws Error.
std::vector<ConfigLine> read_yaml_config(const std::filesystem::path& path,
                                         YamlLists lists = YamlLists::of_values);
// The same from text; `name` stands for the file in messages.
std::vector<ConfigLine> parse_yaml_config(const std::string& text, const std::string& name,
                                          YamlLists lists = YamlLists::of_values);

}  // namespace garam
