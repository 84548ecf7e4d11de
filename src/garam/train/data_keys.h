// The keys `data.*` of a config file.
#pragma once

#include "garam/core/config_table.h"
#include "garam/data/data_config.h"

namespace garam {

void describe(DataConfig& config, ConfigTable& table);

// Keys that contradict each other, and values that no single key can refuse. Throws Error naming them.
void validate(const DataConfig& config);

}  // namespace garam
