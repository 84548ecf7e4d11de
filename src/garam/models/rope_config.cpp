#include "garam/models/rope_config.h"

#include <cmath>

namespace garam {
namespace {

// One object with RoPE's keys: rope_scaling, or one of rope_parameters.
class ScalingReader {
  public:
    ScalingReader(const ConfigReader& config, const Json& json, const std::string& where,
                  std::int64_t rotary_dim, std::int64_t max_positions)
        : config_(config),
          scaling_(json, where),
          rotary_dim_(rotary_dim),
          max_positions_(static_cast<double>(max_positions)) {}

    RopeConfig read(double theta) {
        rope_.theta = scaling_.positive("rope_theta", theta);
        std::string type = scaling_.text("rope_type", scaling_.text("type", "default"));
        // Names that Phi-3's first configs have for it.
        const bool has_lists = scaling_.find("short_factor") != nullptr;
        if (has_lists && (type == "su" || type == "yarn")) type = "longrope";
        if (type == "default") return rope_;
        if (type == "linear") {
            rope_.kind = RopeConfig::Kind::linear;
            rope_.factor = scaling_.positive("factor");
        } else if (type == "dynamic") {
            rope_.kind = RopeConfig::Kind::dynamic;
            rope_.factor = scaling_.positive("factor");
            rope_.original_max_position = max_positions_;
            if (rotary_dim_ == 2) throw Error(where() + ": dynamic needs heads of more than 2");
        } else if (type == "llama3") {
            read_llama3();
        } else if (type == "yarn") {
            read_yarn();
        } else if (type == "longrope") {
            read_longrope();
        } else if (type == "garam_divisors") {
            rope_.kind = RopeConfig::Kind::divisors;
            rope_.divisors = divisors("garam_rope_divisors");
        } else {
            throw Error(where() + ": rope type \"" + type +
                        "\" is not supported (supported: default, linear, dynamic, llama3, yarn, "
                        "longrope)");
        }
        return rope_;
    }

  private:
    const std::string& where() const { return scaling_.source(); }

    // Phi-3 has it outside, which goes first.
    void read_original() {
        const char* const key = "original_max_position_embeddings";
        rope_.original_max_position = config_.find(key) != nullptr
                                          ? config_.positive(key)
                                          : scaling_.positive(key, max_positions_);
        if (rope_.original_max_position > 0x1p31)
            throw Error(scaling_.name(key) + " is beyond 2^31");
    }

    void read_llama3() {
        rope_.kind = RopeConfig::Kind::llama3;
        rope_.factor = scaling_.positive("factor");
        rope_.low_freq_factor = scaling_.positive("low_freq_factor");
        rope_.high_freq_factor = scaling_.positive("high_freq_factor");
        read_original();
        // As fp32, which the frequencies between are blended in.
        if (static_cast<float>(rope_.high_freq_factor) <= static_cast<float>(rope_.low_freq_factor))
            throw Error(where() + ": high_freq_factor must be above low_freq_factor");
    }

    void read_yarn() {
        rope_.kind = RopeConfig::Kind::yarn;
        read_original();
        rope_.factor = scaling_.positive("factor", max_positions_ / rope_.original_max_position);
        rope_.beta_fast = scaling_.positive("beta_fast", 32);
        rope_.beta_slow = scaling_.positive("beta_slow", 1);
        rope_.truncate = scaling_.boolean("truncate", true);
        if (rope_.theta <= 1)
            throw Error(scaling_.name("rope_theta") + " must be above 1 for yarn");
        const double log_factor = std::log(std::max(rope_.factor, 1.0));
        const auto mscale = [&](double of) { return 0.1 * of * log_factor + 1; };
        const double numerator = scaling_.number("mscale", 0);
        const double denominator = scaling_.number("mscale_all_dim", 0);
        const double otherwise = numerator != 0 && denominator != 0
                                     ? mscale(numerator) / mscale(denominator)
                                     : mscale(1);
        rope_.attention_scaling = scaling_.positive("attention_factor", otherwise);
    }

    void read_longrope() {
        rope_.kind = RopeConfig::Kind::longrope;
        read_original();
        rope_.divisors = divisors("short_factor");
        rope_.long_divisors = divisors("long_factor");
        const double factor =
            scaling_.positive("factor", max_positions_ / rope_.original_max_position);
        const double otherwise =
            factor <= 1 ? 1
                        : std::sqrt(1 + std::log(factor) / std::log(rope_.original_max_position));
        rope_.attention_scaling = scaling_.positive("attention_factor", otherwise);
    }

    std::vector<double> divisors(const char* key) const {
        if (scaling_.find(key) == nullptr) throw Error(scaling_.name(key) + " is missing");
        std::vector<double> values;
        for (const Json& json : scaling_.find(key)->array(scaling_.name(key))) {
            const double value = json.number(scaling_.name(key));
            ConfigReader::check_positive(value, scaling_.name(key) + ": a divisor");
            values.push_back(value);
        }
        if (static_cast<std::int64_t>(values.size()) != rotary_dim_ / 2)
            throw Error(scaling_.name(key) + ": " + std::to_string(values.size()) +
                        " rope divisors, but " + std::to_string(rotary_dim_) +
                        " entries of a head turn");
        return values;
    }

    const ConfigReader& config_;
    ConfigReader scaling_;
    std::int64_t rotary_dim_;
    double max_positions_;
    RopeConfig rope_;
};

}  // namespace

RopeConfigs read_rope_configs(const ConfigReader& config, double theta, std::int64_t rotary_dim,
                              std::int64_t max_positions, bool has_local) {
    RopeConfigs configs;
    theta = config.positive("rope_theta", theta);
    const auto read = [&](const Json& json, const std::string& where, double base) {
        json.object(where);
        return ScalingReader(config, json, where, rotary_dim, max_positions).read(base);
    };
    const Json* parameters = config.find("rope_parameters");
    const Json* global = parameters == nullptr ? nullptr : parameters->find("full_attention");
    if (global != nullptr) {
        const std::string where = config.name("rope_parameters");
        configs.rope = read(*global, where + ": full_attention", theta);
        const Json* local = parameters->find("sliding_attention");
        if (local != nullptr && has_local)
            configs.local = read(*local, where + ": sliding_attention", theta);
    } else {
        const char* const group = parameters != nullptr ? "rope_parameters" : "rope_scaling";
        if (const Json* scaling = config.find(group)) {
            configs.rope = read(*scaling, config.name(group), theta);
        } else {
            configs.rope.theta = theta;
        }
    }
    if (has_local && !configs.local) {
        configs.local.emplace();
        configs.local->theta = config.positive("rope_local_base_freq", 10000);
    }
    if (configs.local && configs.local->longest_short() > 0)
        throw Error(config.name("rope_parameters") +
                    ": sliding_attention: dynamic and longrope are not supported there");
    return configs;
}

}  // namespace garam
