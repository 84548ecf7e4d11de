// `garam import-config` on configs of our own writing in the dialect of each trainer.
#include <gtest/gtest.h>

#include <algorithm>

#include "app/run_garam.h"
#include "garam/app/config_import.h"
#include "garam/app/load_job.h"
#include "garam/core/error.h"
#include "io/mutation.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

using testing::run_garam;
using testing::TempDir;

ImportedConfig import_text(const std::string& text) {
    return import_config(parse_yaml_config(text, "f.yaml", YamlLists::of_maps), "f.yaml");
}

ImportedConfig import_file(const std::string& name) {
    const auto path = testing::source_dir() / "tests" / "app" / "foreign_configs" / name;
    return import_config(read_yaml_config(path, YamlLists::of_maps), name);
}

// What the result says when it is read as a config of ours, which checks it too.
JobConfig job_of(const ImportedConfig& imported) {
    EXPECT_EQ(imported.missing, "");
    const TempDir dir;
    return load_job({dir.write("ours.yaml", imported.to_text("theirs.yaml")).string()}).config;
}

// The one line that names the key; "" where there is none.
std::string left_out(const ImportedConfig& imported, const std::string& key) {
    for (const std::string& line : imported.left_out)
        if (line.find(": " + key + ": ") != std::string::npos) return line;
    return "";
}
#define EXPECT_LEFT_OUT(imported, key, part)                         \
    EXPECT_NE(left_out(imported, key).find(part), std::string::npos) \
        << key << " is told as \"" << left_out(imported, key) << "\", without " << (part)

