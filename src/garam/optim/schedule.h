// Learning-rate schedules, under Transformers' names and with its numbers.
//
// A schedule is a factor on the base learning rate, a function of the number n of optimiser steps
// done before (n = 0 for the first step), w = warmup_steps and T = total_steps:
//
//   constant               1, whatever w is
//   constant_with_warmup   n / max(1, w) while n < w, then 1
//   linear                 the same warm-up, then max(0, (T - n) / max(1, T - w))
//   cosine                 the same warm-up, then max(0, (1 + cos(pi p)) / 2), p = (n - w) / max(1,
//   T - w) cosine_with_min_lr     the same with the cosine part squeezed into [min_lr_rate, 1]
//   inverse_sqrt           the same warm-up, then 1 / sqrt((n + s) / k), k = w or 10,000 when w =
//   0,
//                          s = k - w
//
// So the first step of a warm-up has learning rate 0, and the cosines rise again beyond T.
#pragma once

#include <cstdint>
#include <string_view>

namespace garam {

enum class ScheduleType : std::uint8_t {
    constant,
    constant_with_warmup,
    linear,
    cosine,
    cosine_with_min_lr,
    inverse_sqrt,
};

std::string_view name_of(ScheduleType type);
// Throws Error that lists the names known, prefixed with the key (train.lr_scheduler_type).
ScheduleType schedule_type_from_name(std::string_view name);

struct ScheduleOptions {
    ScheduleType type = ScheduleType::linear;
    double learning_rate = 5e-5;  // base
    std::int64_t warmup_steps = 0;
    std::int64_t total_steps = 0;  // of the whole run, resumed parts included
    double min_lr_rate = 0;        // cosine_with_min_lr only
};

// The learning rate that the optimiser step after `steps_done` steps uses.
double learning_rate(const ScheduleOptions& options, std::int64_t steps_done);

// Warm-up of a run of `total_steps`: `warmup_steps` when positive, else ceil(total_steps *
// warmup_ratio) in double precision, as Transformers counts. Throws Error when one is negative or
// the ratio is above 1.
std::int64_t resolve_warmup_steps(std::int64_t warmup_steps, double warmup_ratio,
                                  std::int64_t total_steps);

}  // namespace garam
