#include "garam/app/config_dialects.h"

#include <algorithm>

#include "garam/core/error.h"

namespace garam {
namespace {

constexpr CarryRule kShared[] = {
    {"output_dir", Carry::copy, "train.output_dir"},
    {"overwrite_output_dir", Carry::copy, "train.overwrite_output_dir"},
    {"seed", Carry::copy, "train.seed"},
    {"bf16", Carry::copy, "train.bf16"},
    {"fp16", Carry::fp16, ""},
    {"tf32", Carry::copy, "train.tf32"},
    {"dtype", Carry::dtype, "train.bf16"},
    {"torch_dtype", Carry::dtype, "train.bf16"},
    {"max_steps", Carry::copy, "train.max_steps"},
    {"num_train_epochs", Carry::copy, "train.num_train_epochs"},
    {"per_device_train_batch_size", Carry::copy, "train.per_device_train_batch_size"},
    {"per_device_eval_batch_size", Carry::copy, "train.per_device_eval_batch_size"},
    {"gradient_accumulation_steps", Carry::copy, "train.gradient_accumulation_steps"},
    {"gradient_checkpointing", Carry::checkpointing, "train.gradient_checkpointing"},
    {"learning_rate", Carry::copy, "train.learning_rate"},
    {"weight_decay", Carry::copy, "train.weight_decay"},
    {"adam_beta1", Carry::copy, "train.adam_beta1"},
    {"adam_beta2", Carry::copy, "train.adam_beta2"},
    {"adam_epsilon", Carry::copy, "train.adam_epsilon"},
    {"max_grad_norm", Carry::copy, "train.max_grad_norm"},
    {"optim", Carry::optimizer, "train.optim"},
    {"lr_scheduler_type", Carry::schedule, "train.lr_scheduler_type"},
    {"warmup_steps", Carry::warmup, "train.warmup_steps"},
    {"warmup_ratio", Carry::copy, "train.warmup_ratio"},
    {"label_smoothing_factor", Carry::copy, "train.label_smoothing_factor"},
    {"neftune_noise_alpha", Carry::copy, "train.neftune_noise_alpha"},
    {"group_by_length", Carry::copy, "train.group_by_length"},
    {"auto_find_batch_size", Carry::copy, "train.auto_find_batch_size"},
    {"torch_compile", Carry::copy, "train.torch_compile"},
    {"dataloader_num_workers", Carry::copy, "train.dataloader_num_workers"},
    {"dataloader_pin_memory", Carry::copy, "train.dataloader_pin_memory"},
    {"packing", Carry::copy, "train.packing"},
    {"logging_steps", Carry::copy, "train.logging_steps"},
    {"eval_on_start", Carry::copy, "train.eval_on_start"},
    {"eval_steps", Carry::copy, "train.eval_steps"},
    {"eval_strategy", Carry::eval_strategy, ""},
    {"evaluation_strategy", Carry::eval_strategy, ""},
    {"save_steps", Carry::copy, "train.save_steps"},
    {"save_strategy", Carry::save_strategy, "train.save_steps"},
    {"save_total_limit", Carry::copy, "train.save_total_limit"},
    {"load_best_model_at_end", Carry::copy, "train.load_best_model_at_end"},
    {"metric_for_best_model", Carry::copy, "train.metric_for_best_model"},
    {"greater_is_better", Carry::copy, "train.greater_is_better"},
    {"resume_from_checkpoint", Carry::copy, "train.resume_from_checkpoint"},
    {"report_to", Carry::report, "train.report_to"},
    {"use_rslora", Carry::copy, "lora.use_rslora"},
    {"use_dora", Carry::copy, "lora.use_dora"},
    {"lora_alpha", Carry::copy, "lora.lora_alpha"},
    {"lora_dropout", Carry::copy, "lora.lora_dropout"},
    {"loraplus_lr_ratio", Carry::copy, "lora.loraplus_lr_ratio"},
    // PEFT's own, under the names of its LoraConfig; rank_pattern and alpha_pattern are maps.
    {"bias", Carry::copy, "lora.bias"},
    {"modules_to_save", Carry::copy, "lora.modules_to_save"},
    {"trainable_token_indices", Carry::copy, "lora.trainable_token_indices"},
    {"exclude_modules", Carry::copy, "lora.exclude_modules"},
    {"layers_to_transform", Carry::copy, "lora.layers_to_transform"},
    {"layers_pattern", Carry::copy, "lora.layers_pattern"},
    {"init_lora_weights", Carry::copy, "lora.init_lora_weights"},
    {"dataset_text_field", Carry::copy, "data.text_column"},
    // BitsAndBytesConfig's own.
    {"load_in_4bit", Carry::copy, "load_in_4bit"},
    {"bnb_4bit_quant_type", Carry::copy, "bnb_4bit_quant_type"},
    {"bnb_4bit_use_double_quant", Carry::copy, "bnb_4bit_use_double_quant"},
    {"bnb_4bit_compute_dtype", Carry::copy, "bnb_4bit_compute_dtype"},
    {"llm_int8_skip_modules", Carry::copy, "llm_int8_skip_modules"},
    {"loftq_config.loftq_bits", Carry::copy, "lora.loftq_config.loftq_bits"},
    {"loftq_config.loftq_iter", Carry::copy, "lora.loftq_config.loftq_iter"},
    {"loftq_bits", Carry::copy, "lora.loftq_config.loftq_bits"},
    {"loftq_iter", Carry::copy, "lora.loftq_config.loftq_iter"},
};

// TRL's scripts: SFTConfig, ScriptArguments and ModelConfig in one file.
constexpr const char* kTrlSigns[] = {"model_name_or_path",
                                     "dataset_name",
                                     "use_peft",
                                     "lora_r",
                                     "lora_target_modules",
                                     "max_length",
                                     "max_seq_length",
                                     "dataset_train_split",
                                     "dataset_text_field",
                                     "attn_implementation",
                                     "torch_dtype",
                                     "assistant_only_loss",
                                     "per_device_train_batch_size",
                                     "eos_token"};
constexpr CarryRule kTrl[] = {
    {"model_name_or_path", Carry::copy, "model"},
    {"use_peft", Carry::peft, "train.method"},
    {"use_bnb_nested_quant", Carry::copy, "bnb_4bit_use_double_quant"},
    {"lora_r", Carry::copy, "lora.r"},
    {"lora_target_modules", Carry::targets, "lora.target_modules"},
    {"lora_modules_to_save", Carry::copy, "lora.modules_to_save"},
    {"max_length", Carry::copy, "train.max_length"},
    {"max_seq_length", Carry::copy, "train.max_length"},
    {"truncation_mode", Carry::copy, "train.truncation_mode"},
    {"assistant_only_loss", Carry::copy, "train.assistant_only_loss"},
    {"completion_only_loss", Carry::copy, "train.completion_only_loss"},
    {"shuffle_dataset", Carry::copy, "data.shuffle"},
};
constexpr DialectTable::Default kTrlDefaults[] = {
    {"train.method", "full", false},  // use_peft is false
    {"train.assistant_only_loss", "false", false},
    {"train.gradient_checkpointing", "true", false},
    {"lora.r", "16", true},
    {"lora.lora_alpha", "32", true},
    {"lora.lora_dropout", "0.05", true},
};

constexpr const char* kAxolotlSigns[] = {
    "base_model", "sequence_len",          "micro_batch_size",   "sample_packing",
    "num_epochs", "datasets.0.path",       "lora_target_linear", "val_set_size",
    "optimizer",  "dataset_prepared_path", "lr_scheduler",       "flash_attention"};
constexpr CarryRule kAxolotl[] = {
    {"base_model", Carry::copy, "model"},
    {"adapter", Carry::adapter_kind, "train.method"},
    {"lora_model_dir", Carry::copy, "adapter"},
    {"bnb_config_kwargs.bnb_4bit_quant_type", Carry::copy, "bnb_4bit_quant_type"},
    {"bnb_config_kwargs.bnb_4bit_use_double_quant", Carry::copy, "bnb_4bit_use_double_quant"},
    {"bnb_config_kwargs.bnb_4bit_compute_dtype", Carry::copy, "bnb_4bit_compute_dtype"},
    {"bnb_config_kwargs.llm_int8_skip_modules", Carry::copy, "llm_int8_skip_modules"},
    {"lora_r", Carry::copy, "lora.r"},
    {"lora_target_modules", Carry::targets, "lora.target_modules"},
    {"lora_modules_to_save", Carry::copy, "lora.modules_to_save"},
    {"lora_target_linear", Carry::all_linear, "lora.target_modules"},
    {"peft_use_rslora", Carry::copy, "lora.use_rslora"},
    {"peft_use_dora", Carry::copy, "lora.use_dora"},
    {"peft_layers_to_transform", Carry::copy, "lora.layers_to_transform"},
    {"peft_layers_pattern", Carry::copy, "lora.layers_pattern"},
    {"peft_init_lora_weights", Carry::copy, "lora.init_lora_weights"},
    {"micro_batch_size", Carry::copy, "train.per_device_train_batch_size"},
    {"eval_batch_size", Carry::copy, "train.per_device_eval_batch_size"},
    {"num_epochs", Carry::copy, "train.num_train_epochs"},
    {"sequence_len", Carry::copy, "train.max_length"},
    {"sample_packing", Carry::copy, "train.packing"},
    {"train_on_inputs", Carry::all_targets, "train.assistant_only_loss"},
    {"optimizer", Carry::optimizer, "train.optim"},
    {"lr_scheduler", Carry::schedule, "train.lr_scheduler_type"},
    {"cosine_min_lr_ratio", Carry::min_lr_ratio, "train.lr_scheduler_kwargs.min_lr_rate"},
    {"early_stopping_patience", Carry::copy, "train.early_stopping_patience"},
    {"noisy_embedding_alpha", Carry::copy, "train.neftune_noise_alpha"},
    {"tokens", Carry::copy, "data.add_special_tokens"},
    {"special_tokens.additional_special_tokens", Carry::copy, "data.add_special_tokens"},
    {"use_tensorboard", Carry::report, "train.report_to"},
};
constexpr DialectTable::Default kAxolotlDefaults[] = {
    {"train.method", "full", false},  // no adapter
    {"train.lr_scheduler_type", "cosine", false},
    {"train.num_train_epochs", "1", false},
    {"lora.lora_dropout", "0", true},
};

constexpr const char* kLlamaFactorySigns[] = {
    "stage",       "finetuning_type", "cutoff_len",       "lora_rank",
    "lora_target", "template",        "dataset_dir",      "preprocessing_num_workers",
    "val_size",    "overwrite_cache", "quantization_bit", "model_name_or_path",
    "dataset"};
constexpr CarryRule kLlamaFactory[] = {
    {"model_name_or_path", Carry::copy, "model"},
    {"adapter_name_or_path", Carry::copy, "adapter"},
    {"stage", Carry::stage, ""},
    {"quantization_bit", Carry::quantization_bit, "load_in_4bit"},
    {"quantization_method", Carry::quantization_method, ""},
    {"quantization_type", Carry::copy, "bnb_4bit_quant_type"},
    {"double_quantization", Carry::copy, "bnb_4bit_use_double_quant"},
    {"finetuning_type", Carry::finetuning_type, "train.method"},
    {"lora_rank", Carry::copy, "lora.r"},
    {"lora_target", Carry::targets, "lora.target_modules"},
    {"additional_target", Carry::targets, "lora.modules_to_save"},
    {"add_special_tokens", Carry::targets, "data.add_special_tokens"},
    {"add_tokens", Carry::targets, "data.add_special_tokens"},
    {"new_special_tokens", Carry::targets, "data.add_special_tokens"},
    {"cutoff_len", Carry::copy, "train.max_length"},
    {"neat_packing", Carry::copy, "train.packing"},
    {"pure_bf16", Carry::copy, "train.bf16"},
    {"train_on_prompt", Carry::all_targets, "train.assistant_only_loss"},
};
constexpr DialectTable::Default kLlamaFactoryDefaults[] = {
    {"train.method", "lora", false},
    {"train.max_length", "2048", false},
    {"train.learning_rate", "5.0e-05", false},
    {"train.gradient_checkpointing", "true", false},
    {"lora.r", "8", true},
    {"lora.target_modules", "all-linear", true},
    {"lora.lora_dropout", "0", true},
};

// Keys as in its notebooks and its command-line script, flat or in sections.
constexpr const char* kUnslothSigns[] = {"model_name",   "r",
                                         "random_state", "use_gradient_checkpointing",
                                         "load_in_4bit", "target_modules",
                                         "save_method",  "max_seq_length",
                                         "loftq_config"};
constexpr CarryRule kUnsloth[] = {
    {"model_name", Carry::copy, "model"},
    {"r", Carry::copy, "lora.r"},
    {"target_modules", Carry::targets, "lora.target_modules"},
    {"max_seq_length", Carry::copy, "train.max_length"},
    {"max_length", Carry::copy, "train.max_length"},
    {"use_gradient_checkpointing", Carry::checkpointing, "train.gradient_checkpointing"},
    {"random_state", Carry::copy_first, "train.seed"},
    {"assistant_only_loss", Carry::copy, "train.assistant_only_loss"},
    {"completion_only_loss", Carry::copy, "train.completion_only_loss"},
};
constexpr DialectTable::Default kUnslothDefaults[] = {
    {"train.method", "lora", false},     {"load_in_4bit", "true", true},
    {"train.max_length", "2048", false}, {"lora.r", "16", true},
    {"lora.lora_alpha", "16", true},     {"lora.target_modules", "all-linear", true},
    {"lora.lora_dropout", "0", true},
};

constexpr DialectTable kTables[] = {
    {Dialect::trl, kTrlSigns, kTrl, kTrlDefaults, false, false, false},
    {Dialect::axolotl, kAxolotlSigns, kAxolotl, kAxolotlDefaults, false, false, true},
    {Dialect::llama_factory, kLlamaFactorySigns, kLlamaFactory, kLlamaFactoryDefaults, true, false,
     true},
    {Dialect::unsloth, kUnslothSigns, kUnsloth, kUnslothDefaults, false, true, true},
};

struct Reason {
    const char* name;
    const char* reason;
};
constexpr const char* kOwnTemplate =
    "the chat template of the model's own files is used; another one: data.chat_template";
constexpr const char* kSplit = "data.validation_fraction holds out a part of the rows";
constexpr const char* kAnew =
    "rows are made anew when anything that they come from has changed (data.cache)";
constexpr const char* kNoTrackers = "trackers are not connected: train.report_to=tensorboard";
constexpr const char* kNoTokens = "the tokenizer of the model's own files is used";
constexpr const char* kOneAdapter =
    "the adapter stands beside its base: garam merge folds it in afterwards";
constexpr Reason kReasons[] = {
    {"template", kOwnTemplate},
    {"special_tokens",
     "the roles are those of the model's own files; further tokens: data.add_special_tokens"},
    {"tokenizer_type", kNoTokens},
    {"model_type", "the model's files say what it is"},
    {"auto_resume_from_checkpoints",
     "to go on with a run, say so: train.resume_from_checkpoint=true"},
    {"flash_attention", "attention always uses linear memory"},
    {"flash_attn", "attention always uses linear memory"},
    {"sdp_attention", "attention always uses linear memory"},
    {"test_size", kSplit},
    {"overwrite_cache", kAnew},
    {"preprocessing_num_workers", "all processors tokenise: threads"},
    {"pad_to_sequence_len", "padding is never computed"},
    {"evals_per_epoch", "evaluations are counted in steps: train.eval_steps"},
    {"saves_per_epoch", "checkpoints are counted in steps: train.save_steps"},
    {"save_model", kOneAdapter},
    {"save_method", kOneAdapter},
    {"save_path", kOneAdapter},
    {"wandb_entity", kNoTrackers},
    {"wandb_name", kNoTrackers},
    {"wandb_run_id", kNoTrackers},
    {"wandb_watch", kNoTrackers},
    {"wandb_log_model", kNoTrackers},
    {"use_wandb", kNoTrackers},
};

bool has(const std::vector<ConfigLine>& lines, const std::string& sign, bool sections) {
    return std::any_of(lines.begin(), lines.end(), [&](const ConfigLine& line) {
        return line.key == sign || (sections && line.key.ends_with("." + sign));
    });
}

}  // namespace

const char* name_of(Dialect dialect) {
    switch (dialect) {
        case Dialect::trl:
            return "TRL";
        case Dialect::axolotl:
            return "axolotl";
        case Dialect::llama_factory:
            return "LLaMA-Factory";
        case Dialect::unsloth:
            return "Unsloth";
    }
    return "?";
}

const DialectTable& table_of(Dialect dialect) {
    return kTables[static_cast<std::size_t>(dialect)];
}

std::span<const CarryRule> shared_rules() {
    return kShared;
}

const char* reason_against(const std::string& key) {
    const std::string last = key.substr(key.rfind('.') + 1);
    // What is said of the first file of a list is no matter of there being several.
    const bool is_first = key.find(".0.") != std::string::npos;
    const std::string first = is_first ? last : key.substr(0, key.find('.'));
    for (const std::string& part : {last, first})
        for (const Reason& reason : kReasons)
            if (part == reason.name) return reason.reason;
    return nullptr;
}

Dialect recognise(const std::vector<ConfigLine>& lines, const std::string& file) {
    const bool ours = std::any_of(lines.begin(), lines.end(), [](const ConfigLine& line) {
        return line.key.starts_with("train.") || line.key == "data.train";
    });
    const DialectTable* best = nullptr;
    std::ptrdiff_t most = 0;
    for (const DialectTable& table : kTables) {
        const auto signs =
            std::count_if(table.signs.begin(), table.signs.end(),
                          [&](const char* sign) { return has(lines, sign, table.sections); });
        if (signs > most) {
            most = signs;
            best = &table;
        }
    }
    if (ours && most < 3) throw Error(file + ": is a config of garam already");
    if (best == nullptr)
        throw Error(file +
                    ": holds no key by which TRL, axolotl, LLaMA-Factory or Unsloth is known");
    return best->dialect;
}

}  // namespace garam
