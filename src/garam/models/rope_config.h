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
    enum class Kind : std::uint8_t { standard, linear, dynamic, llama3, yarn, longrope, divisors };
    Kind kind = Kind::standard;
    double theta = 10000;
    double factor = 1;                    // linear, dynamic, llama3, yarn
    double low_freq_factor = 1;           // llama3
    double high_freq_factor = 4;          // llama3
    double original_max_position = 8192;  // dynamic, llama3, yarn, longrope: of the pretraining
    double beta_fast = 32;                // yarn
    double beta_slow = 1;                 // yarn
    bool truncate = true;                 // yarn
    double attention_scaling = 1;         // yarn, longrope: of cos and sin
    // longrope: the frequencies are divided by these, of longer sequences by long_divisors. From GGUF
    // (Kind::divisors) there is one list.
    std::vector<double> divisors;
    std::vector<double> long_divisors;

    // Sequences of more tokens than this turn by other frequencies (dynamic, longrope); 0: all are alike.
    std::int64_t longest_short() const {
        return kind == Kind::dynamic || kind == Kind::longrope
                   ? static_cast<std::int64_t>(original_max_position)
                   : 0;
    }
};

// Of all layers, and of layers with a window where these have their own.
struct RopeConfigs {
    RopeConfig rope;
    std::optional<RopeConfig> local;
};

// rope_theta and rope_scaling of the older field style, rope_parameters of the newer, which may have one for
// each kind of layer. `theta`: where the config states none. Throws Error naming source and key.
RopeConfigs read_rope_configs(const ConfigReader& config, double theta, std::int64_t rotary_dim,
                              std::int64_t max_positions, bool has_local);

}  // namespace garam
