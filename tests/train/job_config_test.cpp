#include "garam/train/job_config.h"

#include <gtest/gtest.h>

#include <functional>

#include "garam/core/error.h"

namespace garam {
namespace {

// A config that validates.
JobConfig complete() {
    JobConfig job;
    job.model = "model";
    job.data.train = {"train.jsonl"};
    return job;
}

std::string refusal(const std::function<void(JobConfig&)>& change) {
    JobConfig job = complete();
    change(job);
    try {
        validate(job);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

std::string refusal_of(const std::string& argument) {
    JobConfig job;
    ConfigTable table = describe(job);
    try {
        table.set_override(argument);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

TEST(JobConfig, DefaultsAreThoseOfTransformersPeftAndTrl) {
    JobConfig job;
    const ConfigTable table = describe(job);
    const auto is = [&](const char* key, const char* text) {
        ASSERT_NE(table.find(key), nullptr) << key;
        EXPECT_EQ(table.find(key)->default_text, text) << key;
    };
    // PEFT 0.21 LoraConfig.
    is("lora.r", "8");
    is("lora.lora_alpha", "8.0");
    is("lora.lora_dropout", "0.0");
    is("lora.use_rslora", "false");
    is("lora.init_lora_weights", "true");
    is("lora.target_modules", "[q_proj, v_proj]");
    // Transformers 5.24 TrainingArguments, TRL 1.16 SFTConfig.
    is("train.output_dir", "trainer_output");
    is("train.seed", "42");
    is("train.max_length", "1024");
    is("train.truncation_mode", "keep_start");
    is("train.packing", "false");
    is("train.completion_only_loss", "null");
    is("train.max_steps", "-1");
    is("train.num_train_epochs", "3.0");
    is("train.per_device_train_batch_size", "8");
    is("train.per_device_eval_batch_size", "8");
    is("train.gradient_accumulation_steps", "1");
    is("train.learning_rate", "2.0e-05");
    is("train.weight_decay", "0.0");
    is("train.adam_beta1", "0.9");
    is("train.adam_beta2", "0.999");
    is("train.adam_epsilon", "1.0e-08");
    is("train.max_grad_norm", "1.0");
    is("train.lr_scheduler_type", "linear");
    is("train.warmup_steps", "0");
    is("train.logging_steps", "10");
    is("train.save_steps", "500");
    is("train.save_total_limit", "null");
    is("train.load_best_model_at_end", "false");
}

TEST(JobConfig, DeviationsFromTheirDefaultsAreExplained) {
    JobConfig job;
    const ConfigTable table = describe(job);
    for (const char* key :
         {"train.bf16", "train.assistant_only_loss", "train.gradient_checkpointing",
          "train.eval_steps", "train.report_to", "train.optim", "train.max_length"}) {
        const std::string& meaning = table.find(key)->meaning;
        EXPECT_TRUE(meaning.find("TRL") != std::string::npos ||
                    meaning.find("Transformers") != std::string::npos ||
                    meaning.find("null (no cut)") != std::string::npos)
            << key;
    }
}

TEST(JobConfig, EveryKeyTellsTypeAndMeaning) {
    JobConfig job;
    const ConfigTable table = describe(job);
    EXPECT_GT(table.entries().size(), 45u);
    for (const auto& entry : table.entries()) {
        EXPECT_FALSE(entry.type().empty()) << entry.key;
        ASSERT_FALSE(entry.meaning.empty()) << entry.key;
        EXPECT_EQ(entry.meaning.back(), '.') << entry.key;
    }
}

TEST(JobConfig, AnEpsilonOfZeroIsRefused) {
    JobConfig job;
    ConfigTable table = describe(job);
    EXPECT_THROW(table.set("train.adam_epsilon", std::string("0"), "test"), Error);
}

TEST(JobConfig, RefusesKeysOfOtherToolsByName) {
    for (const char* key :
         {"train.fp16", "load_in_8bit", "bnb_4bit_quant_storage", "quantization_config",
          "train.deepspeed", "train.fsdp", "lora.use_qalora", "lora.eva_config",
          "train.push_to_hub", "train.hub_model_id", "train.dataloader_prefetch_factor",
          "train.optim_args", "train.eval_strategy", "lora.task_type", "train.max_seq_length",
          "quantization_bit", "max_memory", "base_model"}) {
        EXPECT_EQ(refusal_of(std::string(key) + "=1")
                      .find("command line: " + std::string(key) + " is not supported: "),
                  0u)
            << key;
    }
    EXPECT_NE(refusal_of("train.fp16=true").find("use train.bf16"), std::string::npos);
    EXPECT_NE(refusal_of("lora.use_qalora=true").find("DoRA"), std::string::npos);
}

TEST(JobConfig, FourBitKeysHaveTheDefaultsOfBitsAndBytesConfig) {
    JobConfig job;
    EXPECT_FALSE(base_quantization(job).has_value());
    ConfigTable table = describe(job);
    table.set("load_in_4bit", std::string("true"), "test");
    std::optional<BaseQuantization> quantize = base_quantization(job);
    ASSERT_TRUE(quantize.has_value());
    EXPECT_EQ(quantize->format, QuantFormat::fp4);
    EXPECT_EQ(quantize->block, 64);
    EXPECT_FALSE(quantize->double_quantization);
    EXPECT_TRUE(quantize->skip_modules.empty());
    table.set("bnb_4bit_quant_type", std::string("nf4"), "test");
    table.set("bnb_4bit_use_double_quant", std::string("true"), "test");
    table.set("bnb_4bit_block_size", std::string("128"), "test");
    table.set("llm_int8_skip_modules", std::string("[down_proj]"), "test");
    quantize = base_quantization(job);
    EXPECT_EQ(quantize->format, QuantFormat::nf4);
    EXPECT_EQ(quantize->block, 128);
    EXPECT_TRUE(quantize->double_quantization);
    EXPECT_TRUE(is_skipped(*quantize, "model.layers.3.mlp.down_proj"));
    EXPECT_FALSE(is_skipped(*quantize, "model.layers.3.mlp.up_proj"));
}

TEST(JobConfig, FourBitKeysThatContradictOthersAreRefused) {
    const auto refusal = [](const std::vector<std::string>& overrides) -> std::string {
        JobConfig job;
        ConfigTable table = describe(job);
        try {
            for (const char* needed : {"model=m", "data.train=[rows.jsonl]"})
                table.set_override(needed);
            for (const std::string& text : overrides)
                table.set_override(text);
            validate(job);
        } catch (const Error& error) {
            return error.what();
        }
        return "accepted";
    };
    const auto expect = [&](const std::vector<std::string>& overrides, const std::string& part) {
        const std::string message = refusal(overrides);
        EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks " << part;
    };
    EXPECT_EQ(refusal({"load_in_4bit=true", "bnb_4bit_compute_dtype=bfloat16"}), "accepted");
    expect({"bnb_4bit_block_size=96"}, "power of two from 32 to 4096");
    expect({"load_in_4bit=true", "train.method=full"}, "weights in 4 bits are frozen");
    expect({"load_in_4bit=true", "lora.init_lora_weights=pissa"}, "PiSSA");
    expect({"bnb_4bit_compute_dtype=float32", "train.bf16=true"}, "contradict each other");
    expect({"bnb_4bit_compute_dtype=float16"}, "there is bf16 and fp32");
    expect({"bnb_4bit_quant_type=int4"}, "nf4 or fp4");
    expect({"llm_int8_skip_modules=[a b]"}, "is not a module's name");
    expect({"load_in_8bit=true"}, "load_in_4bit");
    EXPECT_EQ(refusal({"load_in_4bit=true", "lora.init_lora_weights=loftq"}), "accepted");
    expect({"lora.init_lora_weights=loftq"}, "needs load_in_4bit=true");
    expect({"load_in_4bit=true", "lora.init_lora_weights=loftq", "lora.loftq_config.loftq_iter=4"},
           "a base that is on no disk");
    expect({"load_in_4bit=true", "lora.init_lora_weights=loftq", "lora.loftq_config.loftq_bits=8"},
           "4 bits");
    expect({"load_in_4bit=true", "lora.init_lora_weights=loftq", "adapter=a"},
           "begins a new adapter");
}

TEST(JobConfig, NoForeignNameHidesAKeyOfOurs) {
    // A known key is looked up before the foreign names; this guards the table's own consistency:
    // each key can be set to its own default.
    JobConfig job;
    ConfigTable table = describe(job);
    for (const auto& entry : table.entries()) {
        const std::string key = entry.key;
        const std::string text = entry.default_text;
        if (text == "\"\"") continue;
        EXPECT_NO_THROW(table.set(key, text, "test")) << key << "=" << text;
    }
}

TEST(JobConfig, RefusesValuesThatAreNotSupported) {
    EXPECT_NE(refusal_of("lora.init_lora_weights=xavier").find("none of: true, gaussian"),
              std::string::npos);
    EXPECT_NE(refusal_of("lora.init_lora_weights=olora").find("olora is not supported"),
              std::string::npos);
    EXPECT_NE(refusal_of("lora.init_lora_weights=pissa_niter_many").find("pissa_niter_N"),
              std::string::npos);
    EXPECT_NE(refusal_of("lora.init_lora_weights=pissa_niter_N").find("pissa_niter_N"),
              std::string::npos);
    EXPECT_NE(refusal_of("lora.init_lora_weights=eva").find("eva is not supported"),
              std::string::npos);
    EXPECT_NE(refusal_of("lora.bias=some").find("none of: none, all"), std::string::npos);
    EXPECT_NE(refusal_of("train.optim=adafactor").find("not supported"), std::string::npos);
    EXPECT_NE(refusal_of("train.optim=adamw_4bit").find("paged_adamw_8bit"), std::string::npos);
    EXPECT_NE(refusal_of("train.report_to=wandb").find("tensorboard"), std::string::npos);
    EXPECT_NE(refusal_of("lora.r=0"), "");
    EXPECT_NE(refusal_of("lora.lora_dropout=1"), "");
    EXPECT_NE(refusal_of("train.max_length=1"), "");
    EXPECT_NE(refusal_of("train.adam_beta2=1"), "");
    EXPECT_NE(refusal_of("train.save_total_limit=0"), "");
}

TEST(JobConfig, ResolvedYamlReadsBack) {
    JobConfig job = complete();
    ConfigTable table = describe(job);
    for (const char* argument : {"train.learning_rate=2e-4", "train.bf16=true", "lora.r=32",
                                 "data.instruction=Is this spam? {text}\nAnswer:", "threads=2"})
        table.set_override(argument);
    table.set_override(R"(lora.rank_pattern={q_proj: 4, .*\.up_proj: 16})");
    table.set_override(R"(lora.target_modules=.*\.(q|up)_proj)");
    table.set("lora.alpha_pattern.layers.0.self_attn.q_proj", "2.5", "test");
    table.set("lora.alpha_pattern.k_proj", "3", "test");
    table.set("lora.layers_to_transform", "[0, 3]", "test");
    EXPECT_EQ(job.lora.rank_pattern[1], (std::pair<std::string, double>{R"(.*\.up_proj)", 16}));
    EXPECT_EQ(job.lora.layers_to_transform, (std::vector<std::int64_t>{0, 3}));
    const std::string yaml = describe(job).to_yaml();
    EXPECT_NE(yaml.find("\n  alpha_pattern: {layers.0.self_attn.q_proj: 2.5, k_proj: 3.0}\n"),
              std::string::npos)
        << yaml;
    EXPECT_NE(yaml.find("\n  layers_to_transform: [0, 3]\n"), std::string::npos);
    EXPECT_THROW(table.set("lora.rank_pattern.q_proj", "0", "test"), Error);
    EXPECT_THROW(table.set("lora.rank_pattern", "q_proj", "test"), Error);
    EXPECT_NE(yaml.find("\n  learning_rate: 2.0e-04\n"), std::string::npos) << yaml;
    EXPECT_NE(yaml.find("\n  bf16: true\n"), std::string::npos);
    EXPECT_NE(yaml.find("\n  instruction: \"Is this spam? {text}\\nAnswer:\"\n"),
              std::string::npos);
}

TEST(JobConfig, ValidatesWhatBelongsTogether) {
    EXPECT_EQ(refusal([](JobConfig&) {}), "");
    const auto names = [](const std::function<void(JobConfig&)>& change, const char* part) {
        EXPECT_NE(refusal(change).find(part), std::string::npos)
            << part << " | " << refusal(change);
    };
    names([](JobConfig& j) { j.model = ""; }, "model is not set");
    names([](JobConfig& j) { j.data.train = {}; }, "data.train is not set");
    names([](JobConfig& j) { j.train.output_dir = ""; }, "train.output_dir");
    names([](JobConfig& j) { j.train.max_steps = 0; }, "train.max_steps");
    names([](JobConfig& j) { j.train.num_train_epochs = 0; }, "train.num_train_epochs");
    names([](JobConfig& j) { j.train.eval_steps = 5; }, "data.validation");
    names([](JobConfig& j) { j.train.load_best_model_at_end = true; }, "data.validation");
    names([](JobConfig& j) { j.train.early_stopping_patience = 1; }, "data.validation");
    names(
        [](JobConfig& j) {
            j.data.validation = {"v.jsonl"};
            j.train.load_best_model_at_end = true;
            j.train.eval_steps = 3;
            j.train.save_steps = 10;
        },
        "multiple");
    names(
        [](JobConfig& j) {
            j.data.validation = {"v.jsonl"};
            j.train.load_best_model_at_end = true;
            j.train.save_steps = 0;
        },
        "train.save_steps");
    names(
        [](JobConfig& j) {
            j.data.validation = {"v.jsonl"};
            j.train.early_stopping_patience = 1;
            j.train.eval_steps = 0;
        },
        "train.eval_steps");
    names(
        [](JobConfig& j) {
            j.train.warmup_steps = 2;
            j.train.warmup_ratio = 0.1;
        },
        "keep one");
    names(
        [](JobConfig& j) {
            j.train.lr_scheduler_type = "constant";
            j.train.warmup_steps = 2;
        },
        "constant_with_warmup");
    names(
        [](JobConfig& j) {
            j.adapter = "a";
            j.train.method = "full";
        },
        "train.method=lora");
    names([](JobConfig& j) { j.lora.target_modules = {}; }, "lora.target_modules is empty");
    names(
        [](JobConfig& j) {
            j.lora.target_modules = {".*_proj", "q_proj"};
        },
        "one regular expression alone");
    names([](JobConfig& j) { j.lora.target_modules = {"(q"}; }, "lora.target_modules: \"(q\"");
    names([](JobConfig& j) { j.lora.rank_pattern = {{"q_proj", 1.5}}; }, "whole number");
    names([](JobConfig& j) { j.lora.layers_pattern = {"h"}; }, "needs lora.layers_to_transform");
    names(
        [](JobConfig& j) {
            j.lora.target_modules = {".*_proj"};
            j.lora.layers_to_transform = {0};
        },
        "name the layers");
    names([](JobConfig& j) { j.lora.target_modules = {"all-linear", "q_proj"}; }, "stands alone");
    // What is fine.
    EXPECT_EQ(refusal([](JobConfig& j) {
                  j.data.validation = {"v.jsonl"};
                  j.train.load_best_model_at_end = true;
                  j.train.early_stopping_patience = 2;
              }),
              "");
    EXPECT_EQ(refusal([](JobConfig& j) {
                  j.train.method = "full";
                  j.lora.target_modules = {};
              }),
              "");
    EXPECT_EQ(refusal([](JobConfig& j) {
                  j.train.max_steps = 3;
                  j.train.num_train_epochs = 0;
              }),
              "");
}

TEST(TrainConfig, ResolvesWarmupAndEvaluation) {
    TrainConfig train;
    EXPECT_EQ(train.resolved_warmup_steps(100), 0);
    train.warmup_ratio = 0.03;
    EXPECT_EQ(train.resolved_warmup_steps(101), 4);
    train.warmup_steps = 7;
    EXPECT_EQ(train.resolved_warmup_steps(101), 7);
    EXPECT_EQ(train.resolved_eval_steps(), 500);
    train.eval_steps = 20;
    EXPECT_EQ(train.resolved_eval_steps(), 20);
}

}  // namespace
}  // namespace garam
