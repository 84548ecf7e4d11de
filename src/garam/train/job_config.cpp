#include "garam/train/job_config.h"

#include <algorithm>
#include <cctype>

#include "garam/core/error.h"
#include "garam/train/foreign_keys.h"

namespace garam {

namespace {

void describe(DataConfig& c, ConfigTable& table) {
    table.add(
        "data.train", &c.train,
        "JSON Lines file to train on: rows of messages, of prompt and completion, of text, or "
        "of text and label with data.instruction.");
    table.add("data.validation", &c.validation,
              "The same to evaluate on; empty: no evaluation. Transformers' eval_dataset.");
    table.add("data.shuffle", &c.shuffle, "Another order in each epoch, drawn from train.seed.");
    table.add_choice("data.on_error", c.on_error, {"fail", "skip"},
                     "A row that cannot be read stops the run, or is counted and left out.");
    table.add("data.instruction", &c.instruction,
              "Rows of text and label: what is asked about the text; {text} stands for it, else it "
              "follows on a new line.");
    table.add("data.system", &c.system,
              "Rows of text and label: the system message; empty: what the chat template adds by "
              "itself.");
    table.add("data.text_column", &c.text_column, "The key of a row's text.");
    table.add("data.label_column", &c.label_column,
              "The key of a row's label; empty: labels are ignored.");
}

void describe_lora(JobConfig& c, ConfigTable& table) {
    table.add("lora.r", &c.lora.r, "Rank of the adapters.", between(1, 1 << 16));
    table.add("lora.lora_alpha", &c.lora.lora_alpha,
              "Scale of the adapters: lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora.",
              Range{.low = 0, .high = 1e6, .low_open = true});
    table.add("lora.lora_dropout", &c.lora.lora_dropout,
              "Dropout on the adapters' input, one mask for each module.", from_to_below(0, 1));
    table.add(
        "lora.target_modules", &c.lora.target_modules,
        "Linears that get an adapter: names, ends of names, or all-linear (all but the head). "
        "PEFT takes this default from the model type; these are its modules for Llama.");
    table.add("lora.use_rslora", &c.lora.use_rslora, "Rank-stabilised scale (see lora_alpha).");
    table.add_choice("lora.init_lora_weights", c.init_lora_weights, {"true"},
                     "PEFT's initialisation: A Kaiming uniform, B zero.");
    table.add(
        "lora.base_model_name_or_path", &c.lora.base_model_name_or_path,
        "What the adapter's config names as its base, for PEFT to load it on; empty: the model "
        "as given. Set it when the model is a GGUF file, which PEFT cannot load.");
}

bool is_module_name(const std::string& name) {
    return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
    });
}

void validate_lora(const LoraSettings& lora) {
    if (lora.target_modules.empty())
        throw Error(
            "lora.target_modules is empty: name the linears that get an adapter, or all-linear");
    for (const std::string& name : lora.target_modules) {
        if (!is_module_name(name))
            throw Error(
                "lora.target_modules: '" + name +
                "' is not a module's name; patterns are not supported, list names or ends of "
                "names such as [q_proj, v_proj], or all-linear");
        if (name == "all-linear" && lora.target_modules.size() > 1)
            throw Error("lora.target_modules: all-linear stands alone, remove the other names");
    }
}

void validate_schedule(const JobConfig& config) {
    const TrainConfig& train = config.train;
    if (train.max_steps == 0)
        throw Error("train.max_steps is 0: give at least 1, or -1 for train.num_train_epochs");
    if (train.max_steps < 0 && train.num_train_epochs <= 0)
        throw Error("nothing to train: give train.num_train_epochs above 0, or train.max_steps");
    if (train.warmup_steps > 0 && train.warmup_ratio > 0)
        throw Error("train.warmup_steps and train.warmup_ratio are both set: keep one");
    if (train.merge_micro_batches != "auto" && train.merge_micro_batches != "false")
        throw Error("train.merge_micro_batches: \"" + train.merge_micro_batches +
                    "\" is not supported; choose auto or false");
    check_schedule(train.schedule(0));
    if (train.group_by_length && train.packing)
        throw Error(
            "train.group_by_length and train.packing are both set: packed rows are of one length "
            "already, keep one");
    if (train.group_by_length && !config.data.shuffle)
        throw Error("train.group_by_length draws its own order: it needs data.shuffle=true");
    if (train.lr_scheduler_type == "constant" && (train.warmup_steps > 0 || train.warmup_ratio > 0))
        throw Error(
            "train.lr_scheduler_type=constant has no warm-up: use constant_with_warmup, or set "
            "train.warmup_steps and train.warmup_ratio to 0");
}

