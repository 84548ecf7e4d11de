// `garam quantize` as a user runs it.
#include <gtest/gtest.h>

#include <fstream>
#include <tuple>

#include "app/run_garam.h"
#include "garam/core/json.h"
#include "garam/io/model_files.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::path_of;
using testing::run_garam;
using testing::RunResult;
using testing::TempDir;

TEST(QuantizeCommand, TheFolderIsAModel) {
    const TempDir dir;
    testing::write_tiny_model(dir / "base", {});
    const std::string out = (dir / "nf4").string();
    const RunResult result =
        run_garam({"quantize", (dir / "base").string(), out, "--double", "--block-size", "128",
                   "--skip", "up_proj", "--skip", "gate_proj"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("10 of 20 tensors in nf4, blocks of 128, scales in 8 bits"),
              std::string::npos)
        << result.out;
    for (const char* file :
         {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"})
        EXPECT_TRUE(std::filesystem::exists(dir / "nf4" / file)) << file;
    const RunResult text = run_garam({"generate", out, "--prompt", "a", "--max-new-tokens", "4"});
    EXPECT_EQ(text.status, 0) << text.err;
}

// Transformers converts nothing of a folder in 4 bits: norms in f32, as a GGUF has them, would reach a head in f16.
TEST(QuantizeCommand, WhatIsLeftOfAGgufHasOneType) {
    GARAM_REQUIRE_DATA("golden/gguf/llama-f16.gguf");
    const TempDir dir;
    const std::string out = (dir / "nf4").string();
    const RunResult result = run_garam({"quantize", path_of("golden/gguf/llama-f16.gguf"), out});
    ASSERT_EQ(result.status, 0) << result.err;
    const ModelFiles written = ModelFiles::open(out);
    EXPECT_EQ(written.config().find("torch_dtype")->string(), "float16");
    for (const StoredTensor& tensor : written.tensors())
        if (tensor.four_bit == nullptr) {
            EXPECT_EQ(tensor.type, StoredType::f16) << tensor.name;
        }
}

TEST(QuantizeCommand, MistakesLeaveNothingBehind) {
    const TempDir models;
    testing::write_tiny_model(models / "base", {});
    const std::string base = (models / "base").string();
    const TempDir dir;
    const std::string out = (dir / "out").string();
    const auto refused = [&](const std::vector<std::string>& arguments, const std::string& part) {
        const RunResult result = run_garam(arguments);
        EXPECT_EQ(result.status, 2);
        EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
        EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
    };
    refused({"quantize", base, out, "--type", "int4"}, "supported: nf4, fp4");
    refused({"quantize", base, out, "--block-size", "96"}, "power of two from 32 to 4096");
    refused({"quantize", base, out, "--skip", "absent"}, "skipped module absent is none of");
    refused({"quantize", base, out, "--skip", "_proj"}, "nothing is left to quantise");
    refused({"quantize", (dir / "absent").string(), out}, "no such file or folder");
    // Files that are none of the model that their config describes would make a folder that nobody can load.
    const std::string other = (models / "other").string();
    for (const auto& [key, value, part] :
         {std::tuple{"num_hidden_layers", 3, "model.layers.2."},
          std::tuple{"num_hidden_layers", 1, "is not part of the model that the config describes"},
          std::tuple{"intermediate_size", 48, "but the config says [48, 24]"}}) {
        testing::write_tiny_model(other, {});
        Json config = Json::parse_file(models / "other" / "config.json");
        config.set(key, value);
        std::ofstream(models / "other" / "config.json") << config.dump();
        refused({"quantize", other, out}, part);
        refused({"export", other, out + ".gguf"}, part);
    }
    testing::write_tiny_model(other, {});
    std::fstream(models / "other" / "model.safetensors", std::ios::in | std::ios::out)
        .seekp(-4, std::ios::end)
        .write("\0\0\xc0\x7f", 4);
    refused({"quantize", other, out}, other + ": tensor ");
    const RunResult limited =
        testing::run_shell("ulimit -f 4; $GARAM quantize '" + base + "' out", dir.path().string());
    EXPECT_EQ(limited.status, 2);
    EXPECT_NE(limited.err.find("File too large"), std::string::npos) << limited.err;
    EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
    EXPECT_EQ(run_garam({"quantize", base, base}).status, 2);
}

}  // namespace
}  // namespace garam
