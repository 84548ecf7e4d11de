// `garam export` as a user runs it: what is read back speaks as the model does.
#include <gtest/gtest.h>

#include <filesystem>

#include "app/run_garam.h"
#include "garam/core/json.h"
#include "garam/io/peft_adapter.h"
#include "garam/models/decoder_family.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::data_dir;
using testing::path_of;
using testing::read_file;
using testing::run_garam;
using testing::RunResult;
using testing::TempDir;
using testing::text_of;

constexpr const char* kBase = "golden/stories260K-hf";
constexpr const char* kAdapter = "golden/peft/case3_rslora_r8_all";

void export_ok(const std::vector<std::string>& arguments, const std::string& part) {
    std::vector<std::string> all = {"export"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const RunResult result = run_garam(all);
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find(part), std::string::npos) << result.out;
}

TEST(ExportCommand, TheFileSpeaksAsTheModelDoes) {
    GARAM_REQUIRE_DATA(kBase);
    const TempDir dir;
    const std::string text = text_of({path_of(kBase)});
    // The blocks of 4 bits move the text of so small a model; that they are near is tested elsewhere.
    for (const char* type : {"base", "f32", "f16", "bf16", "q8_0"}) {
        const std::string out = (dir / (std::string(type) + ".gguf")).string();
        export_ok({path_of(kBase), out, "--type", type, "--to", "gguf"}, "47 tensors");
        EXPECT_EQ(text_of({out}), text) << type;
    }
    for (const char* type : {"q4_0", "q4_k"}) {
        const std::string out = (dir / (std::string(type) + ".gguf")).string();
        export_ok({path_of(kBase), out, "--type", type}, "of a wider type");
        EXPECT_EQ(text_of({out}).substr(0, 30), text.substr(0, 30)) << type;
    }
}

TEST(ExportCommand, MergedAndAlone) {
    GARAM_REQUIRE_DATA(kAdapter);
    const TempDir dir;
    const std::string merged = (dir / "merged.gguf").string();
    const std::string alone = (dir / "alone.gguf").string();
    export_ok({path_of(kBase), merged, "--adapter", path_of(kAdapter), "--type", "f32"},
              "35 merged");
    export_ok({path_of(kBase), alone, "--adapter", path_of(kAdapter), "--adapter-only"},
              "70 tensors of rank 8");
    const std::string text = text_of({path_of(kBase), "--adapter", path_of(kAdapter)});
    EXPECT_EQ(text_of({merged}), text);
    EXPECT_EQ(text_of({path_of(kBase), "--adapter", alone}), text);
    // An adapter file serves wherever a folder does.
    const std::string folder = (dir / "folder").string();
    EXPECT_EQ(run_garam({"merge", path_of(kBase), alone, folder}).status, 0);
    EXPECT_EQ(text_of({folder}), text);
    const std::string again = (dir / "again.gguf").string();
    export_ok({path_of(kBase), again, "--adapter", alone, "--type", "f32"}, "35 merged");
    EXPECT_EQ(text_of({again}), text);
}

TEST(ExportCommand, ModelfileBesideTheFile) {
    GARAM_REQUIRE_DATA(kAdapter);
    const TempDir dir;
    const std::string out = (dir / "m.gguf").string();
    export_ok({path_of(kBase), out, "--ollama"}, "Modelfile");
    EXPECT_EQ(read_file(dir / "Modelfile"), "FROM ./m.gguf\n");  // this model has no template
    const RunResult existing =
        run_garam({"export", path_of(kBase), (dir / "n.gguf").string(), "--ollama"});
    EXPECT_EQ(existing.status, 2);
    EXPECT_NE(existing.err.find("Modelfile exists already"), std::string::npos) << existing.err;

    fs::create_directory(dir / "alone");
    export_ok({out, (dir / "alone/a.gguf").string(), "--adapter", path_of(kAdapter),
               "--adapter-only", "--ollama"},
              "Modelfile");
    EXPECT_EQ(read_file(dir / "alone/Modelfile"), "FROM " + out + "\nADAPTER ./a.gguf\n");
}

TEST(ExportCommand, AModelOfTheHubsCacheByItsName) {
    GARAM_REQUIRE_DATA(kAdapter);
    const TempDir dir;
    const fs::path snapshot = dir / "hub/models--small--stories/snapshots/0123abcd";
    fs::create_directories(snapshot.parent_path());
    fs::create_directory_symlink(path_of(kBase), snapshot);
    fs::create_directories(dir / "hub/models--small--stories/refs");
    dir.write("hub/models--small--stories/refs/main", "0123abcd");
    const std::string command = "HF_HUB_CACHE=hub $GARAM export small/stories ";
    const RunResult model =
        testing::run_shell(command + "m.gguf --type f32 --ollama", dir.path().string());
    ASSERT_EQ(model.status, 0) << model.err;
    EXPECT_EQ(text_of({(dir / "m.gguf").string()}), text_of({path_of(kBase)}));
    fs::remove(dir / "Modelfile");
    const RunResult alone = testing::run_shell(
        command + "a.gguf --adapter-only --ollama --adapter '" + path_of(kAdapter) + "'",
        dir.path().string());
    ASSERT_EQ(alone.status, 0) << alone.err;
    EXPECT_EQ(read_file(dir / "Modelfile"), "FROM " + snapshot.string() + "\nADAPTER ./a.gguf\n");
}