TEST(ImportConfig, Trl) {
    const ImportedConfig imported = import_file("trl.yaml");
    EXPECT_EQ(imported.dialect, Dialect::trl);
    const JobConfig job = job_of(imported);
    EXPECT_EQ(job.model, "models/base");
    EXPECT_EQ(job.data.train, std::vector<std::string>{"rows/chats.jsonl"});
    EXPECT_EQ(job.train.method, "lora");
    EXPECT_EQ(job.lora.r, 8);
    EXPECT_EQ(job.lora.lora_alpha, 16);
    EXPECT_EQ(job.lora.lora_dropout, 0.05);  // TRL's own
    EXPECT_EQ(job.lora.target_modules,
              (std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj"}));
    EXPECT_EQ(job.train.bf16, true);
    EXPECT_EQ(job.train.output_dir, "runs/trl");
    EXPECT_EQ(job.train.num_train_epochs, 2);
    EXPECT_EQ(job.train.per_device_train_batch_size, 4);
    EXPECT_EQ(job.train.gradient_accumulation_steps, 8);
    EXPECT_EQ(job.train.gradient_checkpointing, "true");
    EXPECT_EQ(job.train.learning_rate, 2e-4);
    EXPECT_EQ(job.train.lr_scheduler_type, "cosine_with_min_lr");
    EXPECT_EQ(job.train.lr_scheduler_kwargs.min_lr_rate, 0.1);
    EXPECT_EQ(job.train.warmup_ratio, 0.03);
    EXPECT_EQ(job.train.weight_decay, 0.01);
    EXPECT_EQ(job.train.max_length, 2048);
    EXPECT_TRUE(job.train.packing);
    EXPECT_EQ(job.train.neftune_noise_alpha, 5);
    EXPECT_EQ(job.train.seed, 7);
    EXPECT_FALSE(job.train.assistant_only_loss);  // TRL's own
    EXPECT_EQ(job.train.report_to, "tensorboard");
    EXPECT_EQ(job.train.optim, "paged_adamw_8bit");
    EXPECT_LEFT_OUT(imported, "attn_implementation", "linear memory");
    EXPECT_LEFT_OUT(imported, "save_strategy", "counted in steps");
    EXPECT_LEFT_OUT(imported, "report_to", "not connected");
    EXPECT_TRUE(job.lora.use_dora);
    // Off, or nothing to say.
    EXPECT_EQ(left_out(imported, "load_in_4bit"), "");
    EXPECT_EQ(left_out(imported, "push_to_hub"), "");
    EXPECT_NE(left_out(imported, "attn_implementation").find("trl.yaml:4: "), std::string::npos);
}

TEST(ImportConfig, Axolotl) {
    const ImportedConfig imported = import_file("axolotl.yaml");
    EXPECT_EQ(imported.dialect, Dialect::axolotl);
    const JobConfig job = job_of(imported);
    EXPECT_EQ(job.model, "models/base");
    EXPECT_EQ(job.data.train, (std::vector<std::string>{"rows/chats.jsonl", "rows/more.jsonl"}));
    EXPECT_EQ(job.data.validation_fraction, 0.05);
    EXPECT_EQ(job.data.cache_dir, "last_run_prepared");
    EXPECT_TRUE(job.data.columns.empty());
    EXPECT_EQ(job.train.method, "lora");
    EXPECT_EQ(job.lora.r, 32);
    EXPECT_EQ(job.lora.lora_alpha, 16);
    EXPECT_EQ(job.lora.target_modules, std::vector<std::string>{"all-linear"});
    EXPECT_EQ(job.train.max_length, 4096);
    EXPECT_TRUE(job.train.packing);
    EXPECT_EQ(job.train.per_device_train_batch_size, 2);
    EXPECT_EQ(job.train.gradient_accumulation_steps, 4);
    EXPECT_EQ(job.train.num_train_epochs, 3);
    EXPECT_EQ(job.train.optim, "adamw_bnb_8bit");
    EXPECT_EQ(job.train.lr_scheduler_type, "cosine_with_min_lr");
    EXPECT_EQ(job.train.lr_scheduler_kwargs.min_lr_rate, 0.1);
    EXPECT_EQ(job.train.warmup_steps, 10);
    EXPECT_TRUE(job.train.assistant_only_loss);
    EXPECT_FALSE(job.train.bf16.has_value());
    EXPECT_LEFT_OUT(imported, "auto_resume_from_checkpoints", "train.resume_from_checkpoint=true");
    EXPECT_EQ(left_out(imported, "datasets.0.field_messages"), "");
    EXPECT_EQ(left_out(imported, "train.group_by_length"), "");
    EXPECT_EQ(left_out(imported, "adapter"), "");
    EXPECT_TRUE(job.four_bit.load_in_4bit);
    EXPECT_EQ(job.four_bit.quant_type, "nf4");
    EXPECT_TRUE(job.four_bit.use_double_quant);
    EXPECT_LEFT_OUT(imported, "evals_per_epoch", "train.eval_steps");
    EXPECT_LEFT_OUT(imported, "flash_attention", "linear memory");
    EXPECT_LEFT_OUT(imported, "special_tokens.pad_token", "model's own files");
}

TEST(ImportConfig, LlamaFactory) {
    const ImportedConfig imported = import_file("llama_factory.yaml");
    EXPECT_EQ(imported.dialect, Dialect::llama_factory);
    const JobConfig job = job_of(imported);
    EXPECT_EQ(job.data.train, std::vector<std::string>{"rows/chats.jsonl"});
    EXPECT_EQ(job.data.validation, std::vector<std::string>{"rows/held_out.jsonl"});
    EXPECT_EQ(job.lora.r, 8);
    EXPECT_EQ(job.lora.lora_alpha, 16);  // twice the rank
    EXPECT_EQ(job.lora.target_modules, std::vector<std::string>{"all-linear"});
    EXPECT_EQ(job.train.max_length, 2048);
    EXPECT_EQ(job.train.eval_steps, 500);
    EXPECT_EQ(job.train.save_steps, 500);
    EXPECT_TRUE(job.train.overwrite_output_dir);
    EXPECT_TRUE(job.train.assistant_only_loss);
    EXPECT_EQ(job.train.resume_from_checkpoint, "false");
    EXPECT_LEFT_OUT(imported, "template", "chat template");
    EXPECT_EQ(job.data.max_rows, 1000);
    EXPECT_EQ(job.loraplus_lr_ratio, 16);
    EXPECT_LEFT_OUT(imported, "trust_remote_code", "no code");
}

TEST(ImportConfig, Unsloth) {
    const ImportedConfig imported = import_file("unsloth.yaml");
    EXPECT_EQ(imported.dialect, Dialect::unsloth);
    const JobConfig job = job_of(imported);
    EXPECT_EQ(job.model, "models/base");
    EXPECT_EQ(job.data.train, std::vector<std::string>{"rows/texts.jsonl"});
    EXPECT_EQ(job.lora.r, 16);
    EXPECT_EQ(job.lora.target_modules.size(), 7u);
    EXPECT_EQ(job.train.seed, 3407);
    EXPECT_EQ(job.train.max_steps, 60);
    EXPECT_EQ(job.train.gradient_checkpointing, "true");
    EXPECT_EQ(job.train.report_to, "none");
    EXPECT_TRUE(job.four_bit.load_in_4bit);
    EXPECT_EQ(job.four_bit.quant_type, "nf4");
    EXPECT_TRUE(job.four_bit.use_double_quant);
    EXPECT_LEFT_OUT(imported, "save.save_method", "garam merge");
}

TEST(ImportConfig, FourBits) {
    // LLaMA-Factory's rows are named in a table of its own.
    const TempDir dir;
    dir.write("dataset_info.json", R"({"x": {"file_name": "x.json"}})");
    const std::string rows = "dataset_dir: " + dir.path().string() + "\ndataset: x\n";
    const JobConfig trl = job_of(import_text(
        "model_name_or_path: a\ndataset_name: x.jsonl\nuse_peft: true\nload_in_4bit: true\n"
        "use_bnb_nested_quant: true\nbnb_4bit_compute_dtype: bfloat16\n"));
    EXPECT_TRUE(trl.four_bit.load_in_4bit);
    EXPECT_EQ(trl.four_bit.quant_type, "nf4");  // TRL's own default
    EXPECT_TRUE(trl.four_bit.use_double_quant);
    EXPECT_EQ(trl.four_bit.compute_dtype, "bfloat16");

    const JobConfig factory =
        job_of(import_text("model_name_or_path: a\nstage: sft\nfinetuning_type: lora\n" + rows +
                           "cutoff_len: 64\n"
                           "quantization_bit: 4\nquantization_method: bnb\nquantization_type: fp4\n"
                           "double_quantization: false\n"));
    EXPECT_TRUE(factory.four_bit.load_in_4bit);
    EXPECT_EQ(factory.four_bit.quant_type, "fp4");
    EXPECT_FALSE(factory.four_bit.use_double_quant);

    const ImportedConfig eight =
        import_text("model_name_or_path: a\nstage: sft\nfinetuning_type: lora\n" + rows +
                    "cutoff_len: 64\n"
                    "quantization_bit: 8\nquantization_method: hqq\n");
    EXPECT_FALSE(job_of(eight).four_bit.load_in_4bit);
    EXPECT_LEFT_OUT(eight, "quantization_bit", "load_in_4bit");
    EXPECT_LEFT_OUT(eight, "quantization_method", "bitsandbytes");

    const JobConfig axolotl =
        job_of(import_text("base_model: a\nadapter: qlora\nmicro_batch_size: 1\nsequence_len: "
                           "64\ndatasets:\n  - path: x.jsonl\n    type: chat_template\n"
                           "bnb_config_kwargs:\n  bnb_4bit_use_double_quant: false\n"));
    EXPECT_TRUE(axolotl.four_bit.load_in_4bit);
    EXPECT_EQ(axolotl.four_bit.quant_type, "nf4");
    EXPECT_FALSE(axolotl.four_bit.use_double_quant);
}

TEST(ImportConfig, SettingsOfPeft) {
    const ImportedConfig imported = import_text(
        "model_name: a\nmax_seq_length: 64\ndataset: x.jsonl\nlora:\n  r: 8\n  bias: lora_only\n"
        "  target_modules: '.*_proj'\n  exclude_modules: [o_proj]\n  init_lora_weights: True\n"
        "  modules_to_save: [lm_head]\n  trainable_token_indices: [5, 7]\n"
        "  rank_pattern:\n    q_proj: 4\n    '.*layers.1.*v_proj': 2\n"
        "  alpha_pattern:\n    up_proj: 32\n");
    EXPECT_TRUE(imported.left_out.empty()) << imported.left_out.front();
    const JobConfig job = job_of(imported);
    EXPECT_EQ(job.lora.bias, "lora_only");
    EXPECT_EQ(job.lora.target_modules, std::vector<std::string>{".*_proj"});
    EXPECT_EQ(job.lora.exclude_modules, std::vector<std::string>{"o_proj"});
    EXPECT_EQ(job.lora.modules_to_save, std::vector<std::string>{"lm_head"});
    EXPECT_EQ(job.lora.trainable_token_indices, (std::vector<std::int64_t>{5, 7}));
    using Numbers = std::vector<std::pair<std::string, double>>;
    EXPECT_EQ(job.lora.rank_pattern, (Numbers{{"q_proj", 4}, {".*layers.1.*v_proj", 2}}));
    EXPECT_EQ(job.lora.alpha_pattern, (Numbers{{"up_proj", 32}}));

    const ImportedConfig axolotl = import_text(
        "base_model: a\nadapter: lora\nlora_r: 8\nlora_alpha: 8\nlora_target_linear: true\n"
        "peft_layers_to_transform: [0, 2]\npeft_layers_pattern: layers\n"
        "lora_modules_to_save: [embed_tokens]\ntokens: ['<|think|>', '<|call|>']\n"
        "peft_init_lora_weights: pissa_niter_4\ndatasets:\n  - path: x.jsonl\n    type: "
        "completion\n");
    EXPECT_EQ(job_of(axolotl).lora.layers_to_transform, (std::vector<std::int64_t>{0, 2}));
    EXPECT_EQ(job_of(axolotl).lora.modules_to_save, std::vector<std::string>{"embed_tokens"});
    EXPECT_EQ(job_of(axolotl).lora.layers_pattern, std::vector<std::string>{"layers"});
    EXPECT_EQ(job_of(axolotl).init_lora_weights, "pissa_niter_4");
    const std::vector<std::string> tokens{"<|think|>", "<|call|>"};
    EXPECT_EQ(job_of(axolotl).data.add_special_tokens, tokens);
    const ImportedConfig factory = import_text(
        "model_name_or_path: a\nstage: sft\nfinetuning_type: lora\nlora_target: all\n"
        "dataset: x.jsonl\nadd_special_tokens: <|think|>,<|call|>\n");
    EXPECT_EQ(job_of(factory).data.add_special_tokens, tokens);
    const ImportedConfig olora = import_text(
        "base_model: a\nadapter: lora\nlora_r: 8\nlora_alpha: 8\nlora_target_linear: true\n"
        "peft_init_lora_weights: olora\ndatasets:\n  - path: x.jsonl\n    type: completion\n");
    EXPECT_LEFT_OUT(olora, "peft_init_lora_weights", "out of the base weights");
}

TEST(ImportConfig, TheBestModelByItsMetric) {
    const std::string base =
        "model_name_or_path: a\nstage: sft\nfinetuning_type: lora\nlora_target: all\n"
        "dataset: x.jsonl\nval_size: 0.1\n";
    const JobConfig loss =
        job_of(import_text(base + "metric_for_best_model: eval_loss\ngreater_is_better: false\n"));
    EXPECT_EQ(loss.train.metric_for_best_model, "eval_loss");
    EXPECT_EQ(loss.train.greater_is_better, false);
    const ImportedConfig accuracy =
        import_text(base + "metric_for_best_model: eval_accuracy\ngreater_is_better: true\n");
    EXPECT_LEFT_OUT(accuracy, "train.metric_for_best_model", "eval.metrics");
    EXPECT_EQ(job_of(accuracy).train.greater_is_better, std::nullopt);
}

TEST(ImportConfig, AllWeightsAndRowsThatAreElsewhere) {
    const ImportedConfig imported = import_file("full_finetune.yaml");
    EXPECT_EQ(imported.dialect, Dialect::trl);
    EXPECT_NE(imported.yaml.find("trl-lib/Capybara"), std::string::npos) << imported.yaml;
    EXPECT_LEFT_OUT(imported, "train.warmup_ratio", "no warm-up");
    EXPECT_LEFT_OUT(imported, "train.group_by_length", "one length");
    EXPECT_LEFT_OUT(imported, "lora.lora_dropout", "all weights");
    EXPECT_LEFT_OUT(imported, "train.eval_steps", "data.validation");
    EXPECT_LEFT_OUT(imported, "deepspeed", "one process");
    const ImportedConfig remote =
        import_text("model_name_or_path: a\ndataset_name: s3://rows\nuse_peft: false\n");
    EXPECT_LEFT_OUT(remote, "dataset_name", "nothing is downloaded");
    EXPECT_NE(remote.to_text("f").find("# Before it can be trained with: data.train"),
              std::string::npos);

    const TempDir dir;
    const std::string file = dir.write("ours.yaml", imported.to_text("f")).string();
    const JobConfig job = load_job({file, "data.train=rows.jsonl"}).config;
    EXPECT_EQ(job.train.method, "full");
    EXPECT_EQ(job.train.lr_scheduler_type, "constant");
    EXPECT_TRUE(job.train.packing);
}

TEST(ImportConfig, ValuesThatAreWrongAreLeftOutWithTheReason) {
    const ImportedConfig imported = import_text(
        "base_model: a\nsequence_len: many\nlr_scheduler: one_cycle\noptimizer: lion\n"
        "adapter: lora\nlora_r: 8\nlora_alpha: 8\ndatasets:\n  - path: x.jsonl\n    type: "
        "alpaca\n");
    EXPECT_LEFT_OUT(imported, "sequence_len", "is not a whole number");
    EXPECT_LEFT_OUT(imported, "lr_scheduler", "none of");
    EXPECT_LEFT_OUT(imported, "optimizer", "AdamW");
    EXPECT_EQ(job_of(imported).train.lr_scheduler_type, "cosine");
}

TEST(ImportConfig, ListsOfDataSetsWithTheirColumns) {
    const ImportedConfig imported = import_text(
        "base_model: a\nadapter: lora\nlora_r: 8\nlora_alpha: 8\nlora_target_linear: true\n"
        "micro_batch_size: 1\nchat_template: chatml\n"
        "datasets:\n  - path: json\n    data_files: [a.json, b.json]\n    type: chat_template\n"
        "    split: train[:90%]\n    field_messages: talk\n"
        "    message_property_mappings: {role: who, content: said}\n"
        "    roles: {user: [customer, human], assistant: [agent]}\n"
        "  - path: org/name\n    name: small\n    split: test\n    field_messages: other\n"
        "    type: input_output\n    roles_to_train: [user]\n"
        "  - path: c.parquet\n    type: alpaca\n"
        "test_datasets:\n  - path: d.csv\n    type: completion\n    field: body\n");
    const JobConfig job = job_of(imported);
    EXPECT_EQ(job.data.train,
              (std::vector<std::string>{"a.json", "b.json", "org/name", "c.parquet"}));
    EXPECT_EQ(job.data.train_split, "train[:90%]");
    EXPECT_EQ(job.data.validation, std::vector<std::string>{"d.csv"});
    EXPECT_EQ(
        job.data.columns,
        (TextMap{{"messages", "talk"}, {"role", "who"}, {"content", "said"}, {"text", "body"}}));
    EXPECT_EQ(job.data.roles, (TextMap{{"customer", "user"}, {"agent", "assistant"}}));
    EXPECT_EQ(job.data.chat_template, "chatml");
    EXPECT_LEFT_OUT(imported, "datasets.1.name", "configurations");
    EXPECT_LEFT_OUT(imported, "datasets.1.split", "all sources");
    EXPECT_LEFT_OUT(imported, "datasets.1.field_messages", "all sources");
    EXPECT_LEFT_OUT(imported, "datasets.1.type", "data.columns");
    EXPECT_LEFT_OUT(imported, "datasets.1.roles_to_train", "data.roles");
    EXPECT_EQ(left_out(imported, "datasets.2.type"), "");
}

TEST(ImportConfig, SplitsOfTrl) {
    const ImportedConfig imported = import_text(
        "model_name_or_path: a\nuse_peft: true\ndataset_name: org/name\ndataset_config: en\n"
        "dataset_train_split: train_sft\ndataset_test_split: test_sft\neval_strategy: steps\n"
        "eval_steps: 10\nchat_template_path: own.jinja\n");
    const JobConfig job = job_of(imported);
    EXPECT_EQ(job.data.train, std::vector<std::string>{"org/name"});
    EXPECT_EQ(job.data.train_split, "train_sft");
    EXPECT_EQ(job.data.validation_split, "test_sft");
    EXPECT_EQ(job.data.chat_template, "own.jinja");
    EXPECT_EQ(job.train.eval_steps, 10);
    EXPECT_LEFT_OUT(imported, "dataset_config", "configurations");
    const ImportedConfig without = import_text(
        "model_name_or_path: a\nuse_peft: true\ndataset_name: org/name\n"
        "dataset_test_split: test_sft\neval_strategy: 'no'\n");
    EXPECT_EQ(job_of(without).data.validation_split, "");
}

TEST(ImportConfig, NamesOfLlamaFactoryStandInItsTable) {
    const TempDir dir;
    dir.write("dataset_info.json", R"({
        "calls": {"file_name": "calls.json", "formatting": "sharegpt",
                  "columns": {"messages": "talk", "tools": "functions"},
                  "tags": {"role_tag": "who", "content_tag": "said", "user_tag": "customer",
                           "assistant_tag": "agent", "function_tag": "call"}},
        "hub": {"hf_hub_url": "org/name", "subset": "en", "split": "sft"},
        "asks": {"file_name": "asks.json", "columns": {"prompt": "ask", "response": "say", "history": "past"}},
        "pairs": {"file_name": "pairs.json", "ranking": true},
        "scripted": {"script_url": "x"}})");
    const ImportedConfig imported = import_text(
        "model_name_or_path: a\nstage: sft\nfinetuning_type: lora\nlora_target: "
        "all\ndataset_dir: " +
        dir.path().string() +
        "\ndataset: calls, hub,asks,pairs,scripted,nowhere,rows/x.jsonl\nval_size: 0.1\n"
        "mask_history: true\n");
    const JobConfig job = job_of(imported);
    EXPECT_EQ(job.data.train,
              (std::vector<std::string>{(dir / "calls.json").string(), "org/name",
                                        (dir / "asks.json").string(), "rows/x.jsonl"}));
    EXPECT_EQ(job.data.train_split, "sft");
    EXPECT_EQ(job.data.validation_fraction, 0.1);
    EXPECT_EQ(job.data.train_on_turns, "last");
    EXPECT_EQ(job.data.columns, (TextMap{{"messages", "talk"},
                                         {"tools", "functions"},
                                         {"role", "who"},
                                         {"content", "said"},
                                         {"instruction", "ask"},
                                         {"output", "say"}}));
    EXPECT_EQ(job.data.roles,
              (TextMap{{"customer", "user"}, {"agent", "assistant"}, {"call", "function_call"}}));
    std::string told;
    for (const std::string& line : imported.left_out)
        told += line + "\n";
    for (const char* part : {"preference data", "by script", "nowhere is a name of",
                             "history is not read", "hub: of several configurations"})
        EXPECT_NE(told.find(part), std::string::npos) << part << " in\n" << told;
}

std::string repeated(const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i)
        all += text;
    return all;
}

