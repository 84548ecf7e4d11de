// How the angles of rotary position embedding are scaled, from config.json's keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "garam/core/json.h"
#include "garam/models/config_reader.h"

namespace garam {

struct RopeConfig {
    enum class Kind : std::uint8_t { standard, linear, llama3, divisors };
    Kind kind = Kind::standard;
    double theta = 10000;
    double factor = 1;                    // linear, llama3
    double low_freq_factor = 1;           // llama3
    double high_freq_factor = 4;          // llama3
    double original_max_position = 8192;  // llama3
    std::vector<double> divisors;         // GGUF: the frequencies are divided by these
};

// Of all layers, and of layers with a window where these have their own.
struct RopeConfigs {
    RopeConfig rope;
    std::optional<RopeConfig> local;
};

// rope_theta and rope_scaling of the older field style, rope_parameters of the newer, which may have one for
// each kind of layer. `theta`: where the config states none. Throws Error naming source and key.
RopeConfigs read_rope_configs(const ConfigReader& config, double theta, std::int64_t rotary_dim,
                              bool has_local);

}  // namespace garam
