#include "garam/models/adapter_targets.h"

#include <set>

#include "garam/core/error.h"

namespace garam {
namespace {

using Numbers = std::vector<std::pair<std::string, double>>;

std::string last_part(const std::string& path) {
    return path.substr(path.rfind('.') + 1);
}

std::string last_parts(const std::vector<std::string>& paths) {
    std::string names;
    std::set<std::string> seen;
    for (const std::string& path : paths) {
        if (!seen.insert(last_part(path)).second) continue;
        names += (names.empty() ? "" : ", ") + last_part(path);
    }
    return names;
}

class Resolver {
  public:
    Resolver(LoraSettings& lora, const DecoderFamily& family)
        : lora_(lora),
          family_(family),
          targets_(lora),
          by_pattern_(is_pattern(lora.target_modules)) {}

    std::map<std::string, ModuleAdapter> resolve(const std::vector<std::string>& linears) {
        std::map<std::string, ModuleAdapter> adapters;
        for (const std::string& path : linears)
            if (wants(path)) adapters.emplace(path, settings_of(path));
        for (const std::string& target : lora_.target_modules) {
            if (!matched_.contains(target))
                throw Error("lora.target_modules: \"" + target +
                            "\" matches no linear layer of the model (there are: " +
                            last_parts(linears) + "; or all-linear)");
        }
        if (adapters.empty())
            throw Error(
                "lora.exclude_modules and lora.layers_to_transform leave none of "
                "lora.target_modules");
        settle(adapters);
        return adapters;
    }

  private:
    bool wants(const std::string& path) {
        const std::string common = common_module(family_, path);
        const bool left_out = targets_.excludes(path) || targets_.excludes(common) ||
                              (targets_.skips_layer_of(path) && targets_.skips_layer_of(common));
        bool is_named = false;
        for (const std::string& target : lora_.target_modules) {
            const std::string own = own_target(target, path, common);
            if (own.empty()) continue;
            is_named = true;
            matched_.insert(target);
            if (!left_out) names_.insert(own);
        }
        const bool wanted = is_named && !left_out;
        if (wanted != targets_.contains(path)) by_other_names_ = true;
        return wanted;
    }

    // The target in the family's names, where it names that linear; else empty.
    std::string own_target(const std::string& target, const std::string& path,
                           const std::string& common) const {
        if (by_pattern_) return targets_.names(path) || targets_.names(common) ? path : "";
        if (target == "all-linear") return last_part(path);
        if (ends_with_module(path, target)) return target;
        if (own_module(family_, target) == path) return path;
        return ends_with_module(common, target) ? last_part(path) : "";
    }

    // By the first pattern that the own name fits, else the common one.
    ModuleAdapter settings_of(const std::string& path) {
        const std::string common = common_module(family_, path);
        const auto by = [&](bool own_fits, bool common_fits) -> const std::string& {
            if (own_fits || !common_fits) return path;
            patterns_by_other_names_ = true;
            return common;
        };
        const std::int64_t rank = targets_.rank(
            by(targets_.rank_entry(path).has_value(), targets_.rank_entry(common).has_value()));
        const double alpha = targets_.alpha(
            by(targets_.alpha_entry(path).has_value(), targets_.alpha_entry(common).has_value()));
        if (rank != lora_.r) ranks_.emplace_back(path, static_cast<double>(rank));
        if (alpha != lora_.lora_alpha) alphas_.emplace_back(path, alpha);
        return {rank, lora_scaling(alpha, rank, lora_.use_rslora)};
    }

    // What the adapter's file is to say, in the family's own names.
    void settle(const std::map<std::string, ModuleAdapter>& adapters) {
        const bool chooses = !lora_.exclude_modules.empty() || !lora_.layers_to_transform.empty();
        if (by_other_names_ && (chooses || by_pattern_)) {
            names_.clear();
            for (const auto& [path, adapter] : adapters)
                names_.insert(path);
            lora_.exclude_modules.clear();
            lora_.layers_to_transform.clear();
            lora_.layers_pattern.clear();
        }
        if (by_other_names_ || !by_pattern_)
            lora_.target_modules.assign(names_.begin(), names_.end());
        if (!patterns_by_other_names_) return;
        lora_.rank_pattern = std::move(ranks_);
        lora_.alpha_pattern = std::move(alphas_);
    }

    LoraSettings& lora_;
    const DecoderFamily& family_;
    LoraTargets targets_;
    bool by_pattern_;
    std::set<std::string> names_;
    std::set<std::string> matched_;
    Numbers ranks_, alphas_;
    bool by_other_names_ = false;
    bool patterns_by_other_names_ = false;
};

}  // namespace

std::map<std::string, ModuleAdapter> resolve_adapters(LoraSettings& lora,
                                                      const DecoderFamily& family,
                                                      const std::vector<std::string>& linears) {
    return Resolver(lora, family).resolve(linears);
}

}  // namespace garam
