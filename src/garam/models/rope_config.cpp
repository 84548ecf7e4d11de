#include "garam/models/rope_config.h"

namespace garam {
namespace {

// `scaling`: the object rope_scaling or one of rope_parameters.
RopeConfig read_scaling(const ConfigReader& scaling, const Json& json, double theta,
                        std::int64_t rotary_dim) {
    RopeConfig rope;
    rope.theta = scaling.positive("rope_theta", theta);
    const std::string type = scaling.text("rope_type", scaling.text("type", "default"));
    const std::string& where = scaling.source();
    if (type == "default") return rope;
    if (type == "linear") {
        rope.kind = RopeConfig::Kind::linear;
        rope.factor = scaling.positive("factor");
    } else if (type == "llama3") {
        rope.kind = RopeConfig::Kind::llama3;
        rope.factor = scaling.positive("factor");
        rope.low_freq_factor = scaling.positive("low_freq_factor");
        rope.high_freq_factor = scaling.positive("high_freq_factor");
        rope.original_max_position = scaling.positive("original_max_position_embeddings");
        if (rope.high_freq_factor <= rope.low_freq_factor)
            throw Error(where + ": high_freq_factor must be above low_freq_factor");
    } else if (type == "garam_divisors") {
        rope.kind = RopeConfig::Kind::divisors;
        const std::string key = "garam_rope_divisors";
        for (const Json& value : json.at(key, where).array(scaling.name(key))) {
            const double divisor = value.number(where);
            if (!(divisor > 0) || divisor > 1e30)
                throw Error(where + ": a rope divisor must be a positive number, not " +
                            std::to_string(divisor));
            rope.divisors.push_back(divisor);
        }
        if (static_cast<std::int64_t>(rope.divisors.size()) != rotary_dim / 2)
            throw Error(where + ": " + std::to_string(rope.divisors.size()) +
                        " rope divisors for a head of " + std::to_string(rotary_dim));
    } else {
        throw Error(where + ": rope type \"" + type +
                    "\" is not supported (supported: default, linear, llama3)");
    }
    return rope;
}

}  // namespace

RopeConfigs read_rope_configs(const ConfigReader& config, double theta, std::int64_t rotary_dim,
                              bool has_local) {
    RopeConfigs configs;
    theta = config.positive("rope_theta", theta);
    const auto read = [&](const Json& json, const std::string& where, double base) {
        json.object(where);
        return read_scaling(ConfigReader(json, where), json, base, rotary_dim);
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
    return configs;
}

}  // namespace garam