// PEFT over Transformers' own class gives other names than PEFT over EXAONE's remote code.
TEST(ExportCommand, AnAdapterAloneUnderTransformersNames) {
    const std::string base = "golden/families/exaone-3.5";
    GARAM_REQUIRE_DATA(base);
    const TempDir dir;
    PeftAdapter adapter = read_peft_adapter(data_dir() / base / "adapter");
    const DecoderFamily& family = family_of(Json::parse(R"({"model_type": "exaone"})", ""), "");
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (AdapterTensor& tensor : adapter.tensors) {
        const std::size_t begin = std::string("base_model.model.").size();
        const std::size_t end = tensor.name.rfind(".lora_");
        tensors.emplace_back(
            "base_model.model." + common_module(family, tensor.name.substr(begin, end - begin)) +
                tensor.name.substr(end),
            Tensor(tensor.values.data(), DType::f32, tensor.shape, DeviceKind::cpu));
    }
    std::vector<std::pair<std::string, Tensor>> own;
    for (std::size_t t = 0; t < tensors.size(); ++t)
        own.emplace_back(own_adapter_key(family, tensors[t].first), tensors[t].second);
    adapter.settings.alpha_pattern = {{"c_fc_0", 4}};
    fs::create_directory(dir / "own");
    write_peft_adapter(dir / "own", adapter.settings, own);
    adapter.settings.alpha_pattern = {{"gate_proj", 4}};
    adapter.settings.target_modules = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                       "gate_proj", "up_proj", "down_proj"};
    fs::create_directory(dir / "renamed");
    write_peft_adapter(dir / "renamed", adapter.settings, tensors);
    const std::string model = path_of(base.c_str());
    const std::string count = std::to_string(tensors.size()) + " tensors";
    export_ok(
        {model, (dir / "a.gguf").string(), "--adapter-only", "--adapter", (dir / "own").string()},
        count);
    export_ok({model, (dir / "b.gguf").string(), "--adapter-only", "--adapter",
               (dir / "renamed").string()},
              count);
    EXPECT_TRUE(read_file(dir / "a.gguf") == read_file(dir / "b.gguf"));
}

TEST(ExportCommand, MistakesLeaveNothingBehind) {
    GARAM_REQUIRE_DATA(kAdapter);
    const TempDir dir;
    const std::string out = (dir / "m.gguf").string();
    const auto refused = [&](const std::vector<std::string>& arguments, const std::string& part) {
        std::vector<std::string> all = {"export"};
        all.insert(all.end(), arguments.begin(), arguments.end());
        const RunResult result = run_garam(all);
        EXPECT_EQ(result.status, 2) << result.err;
        EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
        EXPECT_TRUE(fs::is_empty(dir.path()));
    };
    refused({path_of(kBase), (dir / "m.bin").string()}, "ends in .gguf");
    refused({path_of(kBase), out, "--type", "q5_1"}, "--type q5_1 is not supported");
    refused({path_of(kBase), out, "--to", "onnx"}, "--to onnx is not supported");
    refused({path_of(kBase), out, "--adapter-only"}, "--adapter-only needs --adapter");
    refused(
        {path_of(kBase), out, "--adapter", path_of(kAdapter), "--adapter-only", "--type", "q8_0"},
        "for an adapter alone");
    refused({path_of(kBase), out, "--adapter", (dir / "absent").string()}, "absent");
    refused({path_of(kBase), out, "--adapter", path_of("golden/peft/case4_dora_r8_all"),
             "--adapter-only"},
            "no magnitudes");
    refused({path_of(kBase), out, "--adapter",
             path_of("golden/families/llama-llama3rope-tied/adapter")},
            "another base");
    const RunResult full = testing::run_shell(
        "ulimit -f 100; $GARAM export '" + path_of(kBase) + "' m.gguf", dir.path().string());
    EXPECT_EQ(full.status, 2);
    EXPECT_NE(full.err.find("File too large"), std::string::npos) << full.err;
    EXPECT_TRUE(fs::is_empty(dir.path()));
    dir.write("m.gguf", "x");
    const RunResult existing = run_garam({"export", path_of(kBase), out});
    EXPECT_EQ(existing.status, 2);
    EXPECT_NE(existing.err.find("exists already"), std::string::npos);
}

}  // namespace
}  // namespace garam