// What is told of each item is neither the whole list again nor told again.
TEST(ImportConfig, OfALongListItsBeginIsToldOnce) {
    const ImportedConfig imported =
        import_text("model_name_or_path: a\nuse_peft: true\nreport_to: [" +
                    repeated("\"" + repeated("é", 150) + "\", ", 30) + "wandb]\n");
    std::vector<std::string> told;
    for (const std::string& line : imported.left_out)
        if (line.find("report_to") != std::string::npos) told.push_back(line);
    ASSERT_EQ(told.size(), 1u);
    EXPECT_LT(told[0].size(), 400u);
    EXPECT_NE(told[0].find("é…"), std::string::npos) << told[0];
    EXPECT_NE(told[0].find("not connected"), std::string::npos) << told[0];
}

TEST(ImportConfig, ListsOfManyDataSetsAreRead) {
    std::string text = "base_model: a\nadapter: lora\ndatasets:\n";
    for (int i = 0; i < 4000; ++i)
        text += "  - {path: \"f" + std::to_string(i) + "\", type: alpaca}\n";
    const ImportedConfig imported = import_text(text);
    const std::vector<std::string> train = job_of(imported).data.train;
    ASSERT_EQ(train.size(), 4000u);
    EXPECT_EQ(train[3999], "f3999");
}

