// Learning-rate schedules, under Transformers' names and with its numbers.
//
// A schedule is a factor on the base learning rate, a function of the number n of optimiser steps
// done before (n = 0 for the first step), w = warmup_steps and T = total_steps, p = (n - w) / max(1, T - w):
//
//   constant               1, whatever w is
//   constant_with_warmup   n / max(1, w) while n < w, then 1
//   linear                 the same warm-up, then max(0, (T - n) / max(1, T - w))
//   cosine                 the same warm-up, then max(0, (1 + cos(2 pi num_cycles p)) / 2)
//   cosine_with_min_lr     the same with the cosine part squeezed into [min_lr_rate, 1]
//   cosine_with_restarts   the same warm-up, then (1 + cos(pi (num_cycles p mod 1))) / 2, 0 from p = 1 on
//   polynomial             the same warm-up, then (1 - p)^power from 1 to lr_end / learning_rate
//   inverse_sqrt           the same warm-up, then 1 / sqrt((n + s) / k), s = k - w, k = timescale, else w or
//                          10,000 when w = 0
//   warmup_stable_decay    warm-up from min_lr_ratio by warmup_type, 1 for num_stable_steps, then down to
//                          min_lr_ratio by decay_type within num_decay_steps, and there
//
// So the first step of a warm-up has learning rate 0, and the cosines rise again beyond T.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace garam {

enum class ScheduleType : std::uint8_t {
    constant,
    constant_with_warmup,
    linear,
    cosine,
    cosine_with_min_lr,
    cosine_with_restarts,
    polynomial,
    inverse_sqrt,
    warmup_stable_decay,
};

std::string_view name_of(ScheduleType type);
// Throws Error that lists the names known, prefixed with the key (train.lr_scheduler_type).
ScheduleType schedule_type_from_name(std::string_view name);

// Transformers' lr_scheduler_kwargs; unset: its defaults.
struct ScheduleKwargs {
    std::optional<double>
        num_cycles;                // cosine, cosine_with_min_lr (0.5), cosine_with_restarts (1),
                                   // warmup_stable_decay with decay_type cosine (0.5)
    std::optional<double> min_lr;  // cosine_with_min_lr: one of these two is needed
    std::optional<double> min_lr_rate;             // as a part of the learning rate
    std::optional<double> lr_end;                  // polynomial (1e-7)
    std::optional<double> power;                   // polynomial (1)
    std::optional<std::int64_t> timescale;         // inverse_sqrt
    std::optional<std::int64_t> num_decay_steps;   // warmup_stable_decay: needed
    std::optional<std::int64_t> num_stable_steps;  // the same: else all that is left
    std::optional<double> min_lr_ratio;            // the same (0)
    std::string warmup_type = "linear";            // the same: linear, cosine, 1-sqrt
    std::string decay_type = "cosine";             // the same
};

struct ScheduleOptions {
    ScheduleType type = ScheduleType::linear;
    double learning_rate = 5e-5;  // base
    std::int64_t warmup_steps = 0;
    std::int64_t total_steps = 0;  // of the whole run, resumed parts included
    ScheduleKwargs kwargs = {};
};

// Throws Error naming the key: of an option that the schedule does not have, of one that is missing, or of
// steps that do not add up (total_steps 0: not known yet).
void check_schedule(const ScheduleOptions& options);

// The learning rate that the optimiser step after `steps_done` steps uses.
double learning_rate(const ScheduleOptions& options, std::int64_t steps_done);

// Warm-up of a run of `total_steps`: `warmup_steps` when positive, else ceil(total_steps *
// warmup_ratio) in double precision, as Transformers counts. Throws Error when one is negative or
// the ratio is above 1.
std::int64_t resolve_warmup_steps(std::int64_t warmup_steps, double warmup_ratio,
                                  std::int64_t total_steps);

}  // namespace garam
