#include "garam/train/prepared_job.h"

#include <algorithm>
#include <cmath>

#include "garam/core/error.h"
#include "garam/core/error_source.h"
#include "garam/core/parallel.h"
#include "garam/data/samples/sample_selection.h"
#include "garam/models/four_bit_base.h"
#include "garam/ops/product_tuning.h"
#include "garam/quant/four_bit.h"
#include "garam/text/chat_template_source.h"
#include "garam/train/memory_choice.h"
#include "garam/train/memory_table.h"
#include "garam/train/vocabulary.h"

namespace garam {
namespace {

constexpr std::int64_t kMaxSteps = std::int64_t{1} << 31;

OptimizerOptions optimizer_options(const TrainConfig& train) {
    OptimizerOptions options = optimizer_from_name(train.optim);
    options.weight_decay = train.weight_decay;
    options.beta1 = train.adam_beta1;
    options.beta2 = train.adam_beta2;
    options.epsilon = train.adam_epsilon;
    return options;
}

std::string hexadecimal(std::uint64_t value) {
    constexpr const char* kDigits = "0123456789abcdef";
    std::string text(16, '0');
    for (std::size_t i = 0; i < 16; ++i)
        text[15 - i] = kDigits[(value >> (4 * i)) & 15];
    return text;
}

// Tells one base from another: its tensors' names, types, shapes, and how each begins. Reading it all
// would take as long as the disk needs for the whole model.
std::string model_fingerprint(const ModelFiles& files) {
    constexpr std::size_t kBytesOfEach = 64;
    std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
    const auto mix = [&hash](const void* data, std::size_t bytes) {
        const auto* next = static_cast<const unsigned char*>(data);
        for (std::size_t i = 0; i < bytes; ++i)
            hash = (hash ^ next[i]) * 0x100000001b3ULL;
    };
    for (const StoredTensor& tensor : files.tensors()) {
        const std::string head =
            tensor.name + " " + std::string(name_of(tensor.type)) + tensor.shape.to_string();
        mix(head.data(), head.size());
        mix(tensor.data, std::min(tensor.bytes, kBytesOfEach));
    }
    return hexadecimal(hash);
}

// What few runs set is named only where it is set, so that checkpoints of before it was known go on.
void add_options(const TrainConfig& train, Json& json) {
    if (train.label_smoothing_factor > 0)
        json.set("train.label_smoothing_factor", train.label_smoothing_factor);
    if (train.neftune_noise_alpha)
        json.set("train.neftune_noise_alpha", *train.neftune_noise_alpha);
    if (train.group_by_length) json.set("train.group_by_length", true);
    const ScheduleKwargs& kwargs = train.lr_scheduler_kwargs;
    const auto add = [&json](const std::string& name, const auto& value) {
        if (value) json.set("train.lr_scheduler_kwargs." + name, *value);
    };
    add("num_cycles", kwargs.num_cycles);
    add("min_lr", kwargs.min_lr);
    add("min_lr_rate", kwargs.min_lr_rate);
    add("lr_end", kwargs.lr_end);
    add("power", kwargs.power);
    add("timescale", kwargs.timescale);
    add("num_decay_steps", kwargs.num_decay_steps);
    add("num_stable_steps", kwargs.num_stable_steps);
    add("min_lr_ratio", kwargs.min_lr_ratio);
    if (train.lr_scheduler_type == "warmup_stable_decay") {
        json.set("train.lr_scheduler_kwargs.warmup_type", kwargs.warmup_type);
        json.set("train.lr_scheduler_kwargs.decay_type", kwargs.decay_type);
    }
}

// Settings that change which numbers a run computes, beyond those that RunIdentity names one by one.
std::string config_fingerprint(const JobConfig& config, const ModelFiles& files,
                               const EngineOptions& engine, std::int64_t max_steps) {
    const TrainConfig& train = config.train;
    // Under the names that a user knows, since a difference is told by them. Paging changes no bit.
    Json json;
    json.set("model", model_fingerprint(files));
    json.set("train.method", train.method);
    json.set("train.bf16", engine.model.compute == DType::bf16);
    json.set("data.shuffle", config.data.shuffle);
    json.set("train.max_steps", max_steps);
    json.set("train.optim", std::string(update_name(train.optim)));
    json.set("train.learning_rate", train.learning_rate);
    json.set("train.lr_scheduler_type", train.lr_scheduler_type);
    json.set("train.warmup_steps", train.resolved_warmup_steps(max_steps));
    json.set("train.weight_decay", train.weight_decay);
    json.set("train.adam_beta1", train.adam_beta1);
    json.set("train.adam_beta2", train.adam_beta2);
    json.set("train.adam_epsilon", train.adam_epsilon);
    json.set("train.max_grad_norm", train.max_grad_norm);
    add_options(train, json);
    if (engine.model.quantize) {
        const BaseQuantization& quantize = *engine.model.quantize;
        json.set("load_in_4bit", true);
        json.set("bnb_4bit_quant_type", name_of(quantize.format));
        json.set("bnb_4bit_use_double_quant", quantize.double_quantization);
        json.set("bnb_4bit_block_size", quantize.block);
        Json::Array skipped;
        for (const std::string& name : quantize.skip_modules)
            skipped.emplace_back(name);
        json.set("llm_int8_skip_modules", std::move(skipped));
    }
    if (engine.model.lora) {
        const LoraSettings& lora = *engine.model.lora;
        json.set("lora.r", lora.r);
        json.set("lora.lora_alpha", lora.lora_alpha);
        json.set("lora.lora_dropout", lora.lora_dropout);
        json.set("lora.use_rslora", lora.use_rslora);
        if (engine.model.init.is_pissa())
            json.set("lora.init_lora_weights", config.init_lora_weights);
        if (config.loraplus_lr_ratio != 1)
            json.set("lora.loraplus_lr_ratio", config.loraplus_lr_ratio);
        // Ranks and targets show in the tensors.
        if (!lora.alpha_pattern.empty()) {
            Json alphas{Json::Object{}};
            for (const auto& [pattern, alpha] : lora.alpha_pattern)
                alphas.set(pattern, alpha);
            json.set("lora.alpha_pattern", std::move(alphas));
        }
    }
    return json.dump();
}

BatchBounds bounds_of(const Loader::Largest& largest) {
    return {largest.tokens, largest.longest, largest.targets, largest.samples};
}

BatchBounds bounds_of(const std::vector<TokenBatch>& batches) {
    BatchBounds bounds;
    for (const TokenBatch& batch : batches) {
        bounds.tokens = std::max(bounds.tokens, batch.tokens());
        bounds.longest = std::max(bounds.longest, batch.longest());
        bounds.targets = std::max(bounds.targets, batch.num_targets());
        bounds.samples = std::max(bounds.samples, batch.samples());
    }
    return bounds;
}

void cut_evaluation(PreparedJob& job) {
    // As many tokens at a time as the user allows rows, but no more than training has: evaluation
    // keeps nothing for a backward, so it then needs less memory than training.
    std::int64_t longest = 0;
    for (std::int64_t i = 0; i < job.validation.size(); ++i)
        longest = std::max(longest, job.validation.tokens(i));
    const std::int64_t wanted = job.config.train.per_device_eval_batch_size * longest;
    job.evaluation = evaluation_batches(
        job.validation, std::max(longest, std::min(wanted, job.training_bounds.tokens)));
    static_cast<BatchBounds&>(job.evaluation_bounds) = bounds_of(job.evaluation);
}

void note_reports(PreparedJob& job, const SampleTables& tables) {
    for (const SourceSamples& source : tables.sources) {
        job.notes.push_back(source.report.summary());
        if (!source.made)
            job.notes.push_back(source.report.file + ": kept from before (data.cache)");
    }
    job.notes.insert(job.notes.end(), tables.notes.begin(), tables.notes.end());
}

void read_data(PreparedJob& job, const ReadingProgress& progress) {
    const DataConfig& data = job.config.data;
    const EncodingSettings encoding = encoding_settings(
        job.config,
        DecoderConfig::from_json(job.files.config(), job.files.path().string()).vocab_size);
    const auto read = [&](const DataPlaces& places) {
        SampleTables tables = read_sample_tables(open_sources(places, data), data, encoding,
                                                 *job.tokenizer, progress);
        note_reports(job, tables);
        return tables;
    };
    const auto seed = static_cast<std::uint64_t>(job.config.train.seed);
    const std::vector<WeightedTable> training = weighted(read(training_places(data)), data.weights);
    if (data.validation_fraction > 0) {
        SampleSplit split = hold_out(training, data.validation_fraction, seed);
        job.training = std::move(split.training);
        job.validation = std::move(split.held_out);
    } else {
        job.training = select_samples(training, seed);
    }
    if (training.size() > 1 || !data.weights.empty() || data.validation_fraction > 0)
        job.notes.push_back(std::to_string(job.training.size()) + " samples an epoch" +
                            (job.validation.empty() ? std::string()
                                                    : ", " + std::to_string(job.validation.size()) +
                                                          " held out to evaluate on"));
    job.loader = std::make_unique<Loader>(job.training, loader_options(job.config));
    job.training_bounds = bounds_of(job.loader->largest());
    if (!data.evaluates()) return;
    if (data.validation_fraction <= 0)
        job.validation = select_samples(weighted(read(validation_places(data)), {}), seed);
    cut_evaluation(job);
}

// With eval.metrics: the rows whose answers are judged.
void read_judged(PreparedJob& job) {
    const JobConfig& config = job.config;
    if (!config.eval.judges()) return;
    const DecoderConfig model =
        DecoderConfig::from_json(job.files.config(), job.files.path().string());
    const DataPlaces places = config.data.validation_fraction > 0 ? training_places(config.data)
                                                                  : validation_places(config.data);
    JudgedSet set = judged_rows(job.validation, places, config.data,
                                encoding_settings(config, model.vocab_size), *job.tokenizer,
                                config.eval.request(config.train.seed));
    check_labels(config.eval, set.labels);
    const std::string best = reported_name(config.train.metric_for_best_model);
    std::string known = "eval_loss";
    bool found = best == known;
    for (const auto& [name, value] : metric_values(config.eval, Judgement(set.labels))) {
        found = found || best == name;
        known += ", " + name;
    }
    if (!found)
        throw Error("train.metric_for_best_model: " + config.train.metric_for_best_model +
                    " is not evaluated (eval.metrics); there are " + known);
    job.answer_ends = answer_end_ids(job.files, model, *job.tokenizer);
    // Positions that the model was not made for are used only where a question alone needs them.
    job.evaluation_bounds.room = std::min(judging_room(set, config.eval.max_new_tokens),
                                          std::max(model.max_positions, set.longest_prompt + 1));
    job.evaluation_bounds.question = set.longest_prompt;
    if (config.eval.has("ece")) {
        job.evaluation_bounds.room =
            std::max(job.evaluation_bounds.room, set.longest_prompt + set.longest_candidate);
        job.evaluation_bounds.scored = set.longest_candidate - 1;
    }
    job.notes.push_back(
        "evaluations answer " + std::to_string(set.rows.size()) + " rows (" +
        (set.reader.is_json() ? "JSON with \"" + config.eval.verdict_key + "\"" : "a label") + ")" +
        (set.left_out == 0 ? std::string()
                           : "; " + std::to_string(set.left_out) +
                                 " more were drawn, but their answer is cut off or empty"));
    if (set.longest_answer > config.eval.max_new_tokens)
        job.notes.push_back("eval.max_new_tokens=" + std::to_string(config.eval.max_new_tokens) +
                            " cuts answers off: the longest right one has " +
                            std::to_string(set.longest_answer) +
                            " tokens, its end included; what is cut off counts as unparsable");
    job.judged = std::move(set);
}

// A key of the quantisation that is set; empty: none. (In bnb_4bit_compute_dtype any base computes.)
std::string first_set(const FourBitKeys& keys) {
    const FourBitKeys defaults;
    if (keys.quant_type != defaults.quant_type) return "bnb_4bit_quant_type";
    if (keys.use_double_quant != defaults.use_double_quant) return "bnb_4bit_use_double_quant";
    if (keys.block_size != defaults.block_size) return "bnb_4bit_block_size";
    if (!keys.skip_modules.empty()) return "llm_int8_skip_modules";
    return "";
}

// How the base is quantised while it is loaded: not at all where it is in 4 bits already. Then its own settings count,
// as in Transformers.
std::optional<BaseQuantization> choose_quantization(PreparedJob& job) {
    std::optional<BaseQuantization> quantize = base_quantization(job.config);
    const std::string model = job.files.path().string();
    const bool is_quantised = is_in_four_bits(job.files);
    if (!quantize) {
        if (const std::string key = first_set(job.config.four_bit); !key.empty() && !is_quantised)
            job.notes.push_back("warning: " + key +
                                " changes nothing without load_in_4bit=true: the base is used as "
                                "its files have it");
        return quantize;
    }
    if (!is_quantised) {
        check_skipped_modules(job.files, *quantize);
        job.notes.push_back("load_in_4bit: the base's linears become " + in_words(*quantize));
        return quantize;
    }
    if (job.config.init_lora_weights == "loftq")
        throw Error("lora.init_lora_weights=loftq begins with what quantising takes away, and " +
                    model +
                    " is in 4 bits already: give the model that it was made from, with "
                    "load_in_4bit=true");
    const std::string other = in_other_four_bits(job.files, *quantize);
    job.notes.push_back("load_in_4bit changes nothing, nor do the bnb_4bit_ keys: " + model +
                        " is in 4 bits already and used as it is" +
                        (other.empty() ? "" : ", " + other));
    return std::nullopt;
}

// An adapter to go on with that learnt over other values of the base.
void warn_of_another_quantization(PreparedJob& job) {
    if (!job.adapter || !job.adapter->base_quantization) return;
    const std::string before = in_words(*job.adapter->base_quantization);
    const std::string now =
        job.base_quantization ? in_words(*job.base_quantization) : "the weights as they are";
    if (before != now)
        job.notes.push_back("warning: " + job.config.adapter + " was trained over " + before +
                            ", this run goes on over " + now);
}

std::int64_t steps_of(const TrainConfig& train, const Loader& loader) {
    if (train.max_steps > 0) return train.max_steps;
    const double steps =
        std::ceil(train.num_train_epochs * static_cast<double>(loader.steps_per_epoch()));
    if (!(steps >= 1) || steps > static_cast<double>(kMaxSteps))
        throw Error("train.num_train_epochs: " + std::to_string(train.num_train_epochs) +
                    " epochs of " + std::to_string(loader.steps_per_epoch()) +
                    " steps are not between 1 and 2^31 steps");
    return static_cast<std::int64_t>(steps);
}

// Positions beyond those that the model has seen compute, but seldom to any sense.
void warn_of_long_samples(PreparedJob& job) {
    const std::int64_t longest =
        std::max(job.training_bounds.longest, job.evaluation_bounds.longest);
    const std::int64_t positions =
        DecoderConfig::from_json(job.files.config(), job.files.path().string()).max_positions;
    if (longest <= positions) return;
    job.notes.push_back("warning: the longest sample has " + std::to_string(longest) +
                        " tokens, but the model was made for " + std::to_string(positions) +
                        " (max_position_embeddings): lower train.max_length");
}

// What the adapter says it is trained on against what it is now trained on.
void choose_adapter(PreparedJob& job) {
    JobConfig& config = job.config;
    job.base_name = config.lora.base_model_name_or_path;
    if (job.base_name.empty()) job.base_name = job.files.name();
    if (job.base_name.empty() && !job.files.is_gguf()) job.base_name = job.files.path().string();
    if (config.train.method == "full") {
        if (!config.adapter.empty())
            throw Error(
                "adapter: there is none in full fine-tuning; set train.method=lora, or "
                "merge it into the model first");
        job.engine.model.trained = Decoder::Trained::all_weights;
        return;
    }
    job.engine.model.trained = Decoder::Trained::adapter;
    job.engine.model.init = lora_init_from_name(config.init_lora_weights);
    if (!config.adapter.empty()) {
        const double dropout = config.lora.lora_dropout;
        config.lora = job.adapter->settings;
        config.lora.lora_dropout = dropout;
        job.notes.push_back("going on with " + config.adapter +
                            ": its ranks, scales and "
                            "target_modules count");
    }
    if (job.base_name.empty())
        job.notes.push_back(
            "warning: the base model's name is unknown (" + job.files.path().filename().string() +
            "), so adapter_config.json will name none and PEFT cannot find the base by itself: set "
            "lora.base_model_name_or_path");
    config.lora.base_model_name_or_path = job.base_name;
    job.engine.model.lora = config.lora;
    job.engine.model.b_rate_factor = config.loraplus_lr_ratio;
}

// Keys that people carry over from other tools.
void note_what_changes_nothing(PreparedJob& job) {
    const TrainConfig& train = job.config.train;
    if (train.torch_compile)
        job.notes.push_back(
            "train.torch_compile changes nothing: there is nothing to compile at run time");
    if (!train.dataloader_pin_memory)
        job.notes.push_back(
            "train.dataloader_pin_memory changes nothing: batches always go to a card through "
            "pinned memory");
}

bool computes_in_bf16(const JobConfig& config, const DeviceProfile& profile) {
    if (config.train.bf16) return *config.train.bf16;
    if (config.four_bit.compute_dtype != "auto") return config.four_bit.compute_dtype == "bfloat16";
    return profile.fast_bf16;
}

// How a policy's name ends that runs in tiles of tokens.
constexpr const char* kInTiles = "+tiles";

// auto is settled by PreparedJob::plan().
Recompute recompute_from_name(const std::string& name) {
    for (const Recompute recompute : {Recompute::block, Recompute::offload})
        if (name == std::string(name_of(recompute)) + kInTiles) return recompute;
    if (name == "false" || name == "none" || name == "auto") return Recompute::nothing;
    if (name == "true" || name == "block") return Recompute::block;
    for (const Recompute recompute :
         {Recompute::norms_and_activation, Recompute::gate_up, Recompute::offload})
        if (name == name_of(recompute)) return recompute;
    throw Error("train.gradient_checkpointing: \"" + name +
                "\" is not supported; choose one of false (none), norms+activation, gate_up, true "
                "(block), offload, block+tiles, offload+tiles, auto");
}

Error beyond_limit(const JobConfig& config, const MemoryChoice& choice) {
    const auto mib = [](std::int64_t bytes) {
        return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB";
    };
    std::string advice = "lower train.per_device_train_batch_size or train.max_length";
    if (config.train.gradient_checkpointing != "auto")
        advice = "set train.gradient_checkpointing=auto, or " + advice;
    if (choice.plan.pinned_bytes > choice.pinned_room)
        return Error("memory.host_limit: " + config.memory_host_limit + " allows " +
                     mib(choice.pinned_room) +
                     " of page-locked host memory, and the smallest plan (" +
                     name_of(choice.recompute) + ") needs " + mib(choice.plan.pinned_bytes) +
                     ": raise it, or " + advice);
    const std::string pinned =
        choice.plan.pinned_bytes == 0
            ? std::string()
            : " (and " + mib(choice.plan.pinned_bytes) + " of pinned host memory)";
    return Error("memory.limit: " + config.memory_limit + " does not suffice, the smallest plan (" +
                 name_of(choice.recompute) + ") needs " + mib(choice.plan.peak_bytes()) + pinned +
                 " of the " + mib(choice.room) + " that there are: raise it, or " + advice);
}

}  // namespace

LoaderOptions loader_options(const JobConfig& config) {
    LoaderOptions options;
    options.rows_per_micro_batch = config.train.per_device_train_batch_size;
    options.micro_batches_per_step = config.train.gradient_accumulation_steps;
    options.max_length = config.train.max_length;
    options.packing = config.train.packing;
    options.shuffle = config.data.shuffle;
    options.group_by_length = config.train.group_by_length;
    options.seed = static_cast<std::uint64_t>(config.train.seed);
    return options;
}

EncodingSettings encoding_settings(const JobConfig& config, std::int64_t vocab_size) {
    const TrainConfig& train = config.train;
    EncodingSettings settings;
    settings.max_length = train.max_length;
    settings.truncation =
        train.truncation_mode == "keep_end" ? Truncation::keep_end : Truncation::keep_start;
    settings.assistant_only_loss = train.assistant_only_loss;
    settings.completion_only_loss = train.completion_only_loss;
    settings.vocab_size = vocab_size;
    if (config.data.chat_template.empty()) return settings;
    ChatTemplateSource source = naming_source(
        "data.chat_template", [&] { return chat_template_source(config.data.chat_template); });
    settings.chat_template = std::move(source.source);
    settings.tool_chat_template = std::move(source.tool_use);
    return settings;
}

void PreparedJob::cut_batch(std::int64_t batch_size, std::int64_t accumulation) {
    TrainConfig& train = config.train;
    train.per_device_train_batch_size = batch_size;
    train.gradient_accumulation_steps = accumulation;
    identity.per_device_train_batch_size = batch_size;
    identity.gradient_accumulation_steps = accumulation;
    loader = std::make_unique<Loader>(training, loader_options(config));
    training_bounds = bounds_of(loader->largest());
    if (!evaluation.empty()) cut_evaluation(*this);
}

MemoryQuestion PreparedJob::question() const {
    const TrainConfig& train = config.train;
    MemoryQuestion question{profile,
                            files,
                            engine,
                            training_bounds,
                            evaluation_bounds,
                            train.gradient_accumulation_steps};
    question.chooses_recompute = train.gradient_checkpointing == "auto";
    const bool may_merge = train.merge_micro_batches == "auto" && profile.is_cuda();
    question.merged = may_merge ? 0 : 1;
    question.in_tiles = train.gradient_checkpointing.ends_with(kInTiles);
    question.limit = memory_limit_bytes(config.memory_limit);
    question.host_limit = memory_limit_bytes(config.memory_host_limit, "memory.host_limit");
    return question;
}

std::int64_t PreparedJob::longest_sample() const {
    return garam::longest_sample(question());
}

MemoryPlan PreparedJob::plan(const TrainerState* earlier) {
    const TrainConfig& train = config.train;
    const std::int64_t asked = train.per_device_train_batch_size;
    const std::int64_t step = asked * train.gradient_accumulation_steps;
    const std::int64_t limit = memory_limit_bytes(config.memory_limit);
    const auto choose = [&] {
        MemoryQuestion question = this->question();
        if (earlier != nullptr) {
            question.merged = earlier->merged_micro_batches;
            question.tile = earlier->tile;
        }
        return choose_memory(question);
    };
    if (train.auto_find_batch_size && earlier != nullptr) {
        const RunIdentity& cut = earlier->identity;
        if (cut.per_device_train_batch_size < asked &&
            cut.per_device_train_batch_size * cut.gradient_accumulation_steps == step)
            cut_batch(cut.per_device_train_batch_size, cut.gradient_accumulation_steps);
    }
    MemoryChoice choice = choose();
    while (train.auto_find_batch_size && earlier == nullptr && !choice.fits &&
           train.per_device_train_batch_size > 1) {
        // By two, or the smallest number that leaves whole rows.
        std::int64_t parts = 2;
        while (train.per_device_train_batch_size % parts != 0)
            ++parts;
        cut_batch(train.per_device_train_batch_size / parts,
                  train.gradient_accumulation_steps * parts);
        choice = choose();
    }
    const std::int64_t accumulation = train.gradient_accumulation_steps;
    if (train.per_device_train_batch_size != asked)
        notes.push_back("auto_find_batch_size: " + std::to_string(asked) +
                        " rows a pass do not fit the memory; " +
                        std::to_string(train.per_device_train_batch_size) + " rows in each of " +
                        std::to_string(accumulation) + " passes make the same step of " +
                        std::to_string(step));
    const bool is_host_short =
        config.memory_host_limit != "auto" && choice.plan.pinned_bytes > choice.pinned_room;
    if ((limit > 0 && !choice.fits) || is_host_short) throw beyond_limit(config, choice);
    if (const std::int64_t more = choice.plan.arena_bytes - choice.plan.training_bytes; more > 0)
        notes.push_back("evaluation needs " + std::to_string((more + (1 << 20) - 1) >> 20) +
                        " MiB more than training's steps, which the plan holds: lower " +
                        (judged ? "eval.max_new_tokens or " : "") +
                        "train.per_device_eval_batch_size to save it");
    if (choice.paged_states && !engine.optimizer.paged)
        notes.push_back(
            "memory: the optimiser's states wait in pinned host memory, as by optim=" +
            std::string(engine.optimizer.eight_bit ? "paged_adamw_8bit" : "paged_adamw_32bit"));
    choice.apply_to(engine);
    merged_micro_batches = choice.merged;
    if (choice.merged > 1)
        notes.push_back("memory allows " + std::to_string(choice.merged) + " of the " +
                        std::to_string(accumulation) +
                        " micro-batches of a step to run as one (train.merge_micro_batches)");
    if (train.gradient_checkpointing == "auto")
        notes.push_back(std::string("gradient_checkpointing=auto: ") + name_of(choice.recompute) +
                        (choice.tile > 0 ? kInTiles : ""));
    return choice.plan;
}

std::unique_ptr<PreparedJob> prepare(const JobConfig& config, const ReadingProgress& progress) {
    validate(config);
    const int processors = num_threads();
    if (config.threads > 0) set_num_threads(std::min(config.threads, processors));
    auto job = std::unique_ptr<PreparedJob>(new PreparedJob{
        .config = config,
        .files = ModelFiles::open(config.model),
        .tokenizer = load_tokenizer(config.model),
    });
    if (config.threads > processors)
        job->notes.push_back("threads: " + std::to_string(config.threads) + " asked for, " +
                             std::to_string(processors) + " used: all that this process may use");
    const TrainConfig& train = job->config.train;
    job->profile = profile_of_device(config.device);
    if (train.tf32 && !job->profile.is_cuda())
        throw Error("train.tf32 is for cards; this run computes on the processor (device=" +
                    config.device + ")");
    job->profile.tf32 = train.tf32;
    if (recompute_from_name(train.gradient_checkpointing) == Recompute::offload &&
        !job->profile.is_cuda())
        throw Error(
            "train.gradient_checkpointing: offload is for cards; this run computes on the "
            "processor "
            "(device=" +
            config.device + "), whose memory is the host's already: take true or block+tiles");
    if (!train.tuned_products.empty() && job->profile.is_cuda()) {
        job->profile.products = load_products(train.tuned_products, job->profile);
    } else if (!train.tuned_products.empty()) {
        job->notes.push_back("train.tuned_products is for cards: " + train.tuned_products +
                             " does not count on the processor");
    }
    prepare_vocabulary(*job);
    read_data(*job, progress);
    read_judged(*job);
    warn_of_long_samples(*job);
    choose_adapter(*job);
    job->max_steps = steps_of(train, *job->loader);
    check_schedule(train.schedule(job->max_steps));
    note_what_changes_nothing(*job);

    EngineOptions& engine = job->engine;
    engine.model.compute = computes_in_bf16(job->config, job->profile) ? DType::bf16 : DType::f32;
    engine.model.quantize = choose_quantization(*job);
    job->base_quantization =
        engine.model.quantize ? engine.model.quantize : stored_quantization(job->files);
    warn_of_another_quantization(*job);
    engine.model.seed = static_cast<std::uint64_t>(train.seed);
    engine.model.max_positions =
        std::max({job->training_bounds.longest, job->evaluation_bounds.longest,
                  job->evaluation_bounds.room});
    engine.model.label_smoothing = train.label_smoothing_factor;
    engine.neftune_noise_alpha = train.neftune_noise_alpha.value_or(0);
    engine.optimizer = optimizer_options(train);
    engine.max_grad_norm = train.max_grad_norm;
    engine.recompute = recompute_from_name(train.gradient_checkpointing);
    engine.seed = static_cast<std::uint64_t>(train.seed);

    job->identity = {
        .seed = static_cast<std::uint64_t>(train.seed),
        .per_device_train_batch_size = train.per_device_train_batch_size,
        .gradient_accumulation_steps = train.gradient_accumulation_steps,
        .max_length = train.max_length,
        .packing = train.packing,
        .data_fingerprint = hexadecimal(job->training.fingerprint()),
        .config_fingerprint = config_fingerprint(job->config, job->files, engine, job->max_steps)};
    return job;
}

}  // namespace garam
