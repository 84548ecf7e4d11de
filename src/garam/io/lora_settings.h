// What an adapter is: the fields of PEFT's LoraConfig that garam knows, and which modules they name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "garam/io/module_pattern.h"

namespace garam {

// Defaults are PEFT's.
struct LoraSettings {
    std::int64_t r = 8;
    double lora_alpha = 8;
    double lora_dropout = 0;
    bool use_rslora = false;
    bool use_dora = false;
    // Names or ends of names; {"all-linear"} before resolution; or one regular expression, which a name
    // must fit as a whole: what is no module's name is taken for one.
    std::vector<std::string> target_modules;
    std::vector<std::string> exclude_modules;       // likewise; taken out of the targets
    std::vector<std::int64_t> layers_to_transform;  // empty: all
    std::vector<std::string> layers_pattern;  // what stands before a layer's number; empty: any
    // Another r or lora_alpha for modules whose name, or its end, fits the expression; the first counts.
    std::vector<std::pair<std::string, double>> rank_pattern;
    std::vector<std::pair<std::string, double>> alpha_pattern;
    std::string bias =
        "none";  // which biases are trained beside it: none, all, lora_only (of its modules)
    // Modules of which a whole copy is trained beside the adapter: ends of their names, or of what they are
    // parts of. As PEFT has it, "norm" names input_layernorm, too.
    std::vector<std::string> modules_to_save;
    // Rows of the token embedding, and of a head tied to it, that are trained for themselves.
    std::vector<std::int64_t> trainable_token_indices;
    std::string base_model_name_or_path;

    // Of modules without a pattern: alpha / r, or alpha / sqrt(r) with rsLoRA.
    double scaling() const;
};

// Whether this is one regular expression instead of names.
bool is_pattern(const std::vector<std::string>& modules);

// The module of that path is named by `name`: it is its path or the end of it.
bool ends_with_module(const std::string& path, const std::string& name);

// The first of `modules` that names the module of that path or one that it lies in; empty: none.
std::string saved_by(const std::vector<std::string>& modules, const std::string& path);

// Settings applied to modules by their paths, as PEFT does. Throws Error naming the field whose regular
// expression is none.
class LoraTargets {
  public:
    explicit LoraTargets(const LoraSettings& settings);

    // Whether target_modules name it ("all-linear": any), whatever the other fields say.
    bool names(const std::string& path) const;
    bool excludes(const std::string& path) const;
    // Whether layers_to_transform leave it out.
    bool skips_layer_of(const std::string& path) const;
    bool contains(const std::string& path) const {
        return names(path) && !excludes(path) && !skips_layer_of(path);
    }
    // The first expression that fits; nothing: r and lora_alpha count.
    std::optional<std::size_t> rank_entry(const std::string& path) const;
    std::optional<std::size_t> alpha_entry(const std::string& path) const;
    std::int64_t rank(const std::string& path) const;
    double alpha(const std::string& path) const;
    double scaling(const std::string& path) const;

  private:
    const LoraSettings settings_;
    std::optional<ModulePattern> targets_;
    std::optional<ModulePattern> excluded_;
    std::vector<ModulePattern> layers_;
    std::vector<ModulePattern> ranks_;
    std::vector<ModulePattern> alphas_;
};

double lora_scaling(double alpha, std::int64_t r, bool use_rslora);

}  // namespace garam