TEST(ImportConfig, HostileFilesEndInErrors) {
    const auto refusal = [](const std::string& text) {
        std::string told;
        const std::size_t peak = testing::peak_allocation_of([&] {
            try {
                import_text(text);
            } catch (const Error& error) {
                told = error.what();
            }
        });
        EXPECT_LE(peak, (std::size_t{64} << 20) + 400 * text.size()) << text.substr(0, 200);
        return told;
    };
    const std::string factory =
        "model_name_or_path: a\nstage: sft\nfinetuning_type: lora\nlora_target: all\n";
    const std::string axolotl = "base_model: a\nadapter: lora\ndatasets:\n";
    std::string names;
    for (int i = 0; i < 9000; ++i)
        names += "n" + std::to_string(i) + ",";
    EXPECT_EQ(refusal(factory + "dataset: " + names + "\n"), "");
    EXPECT_EQ(refusal(factory + "dataset_dir: " + std::string(100'000, 'd') +
                      "\ndataset: " + names + "\n"),
              "");
    EXPECT_EQ(refusal(factory + "dataset: " + repeated("a,", 100'000) + "\n"),
              "f.yaml:5: too many values for a config");
    // Each repeats a long text.
    EXPECT_EQ(refusal(axolotl + "  - {data_dir: " + std::string(100'000, 'd') + ", data_files: [" +
                      repeated("a, ", 5000) + "]}\n"),
              "f.yaml:4: too much text for a config");
    EXPECT_EQ(refusal(axolotl + "  - path: a\n    roles:\n      ? " + std::string(100'000, 'r') +
                      "\n      : \"" + names + "\"\n"),
              "f.yaml:6: too much text for a config");
}

TEST(ImportConfig, RefusesWhatIsNobodys) {
    const auto refusal = [](const std::string& text) -> std::string {
        try {
            import_text(text);
        } catch (const Error& error) {
            return error.what();
        }
        return "accepted";
    };
    EXPECT_NE(refusal("colour: red\n").find("holds no key by which"), std::string::npos);
    EXPECT_NE(refusal("").find("holds no key by which"), std::string::npos);
    EXPECT_NE(refusal("model: a\ntrain:\n  seed: 1\n").find("is a config of garam already"),
              std::string::npos);
    EXPECT_NE(refusal("a: [b\n").find("not valid YAML"), std::string::npos);
}

TEST(ImportConfig, WritesAFileOnce) {
    const TempDir dir;
    const auto theirs = testing::source_dir() / "tests/app/foreign_configs/axolotl.yaml";
    const auto printed = run_garam({"import-config", theirs.string()});
    EXPECT_EQ(printed.status, 0) << printed.err;
    EXPECT_EQ(printed.out.find("# " + theirs.string() + " (axolotl) in garam's keys."), 0u);
    const std::string out = (dir / "ours.yaml").string();
    const auto written = run_garam({"import-config", theirs.string(), "--out", out});
    EXPECT_EQ(written.status, 0) << written.err;
    EXPECT_EQ(testing::read_file(out), printed.out);
    EXPECT_EQ(run_garam({"config", out}).status, 0);
    EXPECT_EQ(run_garam({"import-config", theirs.string(), "--out", out}).status, 2);
}

}  // namespace
}  // namespace garam
