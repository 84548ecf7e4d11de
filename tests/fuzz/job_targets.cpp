#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "fuzz/seeds.h"
#include "fuzz/target.h"
#include "garam/app/config_import.h"
#include "garam/core/error.h"
#include "garam/core/json.h"
#include "garam/core/product_table.h"
#include "garam/io/event_file.h"
#include "garam/train/checkpoint.h"
#include "garam/train/job_config.h"
#include "garam/train/metrics_log.h"
#include "garam/train/trainer_state.h"
#include "testing/temp_dir.h"
#include "train/run_state.h"

namespace garam::fuzz {
namespace {

namespace fs = std::filesystem;

Target json_target() {
    Target target;
    target.name = "json";
    target.files = {"file.json"};
    target.bytes = std::size_t{1} << 20;
    target.bytes_per_byte = 200;
    target.seeds = [] {
        std::vector<InputFiles> seeds;
        for (const std::string& text :
             {std::string(
                  "{\"a\": [1, -2.5e3, true, null, \"\\u00e9\\n\"], \"b\": {\"\": {}}, \"a\": []}"),
              std::string("[9223372036854775807, 9223372036854775808, 1e308, \"\U0001f600\"]"),
              SmallModel::config(), SmallModel::tokenizer_config()})
            seeds.push_back({{"file.json", text}});
        return seeds;
    };
    target.run = [](const Execution& execution) {
        const Json json = Json::parse(execution.bytes("file.json"), "file.json");
        const std::string text = json.dump();
        expect(Json::parse(text, "dump").dump() == text, "JSON differs after writing and reading");
    };
    return target;
}

Target yaml_target() {
    Target target;
    target.name = "yaml";
    target.files = {"config.yaml"};
    // Not tied to a small file: 10,000 values of all aliases may be there.
    target.bytes = std::size_t{64} << 20;
    target.bytes_per_byte = 400;
    target.words = {"&a ",
                    "*a",
                    "a: &a [*a]\n",
                    "<<: *a\n",
                    "? ",
                    "- ",
                    "  ",
                    "\t",
                    "|\n",
                    ">-\n",
                    "!!str ",
                    "!x ",
                    "---\n",
                    "...\n",
                    "%YAML 1.2\n",
                    "{",
                    "}",
                    "[",
                    "]",
                    ": ",
                    ", ",
                    "#",
                    "'",
                    "\"",
                    "\"\\x41\\u00e9\"",
                    "~",
                    "null",
                    "yes",
                    "0x10",
                    "1e-4",
                    ".inf",
                    ".nan",
                    "1_000",
                    "train:\n  ",
                    "lora:\n  ",
                    "data:\n  ",
                    "model: ",
                    "train.seed: ",
                    "learning_rate: ",
                    "target_modules: ",
                    "max_steps: ",
                    "{a: {a: {a: "};
    target.seeds = [] {
        JobConfig config;
        config.model = "m";
        config.data.train = {"rows.jsonl"};
        return std::vector<InputFiles>{
            {{"config.yaml",
              testing::read_file(source_folder() / "examples" / "spam" / "config.yaml")}},
            {{"config.yaml", describe(config).to_yaml()}},
            {{"config.yaml",
              "a: &x {b: [1, 2, 'c'], d: ~}\ne: *x\n\"f\": |\n  text\n  more\ntrain.seed: 1\n"}}};
    };
    target.run = [](const Execution& execution) {
        const std::vector<ConfigLine> lines = read_yaml_config(execution / "config.yaml");
        JobConfig config;
        ConfigTable table = describe(config);
        for (const ConfigLine& line : lines)
            table.set(line.key, line.value, line.source);
        validate(config);
        const std::string yaml = table.to_yaml();
        JobConfig again;
        ConfigTable other = describe(again);
        for (const ConfigLine& line : parse_yaml_config(yaml, "written"))
            other.set(line.key, line.value, line.source);
        expect(other.to_yaml() == yaml, "a config differs after writing and reading");
    };
    return target;
}

// Configs of other trainers.
Target import_target() {
    Target target;
    target.name = "import";
    target.files = {"config.yaml"};
    // As of YAML, and a line of reasons beside each of 10,000 values.
    target.bytes = std::size_t{64} << 20;
    target.bytes_per_byte = 400;
    target.words = {"model_name_or_path: ",
                    "base_model: ",
                    "adapter: ",
                    "finetuning_type: ",
                    "stage: ",
                    "datasets:\n  - path: ",
                    "type: ",
                    "chat_template",
                    "lora_r: ",
                    "lora_rank: ",
                    "lora_alpha: ",
                    "lora_target: ",
                    "lora_target_linear: ",
                    "lora_target_modules: ",
                    "all-linear",
                    "max_seq_length: ",
                    "sequence_len: ",
                    "cutoff_len: ",
                    "micro_batch_size: ",
                    "optimizer: ",
                    "optim: ",
                    "adamw_bnb_8bit",
                    "lr_scheduler: ",
                    "lr_scheduler_kwargs: {min_lr_rate: ",
                    "cosine_min_lr_ratio: ",
                    "warmup_steps: ",
                    "warmup_ratio: ",
                    "torch_dtype: ",
                    "bf16: auto\n",
                    "gradient_checkpointing: ",
                    "eval_strategy: ",
                    "save_strategy: ",
                    "val_set_size: ",
                    "report_to: ",
                    "train_on_inputs: ",
                    "load_in_4bit: ",
                    "use_peft: ",
                    "packing: ",
                    "seed: ",
                    "null",
                    "yes",
                    "off",
                    "[]",
                    "- ",
                    ": ",
                    "\"\\n\"",
                    "\"\\u2028#\"",
                    "*a",
                    "&a "};
    target.seeds = [] {
        const fs::path folder = source_folder() / "tests" / "app" / "foreign_configs";
        return reference_files(folder, ".yaml", "config.yaml");
    };
    target.run = [](const Execution& execution) {
        const ImportedConfig imported = import_config(
            read_yaml_config(execution / "config.yaml", YamlLists::of_maps), "config.yaml");
        // What was left out stays within its comments, and the result is a config of ours.
        const std::vector<ConfigLine> lines =
            parse_yaml_config(imported.to_text("config.yaml"), "imported");
        JobConfig config;
        ConfigTable table = describe(config);
        for (const ConfigLine& line : lines)
            table.set(line.key, line.value, line.source);
        expect(table.to_yaml(true) == imported.yaml, "an imported config reads back otherwise");
        if (imported.missing.empty()) validate(config);
    };
    return target;
}

// The checksum that garam's state files carry, found by asking garam for that of a file.
std::string checksum_of(const std::string& bytes, const WorkFolder& folder) {
    const fs::path path = folder.path() / "checksum";
    std::ofstream(path, std::ios::binary) << bytes;
    const std::string checksum = record_file(path).checksum;
    fs::remove(path);
    return checksum;
}

// Makes checksums and sizes those of the changed files, so that what lies behind them is read.
void mend_checkpoint(InputFiles& files) {
    static const WorkFolder folder;
    InputFile* state_file = nullptr;
    for (InputFile& file : files)
        if (file.name == kStateFileName) state_file = &file;
    if (state_file == nullptr) return;
    try {
        Json state = Json::parse(state_file->bytes, "state");
        Json listed;
        if (const Json* old = state.find("files"); old != nullptr) listed = *old;
        for (const InputFile& file : files) {
            if (&file == state_file || listed.find(file.name) == nullptr) continue;
            listed.set(file.name,
                       Json::Object{{"bytes", static_cast<std::int64_t>(file.bytes.size())},
                                    {"checksum", checksum_of(file.bytes, folder)}});
        }
        Json without{Json::Object{}};
        for (const auto& [key, value] : state.object())
            if (key != "checksum") without.set(key, key == "files" ? listed : value);
        without.set("checksum", checksum_of(without.dump(), folder));
        state_file->bytes = without.dump(1);
    } catch (const Error&) {
        return;
    }
}

Target checkpoint_target() {
    Target target;
    target.name = "checkpoint";
    target.files = {"trainer_state.json", "adapter_model.safetensors", "optimizer.safetensors"};
    // Files are summed in blocks of 1 MiB.
    target.bytes = std::size_t{4} << 20;
    target.bytes_per_byte = 200;
    target.words = {"files",
                    "bytes",
                    "checksum",
                    "masters_file",
                    "optimizer_file",
                    "identity",
                    "global_step",
                    "format_version",
                    "..",
                    "/dev/zero",
                    ".",
                    "trainer_state.json",
                    "optimizer.safetensors"};
    target.seeds = [] {
        const testing::TempDir folder;
        const testing::RunTensors run(0.1f);
        CheckpointContents contents;
        contents.state = testing::state_at(12);
        contents.masters = run.masters;
        contents.optimizer = run.optimizer;
        contents.masters_file = "adapter_model.safetensors";
        contents.write_model = [&](const fs::path& path) {
            write_safetensors(path / "adapter_model.safetensors", run.masters);
        };
        const fs::path checkpoint = save_checkpoint(folder.path() / "out", contents);
        return std::vector<InputFiles>{
            files_of(checkpoint,
                     {"trainer_state.json", "adapter_model.safetensors", "optimizer.safetensors"})};
    };
    target.run = [](const Execution& execution) {
        const Checkpoint checkpoint = Checkpoint::open(execution.folder);
        testing::RunTensors run;
        checkpoint.restore(run.masters, run.optimizer);
        for (const auto& values : run.memory)
            for (const float value : values)
                expect(std::isfinite(value), "a restored value is not finite");
        static_cast<void>(differences(checkpoint.state().identity, testing::state_at(1).identity));
    };
    target.mend = mend_checkpoint;
    return target;
}

Target metrics_target() {
    Target target;
    target.name = "metrics";
    target.files = {"metrics.jsonl"};
    target.bytes = std::size_t{1} << 20;
    target.bytes_per_byte = 200;
    target.words = {"step", "epoch", "loss", "eval_loss"};
    target.seeds = [] {
        return std::vector<InputFiles>{
            {{"metrics.jsonl",
              "{\"step\": 1, \"loss\": 2.5}\n{\"step\": 3, \"epoch\": 0.5, "
              "\"eval_loss\": null}\n{\"step\": 9}\n{\"st"}}};
    };
    target.run = [](const Execution& execution) {
        MetricsLog log(execution / "metrics.jsonl", 5);
        log.on_step({});
    };
    return target;
}

Target products_target() {
    Target target;
    target.name = "products";
    target.files = {kProductTableFile};
    target.bytes = std::size_t{1} << 20;
    target.bytes_per_byte = 200;
    target.words = {"algorithm", "split_k", "addend",       "in_place",
                    "separate",  "tail",    "two_products", "products"};
    target.seeds = [] {
        ProductTable table;
        table.home = {"card", 90, 130100};
        ProductShape shape;
        shape.m = 64;
        shape.n = 24;
        shape.k = 40;
        shape.tail = 8;
        shape.a_pitch = shape.b_pitch = 40;
        shape.c_pitch = 24;
        shape.transpose_b = true;
        TunedProduct tuned;
        tuned.algorithm = ProductAlgorithm{66, 20, 36, 4, 2, 1, 3, 0, 5};
        tuned.calls = 3;
        table.products[shape] = tuned;
        shape.bias = true;
        table.products[shape] = {};
        return std::vector<InputFiles>{{{kProductTableFile, table.to_text()}}};
    };
    target.run = [](const Execution& execution) {
        const ProductTable table = ProductTable::read(execution / kProductTableFile);
        const ProductTable again = ProductTable::parse(table.to_text(), "written");
        expect(again.chooses_as(table) && again.to_text() == table.to_text(),
               "a table differs after writing and reading");
        for (const auto& [shape, tuned] : table.products) {
            static_cast<void>(shape.to_string());
            static_cast<void>(without_tail(shape));
            static_cast<void>(only_tail(shape));
        }
    };
    return target;
}

// garam writes event files and reads none: what it wrote of any tag and value must be whole records.
Target events_target() {
    Target target;
    target.name = "events";
    target.files = {"tags.txt"};
    target.bytes = std::size_t{1} << 20;
    target.bytes_per_byte = 100;
    target.words = {"train/loss", "\n"};
    target.seeds = [] {
        return std::vector<InputFiles>{{{"tags.txt", "train/loss\neval/loss\n\n\u00e9"}}};
    };
    target.run = [](const Execution& execution) {
        const fs::path folder = execution / "runs";
        fs::remove_all(folder);
        std::string_view left = execution.bytes("tags.txt");
        std::size_t written = 1;
        fs::path path;
        {
            EventFile file(folder);
            path = file.path();
            for (; !left.empty() && written < 50; ++written) {
                const std::string tag(left.substr(0, left.find('\n')));
                double value = 0;
                std::memcpy(&value, tag.data(), std::min(tag.size(), sizeof value));
                file.scalar(tag, value, static_cast<std::int64_t>(tag.size()) - 3);
                left.remove_prefix(std::min(tag.size() + 1, left.size()));
            }
        }
        const std::string bytes = testing::read_file(path);
        std::size_t records = 0;
        for (std::size_t at = 0; at < bytes.size(); ++records) {
            std::uint64_t length = 0;
            expect(bytes.size() - at >= 16, "a record is torn");
            std::memcpy(&length, bytes.data() + at, sizeof length);
            expect(length <= bytes.size() - at - 16, "a record is longer than the file");
            at += 16 + length;
        }
        expect(records == written, "records are missing");
    };
    return target;
}

}  // namespace

std::vector<Target> job_targets() {
    return {json_target(),    yaml_target(),     import_target(), checkpoint_target(),
            metrics_target(), products_target(), events_target()};
}

}  // namespace garam::fuzz
