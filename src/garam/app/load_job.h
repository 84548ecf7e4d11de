// The arguments CONFIG… KEY=VALUE… that `train`, `plan` and `config` share.
#pragma once

#include <string>
#include <vector>

#include "garam/core/config_table.h"
#include "garam/train/job_config.h"

namespace garam {

// Sets the keys of the config files in the order given, then those of the overrides in theirs: an
// override counts wherever it stands. Throws Error.
void read_settings(const std::vector<std::string>& arguments, ConfigTable& table);

struct LoadedJob {
    JobConfig config;
    std::string yaml;  // every key with its value, for the run folder
};

// read_settings() and validate().
LoadedJob load_job(const std::vector<std::string>& arguments);

}  // namespace garam
