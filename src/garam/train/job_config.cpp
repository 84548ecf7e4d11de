#include "garam/train/job_config.h"

#include <cmath>

#include "garam/core/error.h"
#include "garam/quant/four_bit.h"
#include "garam/train/data_keys.h"
#include "garam/train/foreign_keys.h"
#include "garam/train/memory_table.h"

namespace garam {

namespace {

constexpr const char* kAltersBase =
    "it takes its part out of the base weights, so that the adapter would belong to a base that is "
    "on no disk; use true or orthogonal";

void describe_four_bit(FourBitKeys& c, ConfigTable& table) {
    table.add(
        "load_in_4bit", &c.load_in_4bit,
        "Quantise the linears of the layers to bitsandbytes' 4 bits while the base is loaded; "
        "embeddings, norms and the head stay as they are. A base that is in 4 bits already is "
        "used as it is, with or without this.");
    table
        .add_choice(
            "bnb_4bit_quant_type", c.quant_type, {"fp4", "nf4"},
            "Type of the 4 bits: nf4 is nearer to weights of a normal distribution, and what "
            "QLoRA uses; fp4 is Transformers' default.")
        .refused = {{"int4", "take nf4 or fp4"}, {"af4", "take nf4 or fp4"}};
    table.add("bnb_4bit_use_double_quant", &c.use_double_quant,
              "Quantise the scales of the blocks to 8 bits, too: 0.37 bits a weight less.");
    table
        .add_choice(
            "bnb_4bit_compute_dtype", c.compute_dtype, {"auto", "bfloat16", "float32"},
            "In which type weights are decoded and computed with: auto is what train.bf16 says; "
            "Transformers has float32.")
        .refused = {{"float16", "there is bf16 and fp32: take bfloat16 or float32"}};
    table.add("bnb_4bit_block_size", &c.block_size,
              "Weights that share a scale: a power of two. Transformers' is always 64.",
              between(32, 4096));
    table.add(
        "llm_int8_skip_modules", &c.skip_modules,
        "Modules of the layers that are not quantised: names, beginnings up to a dot, or ends of "
        "names. Embeddings and the head never are.");
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
        "Modules that get an adapter, linears, embed_tokens or lm_head: names, ends of names, "
        "all-linear (all but the head), or one "
        "regular expression that the whole name must fit. PEFT takes this default from the model "
        "type; these are its modules for Llama.");
    table.add("lora.exclude_modules", &c.lora.exclude_modules,
              "Targets that get none: names, ends of names, or one regular expression.");
    table.add("lora.layers_to_transform", &c.lora.layers_to_transform,
              "Numbers of the layers whose targets get an adapter; empty: all.",
              between(0, 1 << 20));
    table.add("lora.layers_pattern", &c.lora.layers_pattern,
              "What stands before a layer's number in a name, such as layers; empty: anything.");
    table.add("lora.rank_pattern", &c.lora.rank_pattern,
              "Another r for some modules: regular expressions that a name or its end fits, each "
              "with its rank; the first that fits counts. A card computes linears that read one "
              "input separately where theirs differ.",
              between(1, 1 << 16));
    table.add("lora.alpha_pattern", &c.lora.alpha_pattern, "The same for lora_alpha.",
              Range{.low = 0, .high = 1e6, .low_open = true});
    table.add("lora.modules_to_save", &c.lora.modules_to_save,
              "Modules of which a whole copy is trained beside the adapters and kept in the "
              "adapter's file: ends of names, such as [embed_tokens, lm_head]. As in PEFT, a copy "
              "of one of two tied weights leaves the other as it is.");
    table.add(
        "lora.trainable_token_indices", &c.lora.trainable_token_indices,
        "Numbers of tokens whose rows of the embedding, and of a head tied to it, are trained "
        "for themselves and kept in the adapter's file.",
        between(0, (1 << 30)));
    table.add_choice("lora.bias", c.lora.bias, {"none", "all", "lora_only"},
                     "Biases of the base that are trained, too, and kept in the adapter: all, or "
                     "those of linears with an adapter.");
    table.add("lora.use_rslora", &c.lora.use_rslora, "Rank-stabilised scale (see lora_alpha).");
    table.add("lora.use_dora", &c.lora.use_dora,
              "DoRA: each row of an adapted weight has a trained length of its own. The outputs of "
              "adapted linears are kept once more, and with lora_dropout a card computes linears "
              "that read one input separately.");
    table.add("lora.loraplus_lr_ratio", &c.loraplus_lr_ratio,
              "LoRA+: the learning rate of B, and of vectors beside it, is this many times that of "
              "A, which is train.learning_rate (of the embedding's adapter both have that); 1: the "
              "same. PEFT's create_loraplus_optimizer has no default.",
              Range{.low = 0, .high = 1e6, .low_open = true});
    table
        .add_choice(
            "lora.init_lora_weights", c.init_lora_weights,
            {"true", "gaussian", "orthogonal", "pissa", "pissa_niter_N", "loftq"},
            "Where adapters begin: true (PEFT's: A Kaiming uniform, B zero), gaussian (A "
            "normal, B zero), orthogonal (neither zero, their product is), loftq (with "
            "load_in_4bit: "
            "the leading part of what quantising takes away), or PiSSA: the "
            "leading part of the weight, found to an f32 decomposition's rounding (pissa) or by N "
            "rounds of subspace iteration (pissa_niter_16: faster), and taken out of the base, "
            "which then has its own memory. The result is an ordinary adapter of twice the "
            "rank, for the base as it is on the disk.")
        .refused = {{"olora", kAltersBase},
                    {"corda", kAltersBase},
                    {"lora_ga", kAltersBase},
                    {"eva", "it looks at data before it begins; use true or orthogonal"}};
    table.add(
        "lora.base_model_name_or_path", &c.lora.base_model_name_or_path,
        "What the adapter's config names as its base, for PEFT to load it on; empty: the model "
        "as given. Set it when the model is a GGUF file, which PEFT cannot load.");
    table.add("lora.loftq_config.loftq_bits", &c.loftq_bits, "Of init_lora_weights=loftq: 4.");
    table.add("lora.loftq_config.loftq_iter", &c.loftq_iter,
              "Of init_lora_weights=loftq: 1, which leaves the quantised base as it is.");
}

void validate_names(const std::vector<std::string>& names, const char* key) {
    if (is_pattern(names)) return;
    for (const std::string& name : names) {
        if (!is_module_name(name))
            throw Error(std::string(key) + ": '" + name +
                        "' is not a module's name: list names or ends of names such as [q_proj, "
                        "v_proj], or give one regular expression alone");
        if (name == "all-linear" && names.size() > 1)
            throw Error(std::string(key) + ": all-linear stands alone, remove the other names");
    }
}

void validate_lora(const LoraSettings& lora) {
    if (lora.target_modules.empty())
        throw Error(
            "lora.target_modules is empty: name the linears that get an adapter, or all-linear");
    validate_names(lora.target_modules, "lora.target_modules");
    validate_names(lora.exclude_modules, "lora.exclude_modules");
    for (const std::string& name : lora.modules_to_save)
        if (!is_module_name(name))
            throw Error("lora.modules_to_save: '" + name +
                        "' is not a module's name: list ends of names such as [embed_tokens, "
                        "lm_head]");
    if (is_pattern(lora.target_modules) && !lora.layers_to_transform.empty())
        throw Error(
            "lora.layers_to_transform does not count where lora.target_modules is a regular "
            "expression: let the expression name the layers");
    if (!lora.layers_pattern.empty() && lora.layers_to_transform.empty())
        throw Error("lora.layers_pattern needs lora.layers_to_transform");
    for (const auto& [pattern, rank] : lora.rank_pattern)
        if (rank != std::floor(rank))
            throw Error("lora.rank_pattern: the rank of " + pattern + " must be a whole number");
    try {
        const LoraTargets compiled(lora);
    } catch (const Error& error) {
        throw Error(std::string("lora.") + error.what());
    }
}

void validate_four_bit(const JobConfig& config) {
    const FourBitKeys& keys = config.four_bit;
    validate(keys);
    if (keys.compute_dtype != "auto" && config.train.bf16 &&
        *config.train.bf16 != (keys.compute_dtype == "bfloat16"))
        throw Error("bnb_4bit_compute_dtype=" + keys.compute_dtype +
                    " and train.bf16=" + (*config.train.bf16 ? "true" : "false") +
                    " contradict each other: all of a run computes in one type, keep one");
    if (config.loftq_bits != 4)
        throw Error("lora.loftq_config.loftq_bits is " + std::to_string(config.loftq_bits) +
                    ": a base is quantised to 4 bits");
    if (config.loftq_iter != 1)
        throw Error("lora.loftq_config.loftq_iter is " + std::to_string(config.loftq_iter) +
                    ": more than one iteration quantises another matrix than the base's, so that "
                    "the adapter "
                    "would belong to a base that is on no disk; take 1");
    if (config.init_lora_weights == "loftq" && !keys.load_in_4bit)
        throw Error("lora.init_lora_weights=loftq needs load_in_4bit=true, and a model in 16 bits");
    if (config.init_lora_weights == "loftq" && !config.adapter.empty())
        throw Error(
            "adapter and lora.init_lora_weights=loftq contradict each other: LoftQ begins a new "
            "adapter; keep one");
    if (!keys.load_in_4bit) return;
    if (config.train.method == "full")
        throw Error(
            "load_in_4bit and train.method=full contradict each other: weights in 4 bits are "
            "frozen; "
            "use train.method=lora");
    if (config.init_lora_weights.starts_with("pissa"))
        throw Error(
            "load_in_4bit and lora.init_lora_weights=pissa contradict each other: PiSSA changes "
            "the "
            "base's weights; use true, gaussian or orthogonal");
}

void validate_schedule(const JobConfig& config) {
    const TrainConfig& train = config.train;
    if (train.max_steps == 0)
        throw Error("train.max_steps is 0: give at least 1, or -1 for train.num_train_epochs");
    if (train.max_steps < 0 && train.num_train_epochs <= 0)
        throw Error("nothing to train: give train.num_train_epochs above 0, or train.max_steps");
    if (train.warmup_steps > 0 && train.warmup_ratio > 0)
        throw Error("train.warmup_steps and train.warmup_ratio are both set: keep one");
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
    const bool evaluates = config.data.evaluates();
    const auto needs_validation = [&](bool wanted, const char* key, const char* unset) {
        if (wanted && !evaluates)
            throw Error(std::string(key) +
                        " needs data.validation: name a file (or set data.validation_split or "
                        "data.validation_fraction), or set it to " +
                        unset);
    };
    needs_validation(train.eval_steps.has_value(), "train.eval_steps", "null");
    needs_validation(train.eval_on_start, "train.eval_on_start", "false");
    needs_validation(config.eval.judges(), "eval.metrics", "[]");
    validate(config.eval);
    if (!config.eval.judges() && reported_name(train.metric_for_best_model) != "eval_loss")
        throw Error("train.metric_for_best_model: " + train.metric_for_best_model +
                    " is not evaluated: name it in eval.metrics, or take eval_loss");
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
    describe_four_bit(config.four_bit, table);
    table.add("memory.limit", &config.memory_limit,
              "Most memory that is reserved on the device, such as 6GB or 5.5GiB, the driver's own "
              "apart; auto: what is free. With train.gradient_checkpointing=auto the fastest plan "
              "that fits is taken: what is kept for the backward, how many micro-batches run as "
              "one, how much of a quantised base stays decoded. See garam plan.");
    table.add(
        "memory.host_limit", &config.memory_host_limit,
        "Most page-locked memory that a card's run takes of the host while it trains, such as "
        "48GB: inputs of blocks, paged states; auto: half of what this process may have. Loading "
        "the model takes 64 MiB or more, which it gives back before.");
    describe(config.data, table);
    describe_lora(config, table);
    describe(config.train, table);
    describe(config.eval, table);
    refuse_foreign_keys(table);
    return table;
}

std::optional<BaseQuantization> base_quantization(const JobConfig& config) {
    const FourBitKeys& keys = config.four_bit;
    if (!keys.load_in_4bit) return std::nullopt;
    return BaseQuantization{
        .format = keys.quant_type == "nf4" ? QuantFormat::nf4 : QuantFormat::fp4,
        .block = keys.block_size,
        .double_quantization = keys.use_double_quant,
        .skip_modules = keys.skip_modules,
    };
}

void validate(const FourBitKeys& keys) {
    if (!is_four_bit_block(keys.block_size))
        throw Error("bnb_4bit_block_size is " + std::to_string(keys.block_size) +
                    ": take a power of two from 32 to 4096");
    for (const std::string& name : keys.skip_modules)
        if (!is_module_name(name))
            throw Error(
                "llm_int8_skip_modules: '" + name +
                "' is not a module's name: list names or ends of names such as [down_proj]");
}

void validate(const JobConfig& config) {
    if (config.model.empty())
        throw Error("model is not set: name a model folder or a GGUF file (model=PATH)");
    memory_limit_bytes(config.memory_limit);
    memory_limit_bytes(config.memory_host_limit, "memory.host_limit");
    validate(config.data);
    if (config.train.output_dir.empty())
        throw Error("train.output_dir is empty: name a folder for the run");
    if (config.train.resume_from_checkpoint.empty())
        throw Error("train.resume_from_checkpoint is empty: give false, true or a folder");
    if (config.train.method == "full" && !config.adapter.empty())
        throw Error(
            "adapter and train.method=full contradict each other: merge the adapter first (garam "
            "merge), or use train.method=lora");
    if (config.train.method == "lora") validate_lora(config.lora);
    if (!config.adapter.empty() && config.init_lora_weights.starts_with("pissa"))
        throw Error(
            "adapter and lora.init_lora_weights=pissa contradict each other: PiSSA begins a new "
            "adapter; keep one");
    validate_four_bit(config);
    validate_schedule(config);
    validate_evaluation(config);
}

}  // namespace garam
