#include "garam/io/lora_settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "garam/core/error.h"

namespace garam {
namespace {

// Of a module; longer ones, which a file can hold, are none's.
constexpr std::size_t kLongestPath = 200;

// The number of the layer that a module belongs to: the first part of its path that is a number and has
// a module before and behind it.
std::optional<std::int64_t> layer_of(const std::string& path,
                                     const std::vector<ModulePattern>& before) {
    if (path.size() > kLongestPath) return std::nullopt;
    for (std::size_t begin = path.find('.'); begin != std::string::npos;
         begin = path.find('.', begin + 1)) {
        const std::size_t end = path.find('.', begin + 1);
        if (end == std::string::npos) return std::nullopt;
        std::int64_t number = 0;
        const char* const stop = path.data() + end;
        const auto [read, error] = std::from_chars(path.data() + begin + 1, stop, number);
        if (error != std::errc() || read != stop || number < 0) continue;
        const std::string head = path.substr(0, begin);
        const bool fits = before.empty() ? head.find('.') != std::string::npos
                                         : std::any_of(before.begin(), before.end(),
                                                       [&](const auto& p) { return p.fits(head); });
        if (fits) return number;
    }
    return std::nullopt;
}

std::optional<std::size_t> first_fitting(const std::vector<ModulePattern>& patterns,
                                         const std::string& path) {
    for (std::size_t i = 0; i < patterns.size(); ++i)
        if (patterns[i].fits(path)) return i;
    return std::nullopt;
}

}  // namespace

double lora_scaling(double alpha, std::int64_t r, bool use_rslora) {
    const auto rank = static_cast<double>(r);
    return alpha / (use_rslora ? std::sqrt(rank) : rank);
}

double LoraSettings::scaling() const {
    return lora_scaling(lora_alpha, r, use_rslora);
}

bool is_pattern(const std::vector<std::string>& modules) {
    return modules.size() == 1 && !is_module_name(modules[0]);
}

bool ends_with_module(const std::string& path, const std::string& name) {
    if (path == name) return true;
    return path.size() > name.size() && path.ends_with(name) &&
           path[path.size() - name.size() - 1] == '.';
}

std::string saved_by(const std::vector<std::string>& modules, const std::string& path) {
    if (path.size() > kLongestPath) return {};
    for (const std::string& name : modules) {
        for (std::size_t end = path.size(); end != std::string::npos;
             end = path.rfind('.', end - 1)) {
            if (std::string_view(path).substr(0, end).ends_with(name)) return name;
            if (end == 0) break;
        }
    }
    return {};
}

LoraTargets::LoraTargets(const LoraSettings& settings) : settings_(settings) {
    if (is_pattern(settings_.target_modules))
        targets_.emplace(settings_.target_modules[0], "target_modules");
    if (is_pattern(settings_.exclude_modules))
        excluded_.emplace(settings_.exclude_modules[0], "exclude_modules");
    for (const std::string& pattern : settings_.layers_pattern)
        layers_.emplace_back("(?:.*\\.)?" + pattern, "layers_pattern");
    const auto ends = [](const auto& patterns, const char* field, auto& compiled) {
        for (const auto& [pattern, value] : patterns)
            compiled.emplace_back("(.*\\.)?(" + pattern + ")", field);
    };
    ends(settings_.rank_pattern, "rank_pattern", ranks_);
    ends(settings_.alpha_pattern, "alpha_pattern", alphas_);
}

bool LoraTargets::names(const std::string& path) const {
    if (targets_) return targets_->fits(path);
    const auto& targets = settings_.target_modules;
    return std::any_of(targets.begin(), targets.end(), [&](const std::string& target) {
        return target == "all-linear" || ends_with_module(path, target);
    });
}

bool LoraTargets::excludes(const std::string& path) const {
    if (excluded_) return excluded_->fits(path);
    const auto& names = settings_.exclude_modules;
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return ends_with_module(path, name); });
}

bool LoraTargets::skips_layer_of(const std::string& path) const {
    const auto& layers = settings_.layers_to_transform;
    if (layers.empty() || targets_) return false;
    // A module that is named in full is wanted in any case.
    const auto& targets = settings_.target_modules;
    if (std::find(targets.begin(), targets.end(), path) != targets.end()) return false;
    const std::optional<std::int64_t> layer = layer_of(path, layers_);
    return !layer || std::find(layers.begin(), layers.end(), *layer) == layers.end();
}

std::optional<std::size_t> LoraTargets::rank_entry(const std::string& path) const {
    return first_fitting(ranks_, path);
}

std::optional<std::size_t> LoraTargets::alpha_entry(const std::string& path) const {
    return first_fitting(alphas_, path);
}

std::int64_t LoraTargets::rank(const std::string& path) const {
    const auto entry = rank_entry(path);
    return entry ? static_cast<std::int64_t>(settings_.rank_pattern[*entry].second) : settings_.r;
}

double LoraTargets::alpha(const std::string& path) const {
    const auto entry = alpha_entry(path);
    return entry ? settings_.alpha_pattern[*entry].second : settings_.lora_alpha;
}

double LoraTargets::scaling(const std::string& path) const {
    return lora_scaling(alpha(path), rank(path), settings_.use_rslora);
}

}  // namespace garam
