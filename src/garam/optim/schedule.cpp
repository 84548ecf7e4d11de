#include "garam/optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "garam/core/error.h"

namespace garam {
namespace {

constexpr std::array<std::pair<std::string_view, ScheduleType>, 6> kNames{{
    {"constant", ScheduleType::constant},
    {"constant_with_warmup", ScheduleType::constant_with_warmup},
    {"linear", ScheduleType::linear},
    {"cosine", ScheduleType::cosine},
    {"cosine_with_min_lr", ScheduleType::cosine_with_min_lr},
    {"inverse_sqrt", ScheduleType::inverse_sqrt},
}};

// Products in the order in which Transformers takes them, so that logged values agree to the bit.
double cosine_factor(const ScheduleOptions& options, double after_warmup, double decay_steps) {
    const double progress = after_warmup / decay_steps;
    return 0.5 * (1.0 + std::cos(std::numbers::pi * 0.5 * 2.0 * progress)) *
               (1.0 - options.min_lr_rate) +
           options.min_lr_rate;
}

double factor(const ScheduleOptions& options, std::int64_t steps_done) {
    if (options.type == ScheduleType::constant) return 1.0;
    const double n = static_cast<double>(steps_done);
    const double warmup = static_cast<double>(options.warmup_steps);
    const double total = static_cast<double>(options.total_steps);
    if (n < warmup) return n / std::max(1.0, warmup);
    const double decay_steps = std::max(1.0, total - warmup);
    switch (options.type) {
        case ScheduleType::constant:
        case ScheduleType::constant_with_warmup:
            return 1.0;
        case ScheduleType::linear:
            return std::max(0.0, (total - n) / decay_steps);
        case ScheduleType::cosine:
        case ScheduleType::cosine_with_min_lr:
            return std::max(0.0, cosine_factor(options, n - warmup, decay_steps));
        case ScheduleType::inverse_sqrt: {
            const double timescale = options.warmup_steps > 0 ? warmup : 10000.0;
            return 1.0 / std::sqrt((n + (timescale - warmup)) / timescale);
        }
    }
    return 1.0;
}

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

double learning_rate(const ScheduleOptions& options, std::int64_t steps_done) {
    GARAM_CHECK(steps_done >= 0, "steps done before cannot be negative");
    GARAM_CHECK(options.type == ScheduleType::cosine_with_min_lr || options.min_lr_rate == 0,
                "min_lr_rate belongs to cosine_with_min_lr");
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
