#include "garam/train/train_config.h"

#include "garam/optim/optimizer.h"

namespace garam {

namespace {

constexpr double kMaxBatch = 1 << 20;    // samples; keeps products of counts within 63 bits
constexpr double kMaxLength = 1 << 24;   // tokens
constexpr double kMaxSteps = 1LL << 40;  // optimiser steps

void describe_run(TrainConfig& c, ConfigTable& table) {
    table.add_choice(
        "train.method", c.method, {"lora", "full"},
        "What is trained: LoRA adapters on a frozen base, or all weights of the model. "
        "Transformers chooses this in code, so it has no key for it.");
    table.add("train.output_dir", &c.output_dir,
              "Run folder: resolved config, metrics, events, checkpoints, the adapter or model. "
              "Relative paths are taken from the current directory.");
    table.add("train.overwrite_output_dir", &c.overwrite_output_dir,
              "Replace the results of an earlier run in output_dir; without it they are an error.");
    table.add("train.seed", &c.seed,
              "Seed of adapter initialisation, dropout and the order of the data.", at_least(0));
    table
        .add("train.bf16", &c.bf16,
             "Compute in bfloat16 (adapters, sums and optimiser stay in fp32). auto: where the "
             "processor is fast at it, because elsewhere bf16 is slower than fp32; TRL has true.")
        .call_null("auto");
    table.add("train.nvtx_ranges", &c.nvtx_ranges,
              "Name phases, layers and ops to NVIDIA's profilers (NVTX). Micro-steps are then not "
              "recorded, so that each op stands in its range.");
    table.add("train.tf32", &c.tf32,
              "On a card, take fp32 products in tf32: faster, three decimal digits. Transformers "
              "leaves it to PyTorch, which has false.");
    table.add(
        "train.tuned_products", &c.tuned_products,
        "On a card, multiply as this file of garam tune says; empty: as cuBLASLt's heuristic "
        "does. The file is for one kind of card. Checkpoints hold a copy, with which a resumed "
        "run goes on; the processor takes no notice of it.");
    table.add("train.max_length", &c.max_length,
              "Longest sample in tokens; longer ones are cut. With packing, the length of a pack. "
              "null (no cut) is not offered: the largest step must be known before the first.",
              between(2, kMaxLength));
    table.add_choice("train.truncation_mode", c.truncation_mode, {"keep_start", "keep_end"},
                     "Which end of a sample longer than max_length is kept.");
    table.add(
        "train.packing", &c.packing,
        "Fill each row of a batch with several samples, best fit. Samples never attend to each "
        "other, so that the result is that of the same batch unpacked.");
    table.add(
        "train.assistant_only_loss", &c.assistant_only_loss,
        "Rows of messages: train on the assistant's turns only. TRL has false, which trains on "
        "the questions too; it needs marks in the chat template for true, garam does not.");
    table.add("train.completion_only_loss", &c.completion_only_loss,
              "Rows of prompt and completion: train on the completion only. null: true.");
}

void describe_steps(TrainConfig& c, ConfigTable& table) {
    table.add("train.max_steps", &c.max_steps,
              "Optimiser steps to train; -1: num_train_epochs decides.", between(-1, kMaxSteps));
    table.add("train.num_train_epochs", &c.num_train_epochs,
              "Passes over the training data; may be a fraction.", between(0, 1e6));
    table.add("train.per_device_train_batch_size", &c.per_device_train_batch_size,
              "Samples of one forward and backward pass.", between(1, kMaxBatch));
    table.add(
        "train.per_device_eval_batch_size", &c.per_device_eval_batch_size,
        "Samples of one pass of evaluation. eval_loss is the mean over target tokens and does "
        "not depend on it (Transformers' mean of batch means does).",
        between(1, kMaxBatch));
    table.add("train.gradient_accumulation_steps", &c.gradient_accumulation_steps,
              "Passes of one optimiser step. The loss is normalised by the target tokens of all of "
              "them: any split gives the same step.",
              between(1, kMaxBatch));
    table.add(
        "train.gradient_checkpointing", &c.gradient_checkpointing,
        "What the backward computes again instead of keeping it, for the same bits in less "
        "memory: false (none), norms+activation (nearly free), gate_up, true (block: all but "
        "the inputs of blocks, a third more time), offload (on a card: as true, and these "
        "inputs wait in pinned host memory), or auto: the least that fits. With +tiles at its "
        "end (block+tiles, offload+tiles; the last resort of auto) MLPs and projections run "
        "over some hundred tokens at a time, for the longest samples; gradients are then "
        "summed in another order. false as in Transformers; TRL has true.");
    table.add_choice(
        "train.merge_micro_batches", c.merge_micro_batches, {"auto", "false"},
        "On a card, run several of the passes that a step accumulates as one when memory "
        "allows: auto or false. The loss is normalised by targets, so the step is the same "
        "but for rounding; the cut is kept on resume.");
    table.add(
        "train.auto_find_batch_size", &c.auto_find_batch_size,
        "Where the plan does not fit the memory, halve per_device_train_batch_size and double "
        "gradient_accumulation_steps until it does: the samples of a step stay the same. "
        "Decided before the first step; Transformers tries and starts again, with a smaller "
        "step.");
    table.add("train.group_by_length", &c.group_by_length,
              "Put samples of similar length into one batch: the shuffled rows are sorted within "
              "runs of 50 steps. There is no padding to save here, only that passes are more "
              "alike. Not with packing, whose rows are full.");
    table.add("train.dataloader_num_workers", &c.dataloader_num_workers,
              "Threads that make batches ahead, two steps each; 0 or 1: one thread, one step. The "
              "batches are the same for any number.",
              between(0, 4096));
    table.add("train.dataloader_pin_memory", &c.dataloader_pin_memory,
              "Changes nothing: batches always go to a card through pinned memory.");
    table.add("train.torch_compile", &c.torch_compile,
              "Changes nothing: there is nothing to compile at run time.");
}

void describe_optimizer(TrainConfig& c, ConfigTable& table) {
    table.add(
        "train.learning_rate", &c.learning_rate,
        "Peak learning rate. LoRA usually wants 1e-4 to 2e-4, ten times what full fine-tuning "
        "wants.",
        between(0, 1e3));
    table.add("train.weight_decay", &c.weight_decay,
              "Decoupled weight decay, on every adapter tensor, or on all matrices in full "
              "fine-tuning.",
              between(0, 1e3));
    table.add("train.adam_beta1", &c.adam_beta1, "AdamW's beta1.", from_to_below(0, 1));
    table.add("train.adam_beta2", &c.adam_beta2, "AdamW's beta2.", from_to_below(0, 1));
    // Of 0 the first step would make NaN: B is zero, so A's gradient is, and 0 / (sqrt(0) + 0).
    table.add("train.adam_epsilon", &c.adam_epsilon, "AdamW's epsilon.",
              Range{.low = 0, .high = 1, .low_open = true});
    table.add("train.max_grad_norm", &c.max_grad_norm,
              "Gradients are scaled down to this norm when theirs is larger; 0: never.",
              at_least(0));
    table
        .add_choice(
            "train.optim", c.optim, optimizer_names(),
            "The optimiser; states in fp32, or 8bit: a quarter of that (tensors of less than 4096 "
            "elements excepted). paged: on a card the states wait in pinned host memory; the "
            "bits are the same, and a checkpoint of one resumes as the other. adamw_torch_fused is "
            "adamw_torch here, adamw_bnb_8bit adamw_8bit, paged_adamw paged_adamw_32bit, as "
            "Transformers names them.")
        .refused = {{"adafactor", "use adamw_8bit"},
                    {"adamw_hf", "use adamw_torch"},
                    {"lion_8bit", "use adamw_8bit"}};
    table.add_choice(
        "train.lr_scheduler_type", c.lr_scheduler_type,
        {"linear", "cosine", "cosine_with_min_lr", "cosine_with_restarts", "polynomial", "constant",
         "constant_with_warmup", "inverse_sqrt", "warmup_stable_decay"},
        "How the learning rate goes on after the warm-up; constant has none. Some have "
        "options, or need them: train.lr_scheduler_kwargs.");
    table.add("train.warmup_steps", &c.warmup_steps,
              "Steps over which the learning rate rises from 0. A fraction of all steps goes into "
              "warmup_ratio (Transformers 5 takes it here too).",
              between(0, kMaxSteps));
    table.add("train.warmup_ratio", &c.warmup_ratio,
              "The same as a part of all steps, rounded up to a whole step.", between(0, 1));
    table.add("train.label_smoothing_factor", &c.label_smoothing_factor,
              "This part of the target distribution is spread over the whole vocabulary, in "
              "training and, as in Transformers, in eval_loss; `garam eval` measures without.",
              from_to_below(0, 1));
    table.add(
        "train.neftune_noise_alpha", &c.neftune_noise_alpha,
        "NEFTune: uniform noise of +-alpha / sqrt(L d) on the embeddings in training, 5 to 15 "
        "in its paper. L is each sample's own length (Transformers takes the padded one), so "
        "that noise does not depend on the cut; null: none.",
        at_least(0));
}

// Last: a section within the section.
void describe_schedule(ScheduleKwargs& c, ConfigTable& table) {
    const std::string prefix = "train.lr_scheduler_kwargs.";
    table.add(prefix + "num_cycles", &c.num_cycles,
              "cosine, cosine_with_min_lr: waves (null: 0.5, from the peak to the end); "
              "cosine_with_restarts: falls (null: 1); warmup_stable_decay: waves of its decay.",
              above(0));
    table.add(prefix + "min_lr", &c.min_lr,
              "cosine_with_min_lr: the learning rate at the end; this or min_lr_rate.",
              between(0, 1e3));
    table.add(prefix + "min_lr_rate", &c.min_lr_rate,
              "cosine_with_min_lr: the same as a part of train.learning_rate.", between(0, 1));
    table.add(prefix + "lr_end", &c.lr_end,
              "polynomial: the learning rate at the end (null: 1e-7).", between(0, 1e3));
    table.add(prefix + "power", &c.power, "polynomial: its exponent (null: 1).", above(0));
    table.add(prefix + "timescale", &c.timescale,
              "inverse_sqrt: steps in which the rate falls to 0.7 of itself (null: the warm-up, "
              "10000 without one).",
              between(1, kMaxSteps));
    table.add(prefix + "num_decay_steps", &c.num_decay_steps,
              "warmup_stable_decay: steps of its decay, at the end of the run. Needed.",
              between(0, kMaxSteps));
    table.add(prefix + "num_stable_steps", &c.num_stable_steps,
              "warmup_stable_decay: steps at the peak (null: all that are left).",
              between(0, kMaxSteps));
    table.add(prefix + "min_lr_ratio", &c.min_lr_ratio,
              "warmup_stable_decay: where it begins and ends, as a part of train.learning_rate "
              "(null: 0).",
              between(0, 1));
    table.add_choice(prefix + "warmup_type", c.warmup_type, {"linear", "cosine", "1-sqrt"},
                     "warmup_stable_decay: the form of its warm-up.");
    table.add_choice(prefix + "decay_type", c.decay_type, {"linear", "cosine", "1-sqrt"},
                     "warmup_stable_decay: the form of its decay.");
}

void describe_events(TrainConfig& c, ConfigTable& table) {
    table.add("train.logging_steps", &c.logging_steps, "Steps between lines of metrics.",
              between(1, kMaxSteps));
    table.add("train.eval_steps", &c.eval_steps,
              "Steps between evaluations on data.validation, which also come at the end; 0: only "
              "there. null: as save_steps (Transformers takes logging_steps, and evaluates at all "
              "only with eval_strategy).",
              between(0, kMaxSteps));
    table.add("train.eval_on_start", &c.eval_on_start,
              "Evaluate before the first step too; it does not count for the best model.");
    table.add("train.save_steps", &c.save_steps,
              "Steps between checkpoints; 0: only what stands at the end.", between(0, kMaxSteps));
    table.add("train.save_total_limit", &c.save_total_limit,
              "Newest checkpoints that are kept, the best one beside them; null: all.",
              between(1, kMaxSteps));
    table.add("train.load_best_model_at_end", &c.load_best_model_at_end,
              "The result is the state of the best metric_for_best_model, not the last one.");
    table.add("train.metric_for_best_model", &c.metric_for_best_model,
              "What the best model is best in: loss, or a number of eval.metrics such as f1, "
              "eval_accuracy or recall_spam; eval_ may stand before it.");
    table
        .add(
            "train.greater_is_better", &c.greater_is_better,
            "Whether the best is the highest. auto: for all but loss (as in Transformers), ece and "
            "unparsable.")
        .call_null("auto");
    table.add(
        "train.early_stopping_patience", &c.early_stopping_patience,
        "Stop after this many evaluations in a row without a better metric_for_best_model; null: "
        "never. The argument of Transformers' EarlyStoppingCallback.",
        between(1, kMaxSteps));
    table.add("train.resume_from_checkpoint", &c.resume_from_checkpoint,
              "false: start anew; true: go on from the newest checkpoint in output_dir; or the "
              "folder of a checkpoint.");
    table
        .add_choice("train.report_to", c.report_to, {"none", "tensorboard"},
                    "tensorboard: write event files beside metrics.jsonl, which is always written. "
                    "Transformers has none, since its trackers cost an import or a log-in; a file "
                    "costs nothing.")
        .refused = {{"wandb", "use tensorboard, or read metrics.jsonl"},
                    {"mlflow", "use tensorboard, or read metrics.jsonl"},
                    {"trackio", "use tensorboard, or read metrics.jsonl"},
                    {"all", "use tensorboard"}};
}

}  // namespace

std::int64_t TrainConfig::resolved_warmup_steps(std::int64_t total_steps) const {
    return resolve_warmup_steps(warmup_steps, warmup_ratio, total_steps);
}

ScheduleOptions TrainConfig::schedule(std::int64_t total_steps) const {
    return {.type = schedule_type_from_name(lr_scheduler_type),
            .learning_rate = learning_rate,
            .warmup_steps = resolved_warmup_steps(total_steps),
            .total_steps = total_steps,
            .kwargs = lr_scheduler_kwargs};
}

void describe(TrainConfig& config, ConfigTable& table) {
    describe_run(config, table);
    describe_steps(config, table);
    describe_optimizer(config, table);
    describe_events(config, table);
    describe_schedule(config.lr_scheduler_kwargs, table);
}

}  // namespace garam
