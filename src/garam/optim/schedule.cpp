#include "garam/optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "garam/core/error.h"

namespace garam {
namespace {

constexpr std::array<std::pair<std::string_view, ScheduleType>, 9> kNames{{
    {"constant", ScheduleType::constant},
    {"constant_with_warmup", ScheduleType::constant_with_warmup},
    {"linear", ScheduleType::linear},
    {"cosine", ScheduleType::cosine},
    {"cosine_with_min_lr", ScheduleType::cosine_with_min_lr},
    {"cosine_with_restarts", ScheduleType::cosine_with_restarts},
    {"polynomial", ScheduleType::polynomial},
    {"inverse_sqrt", ScheduleType::inverse_sqrt},
    {"warmup_stable_decay", ScheduleType::warmup_stable_decay},
}};

// Products in the order in which Transformers takes them, so that logged values agree to the bit.
double cosine_of(double num_cycles, double progress) {
    return 0.5 * (1.0 + std::cos(std::numbers::pi * num_cycles * 2.0 * progress));
}

double squeezed(double factor, double least) {
    return std::max(0.0, factor * (1.0 - least) + least);
}

double least_rate(const ScheduleOptions& options) {
    if (options.kwargs.min_lr) return *options.kwargs.min_lr / options.learning_rate;
    return options.kwargs.min_lr_rate.value_or(0);
}

double polynomial_factor(const ScheduleOptions& options, double n) {
    const double warmup = static_cast<double>(options.warmup_steps);
    const double total = static_cast<double>(options.total_steps);
    const double end = options.kwargs.lr_end.value_or(1e-7);
    if (n > total) return end / options.learning_rate;
    const double left = 1 - (n - warmup) / std::max(1.0, total - warmup);
    const double decayed =
        (options.learning_rate - end) * std::pow(left, options.kwargs.power.value_or(1)) + end;
    return decayed / options.learning_rate;
}

// Warm-up and decay of warmup_stable_decay; `progress` in [0, 1).
double rise(const std::string& type, double progress) {
    if (type == "cosine") return 0.5 * (1.0 - std::cos(std::numbers::pi * progress));
    if (type == "1-sqrt") return 1.0 - std::sqrt(1.0 - progress);
    return progress;
}
double fall(const std::string& type, double progress, double num_cycles) {
    if (type == "cosine") return cosine_of(num_cycles, progress);
    if (type == "1-sqrt") return 1.0 - std::sqrt(progress);
    return 1.0 - progress;
}

double stable_decay_factor(const ScheduleOptions& options, double n) {
    const ScheduleKwargs& kwargs = options.kwargs;
    const double warmup = static_cast<double>(options.warmup_steps);
    const double decay = static_cast<double>(kwargs.num_decay_steps.value_or(0));
    const double stable = kwargs.num_stable_steps
                              ? static_cast<double>(*kwargs.num_stable_steps)
                              : static_cast<double>(options.total_steps) - warmup - decay;
    const double least = kwargs.min_lr_ratio.value_or(0);
    if (n < warmup) return squeezed(rise(kwargs.warmup_type, n / std::max(1.0, warmup)), least);
    if (n < warmup + stable) return 1.0;
    if (n < warmup + stable + decay) {
        const double progress = (n - warmup - stable) / std::max(1.0, decay);
        return squeezed(fall(kwargs.decay_type, progress, kwargs.num_cycles.value_or(0.5)), least);
    }
    return least;
}

double factor(const ScheduleOptions& options, std::int64_t steps_done) {
    if (options.type == ScheduleType::constant) return 1.0;
    const double n = static_cast<double>(steps_done);
    if (options.type == ScheduleType::warmup_stable_decay) return stable_decay_factor(options, n);
    const double warmup = static_cast<double>(options.warmup_steps);
    const double total = static_cast<double>(options.total_steps);
    if (n < warmup) return n / std::max(1.0, warmup);
    const double progress = (n - warmup) / std::max(1.0, total - warmup);
    const ScheduleKwargs& kwargs = options.kwargs;
    switch (options.type) {
        case ScheduleType::linear:
            return std::max(0.0, (total - n) / std::max(1.0, total - warmup));
        case ScheduleType::cosine:
        case ScheduleType::cosine_with_min_lr:
            return squeezed(cosine_of(kwargs.num_cycles.value_or(0.5), progress),
                            least_rate(options));
        case ScheduleType::cosine_with_restarts:
            if (progress >= 1.0) return 0.0;
            return std::max(
                0.0,
                0.5 * (1.0 + std::cos(std::numbers::pi *
                                      std::fmod(kwargs.num_cycles.value_or(1) * progress, 1.0))));
        case ScheduleType::polynomial:
            return polynomial_factor(options, n);
        case ScheduleType::inverse_sqrt: {
            const double timescale = kwargs.timescale ? static_cast<double>(*kwargs.timescale)
                                     : options.warmup_steps > 0 ? warmup
                                                                : 10000.0;
            return 1.0 / std::sqrt((n + (timescale - warmup)) / timescale);
        }
        default:
            return 1.0;
    }
}

// The schedules that have an option.
struct Known {
    const char* name;
    bool is_set;
    std::vector<ScheduleType> by;
};

}  // namespace

std::string_view name_of(ScheduleType type) {
    for (const auto& [name, known] : kNames)
        if (known == type) return name;
    return "?";
}

ScheduleType schedule_type_from_name(std::string_view name) {
    std::string supported;
    for (const auto& [known, type] : kNames) {
        if (known == name) return type;
        supported += (supported.empty() ? "" : ", ") + std::string(known);
    }
    throw Error("train.lr_scheduler_type: \"" + std::string(name) +
                "\" is not supported; choose one of " + supported);
}

void check_schedule(const ScheduleOptions& options) {
    using enum ScheduleType;
    const ScheduleKwargs& kwargs = options.kwargs;
    const std::string prefix = "train.lr_scheduler_kwargs.";
    const std::string name(name_of(options.type));
    const std::vector<Known> all = {
        {"num_cycles",
         kwargs.num_cycles.has_value(),
         {cosine, cosine_with_min_lr, cosine_with_restarts, warmup_stable_decay}},
        {"min_lr", kwargs.min_lr.has_value(), {cosine_with_min_lr}},
        {"min_lr_rate", kwargs.min_lr_rate.has_value(), {cosine_with_min_lr}},
        {"lr_end", kwargs.lr_end.has_value(), {polynomial}},
        {"power", kwargs.power.has_value(), {polynomial}},
        {"timescale", kwargs.timescale.has_value(), {inverse_sqrt}},
        {"num_decay_steps", kwargs.num_decay_steps.has_value(), {warmup_stable_decay}},
        {"num_stable_steps", kwargs.num_stable_steps.has_value(), {warmup_stable_decay}},
        {"min_lr_ratio", kwargs.min_lr_ratio.has_value(), {warmup_stable_decay}},
        {"warmup_type", kwargs.warmup_type != "linear", {warmup_stable_decay}},
        {"decay_type", kwargs.decay_type != "cosine", {warmup_stable_decay}},
    };
    for (const Known& known : all) {
        if (!known.is_set ||
            std::find(known.by.begin(), known.by.end(), options.type) != known.by.end())
            continue;
        std::string schedules;
        for (const ScheduleType type : known.by)
            schedules += (schedules.empty() ? "" : ", ") + std::string(name_of(type));
        throw Error(prefix + known.name + " belongs to " + schedules +
                    "; train.lr_scheduler_type is " + name);
    }
    if (options.type == cosine_with_min_lr &&
        kwargs.min_lr.has_value() == kwargs.min_lr_rate.has_value())
        throw Error("train.lr_scheduler_type=cosine_with_min_lr needs one of " + prefix +
                    "min_lr and " + prefix + "min_lr_rate");
    if (options.type == polynomial && options.learning_rate <= kwargs.lr_end.value_or(1e-7))
        throw Error(prefix + "lr_end must be below train.learning_rate");
    if (options.type != warmup_stable_decay) return;
    if (!kwargs.num_decay_steps)
        throw Error("train.lr_scheduler_type=warmup_stable_decay needs " + prefix +
                    "num_decay_steps");
    if (options.total_steps > 0 && !kwargs.num_stable_steps &&
        options.warmup_steps + *kwargs.num_decay_steps > options.total_steps)
        throw Error(prefix + "num_decay_steps (" + std::to_string(*kwargs.num_decay_steps) +
                    ") and the warm-up (" + std::to_string(options.warmup_steps) +
                    ") are more than the run's " + std::to_string(options.total_steps) + " steps");
}

double learning_rate(const ScheduleOptions& options, std::int64_t steps_done) {
    GARAM_CHECK(steps_done >= 0, "steps done before cannot be negative");
    return options.learning_rate * factor(options, steps_done);
}

std::int64_t resolve_warmup_steps(std::int64_t warmup_steps, double warmup_ratio,
                                  std::int64_t total_steps) {
    if (warmup_steps < 0)
        throw Error("train.warmup_steps: " + std::to_string(warmup_steps) +
                    " is negative; give 0 or more");
    if (!(warmup_ratio >= 0 && warmup_ratio <= 1))
        throw Error("train.warmup_ratio: " + std::to_string(warmup_ratio) +
                    " is not a share of the run; give a number from 0 to 1");
    if (warmup_steps > 0) return warmup_steps;
    return static_cast<std::int64_t>(std::ceil(static_cast<double>(total_steps) * warmup_ratio));
}

}  // namespace garam
