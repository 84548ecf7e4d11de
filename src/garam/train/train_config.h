// The keys `train.*`: names and defaults of Transformers' TrainingArguments and TRL's SFTConfig.
// Where a default differs from theirs, the key's meaning in describe() says so and why.
//
// An optimiser step sees per_device_train_batch_size x gradient_accumulation_steps samples. Steps
// are counted in optimiser steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "garam/core/config_table.h"
#include "garam/optim/schedule.h"

namespace garam {

struct TrainConfig {
    std::string method = "lora";  // lora, full
    std::string output_dir = "trainer_output";
    bool overwrite_output_dir = false;
    std::int64_t seed = 42;
    std::optional<bool> bf16;  // unset: where the processor is fast at it

    bool nvtx_ranges = false;    // name phases, layers and ops to NVIDIA's profilers
    bool tf32 = false;           // fp32 products of a card on its tensor cores
    std::string tuned_products;  // file of `garam tune`; empty: as the library's heuristic has it

    std::int64_t max_length = 1024;              // tokens
    std::string truncation_mode = "keep_start";  // keep_start, keep_end
    bool packing = false;
    bool assistant_only_loss = true;
    std::optional<bool> completion_only_loss;  // unset: true for prompt/completion rows

    std::int64_t max_steps = -1;  // -1: num_train_epochs decides
    double num_train_epochs = 3.0;
    std::int64_t per_device_train_batch_size = 8;
    std::int64_t per_device_eval_batch_size = 8;
    std::int64_t gradient_accumulation_steps = 1;
    // false (none), norms+activation, gate_up, true (block), offload, auto
    std::string gradient_checkpointing = "false";
    std::string merge_micro_batches = "auto";  // auto, false
    bool auto_find_batch_size = false;
    bool group_by_length = false;
    // Of other tools: accepted, and told to change nothing.
    bool torch_compile = false;
    std::int64_t dataloader_num_workers = 0;
    bool dataloader_pin_memory = true;

    double learning_rate = 2e-5;
    double weight_decay = 0.0;
    double adam_beta1 = 0.9;
    double adam_beta2 = 0.999;
    double adam_epsilon = 1e-8;
    double max_grad_norm = 1.0;                // 0: no clipping
    std::string optim = "adamw_torch";         // a name of optim/optimizer.h
    std::string lr_scheduler_type = "linear";  // a name of optim/schedule.h
    ScheduleKwargs lr_scheduler_kwargs;
    std::int64_t warmup_steps = 0;
    double warmup_ratio = 0.0;

    double label_smoothing_factor = 0.0;
    std::optional<double> neftune_noise_alpha;

    std::int64_t logging_steps = 10;
    bool eval_on_start = false;
    std::optional<std::int64_t> eval_steps;  // unset: save_steps; 0: at the end only
    std::int64_t save_steps = 500;           // 0: at the end only
    std::optional<std::int64_t> save_total_limit;
    bool load_best_model_at_end = false;
    std::string metric_for_best_model = "loss";  // eval_ before it may be left away
    std::optional<bool> greater_is_better;       // unset: greater_is_better() of the metric
    std::optional<std::int64_t> early_stopping_patience;
    std::string resume_from_checkpoint = "false";  // false, true (the newest), or a folder
    std::string report_to = "tensorboard";         // none, tensorboard

    // Warm-up of a run of `total_steps`: warmup_steps, else warmup_ratio of all, rounded up.
    std::int64_t resolved_warmup_steps(std::int64_t total_steps) const;
    // Of a run of `total_steps` (0: not known yet).
    ScheduleOptions schedule(std::int64_t total_steps) const;
    // Steps between evaluations; 0: at the end only.
    std::int64_t resolved_eval_steps() const { return eval_steps.value_or(save_steps); }
};

// Adds the keys `train.*`; `config` must outlive the table.
void describe(TrainConfig& config, ConfigTable& table);

}  // namespace garam