void validate_evaluation(const JobConfig& config) {
    const TrainConfig& train = config.train;
    const bool evaluates = !config.data.validation.empty();
    const auto needs_validation = [&](bool wanted, const char* key, const char* unset) {
        if (wanted && !evaluates)
            throw Error(std::string(key) + " needs data.validation: name a file, or set it to " +
                        unset);
    };
    needs_validation(train.eval_steps.has_value(), "train.eval_steps", "null");
    needs_validation(train.eval_on_start, "train.eval_on_start", "false");
    needs_validation(train.load_best_model_at_end, "train.load_best_model_at_end", "false");
    needs_validation(train.early_stopping_patience.has_value(), "train.early_stopping_patience",
                     "null");
    if (train.load_best_model_at_end) {
        // The best state must have been saved: each checkpoint stands where an evaluation was.
        const std::int64_t eval_steps = train.resolved_eval_steps();
        if (train.save_steps > 0 && (eval_steps == 0 || train.save_steps % eval_steps != 0))
            throw Error("train.load_best_model_at_end needs train.save_steps (" +
                        std::to_string(train.save_steps) +
                        ") to be a multiple of train.eval_steps (" + std::to_string(eval_steps) +
                        ")");
        if (train.save_steps == 0)
            throw Error(
                "train.load_best_model_at_end needs checkpoints: set train.save_steps above 0");
    }
    if (train.early_stopping_patience && train.resolved_eval_steps() == 0)
        throw Error(
            "train.early_stopping_patience needs evaluations on the way: set train.eval_steps");
}

}  // namespace

ConfigTable describe(JobConfig& config) {
    ConfigTable table;
    table.add("model", &config.model,
              "Base model: a Hugging Face model folder, a GGUF file, or org/name "
              "(org/name@revision) as it "
              "lies in the local Hugging Face cache (HF_HUB_CACHE, HF_HOME). Required. Relative "
              "paths are "
              "taken from the current directory.");
    table.add("adapter", &config.adapter,
              "Folder of a PEFT adapter to go on with, or org/name in the local cache; its own r, "
              "lora_alpha, use_rslora and "
              "target_modules then count.");
    table.add("device", &config.device,
              "Where to compute: auto (the first usable card, else the processor), cpu, cuda, or "
              "cuda:N for one of several cards.");
    table.add("threads", &config.threads,
              "Threads to compute with; 0: all processors that this process may use.",
              between(0, 4096));
    describe(config.data, table);
    describe_lora(config, table);
    describe(config.train, table);
    refuse_foreign_keys(table);
    return table;
}

void validate(const JobConfig& config) {
    if (config.model.empty())
        throw Error("model is not set: name a model folder or a GGUF file (model=PATH)");
    if (config.data.train.empty())
        throw Error("data.train is not set: name a JSON Lines file (data.train=PATH)");
    if (config.train.output_dir.empty())
        throw Error("train.output_dir is empty: name a folder for the run");
    if (config.train.resume_from_checkpoint.empty())
        throw Error("train.resume_from_checkpoint is empty: give false, true or a folder");
    if (config.train.method == "full" && !config.adapter.empty())
        throw Error(
            "adapter and train.method=full contradict each other: merge the adapter first (garam "
            "merge), or use train.method=lora");
    if (config.train.method == "lora") validate_lora(config.lora);
    validate_schedule(config);
    validate_evaluation(config);
}

}  // namespace garam
