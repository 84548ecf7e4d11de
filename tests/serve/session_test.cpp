#include "garam/serve/session.h"

#include <gtest/gtest.h>

#include <fstream>

#include "garam/core/error.h"
#include "garam/io/peft_adapter.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::TempDir;
using testing::TinyModel;
using testing::write_tiny_model;

template <typename F>
std::string message_of(const F& call) {
    try {
        call();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

// An adapter of q_proj for a tiny model whose values are all `value`.
void write_adapter(const std::filesystem::path& folder, const TinyModel& model,
                   const std::string& base, float value, std::int64_t layers) {
    std::filesystem::create_directories(folder);
    LoraSettings settings;
    settings.r = 2;
    settings.lora_alpha = 4;
    settings.target_modules = {"q_proj"};
    settings.base_model_name_or_path = base;
    const std::int64_t out = model.num_heads * model.head_dim;
    std::vector<float> a(static_cast<std::size_t>(2 * model.hidden_size), value);
    std::vector<float> b(static_cast<std::size_t>(2 * out), value);
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (std::int64_t l = 0; l < layers; ++l) {
        const std::string path =
            "base_model.model.model.layers." + std::to_string(l) + ".self_attn.q_proj.lora_";
        tensors.emplace_back(path + "A.weight",
                             Tensor(a.data(), DType::f32, {2, model.hidden_size}, DeviceKind::cpu));
        tensors.emplace_back(path + "B.weight",
                             Tensor(b.data(), DType::f32, {out, 2}, DeviceKind::cpu));
    }
    write_peft_adapter(folder, settings, tensors);
}

std::vector<float> logits_after(Session& session, const std::vector<std::int32_t>& ids) {
    KvCache cache = session.decoder().make_cache(64);
    std::vector<float> logits;
    session.decoder().decode(session.stream(), cache, ids, logits);
    return logits;
}

TEST(Session, StepMemoryIsWhatTheLargestCallNeeds) {
    const TempDir dir;
    TinyModel model;
    model.max_positions = 600;
    write_tiny_model(dir / "model", model);
    Session session({.model = dir / "model", .dtype = "f32"});
    KvCache cache = session.decoder().make_cache(session.context());
    std::vector<float> logits;
    const std::vector<std::int32_t> chunk(kPrefillChunk, 65);
    session.decoder().decode(session.stream(), cache, chunk, logits);
    session.decoder().decode(session.stream(), cache, chunk, logits);
    cache.length = session.context() - kPrefillChunk;
    session.decoder().decode(session.stream(), cache, chunk, logits);
    // Reserved to the byte, not more.
    EXPECT_EQ(session.stream().arena().peak(), session.stream().arena().capacity());
    EXPECT_EQ(session.stream().arena().used(), 0);
}

TEST(Session, ReserveGrowsForLargerCallsOnly) {
    const TempDir dir;
    write_tiny_model(dir / "model");
    Session session({.model = dir / "model", .dtype = "f32"});
    const std::int64_t before = session.stream().arena().capacity();
    session.reserve([](Decoder&, Stream& stream) { stream.arena().scratch(DType::u8, {1000}); });
    EXPECT_EQ(session.stream().arena().capacity(), before);
    session.reserve(
        [&](Decoder&, Stream& stream) { stream.arena().scratch(DType::u8, {before + 1000}); });
    EXPECT_EQ(session.stream().arena().capacity(), align_up(before + 1000));
}

TEST(Session, EosIdsComeFromAllFiles) {
    const TempDir dir;
    write_tiny_model(dir / "model");  // config and tokenizer: 258
    std::ofstream(dir / "model" / "generation_config.json") << R"({"eos_token_id": [256, 258]})";
    const Session session({.model = dir / "model", .dtype = "f32"});
    EXPECT_EQ(session.eos_ids(), (std::vector<std::int32_t>{256, 258}));
}

TEST(Session, AnAdapterChangesTheLogits) {
    const TempDir dir;
    const TinyModel model;
    write_tiny_model(dir / "model", model);
    write_adapter(dir / "adapter", model, "some-org/model", 0.5f, model.num_layers);
    Session plain({.model = dir / "model", .dtype = "f32"});
    Session adapted({.model = dir / "model", .adapter = dir / "adapter", .dtype = "f32"});
    EXPECT_TRUE(adapted.warnings().empty());
    EXPECT_NE(logits_after(plain, {65, 66, 67}), logits_after(adapted, {65, 66, 67}));
}

TEST(Session, AnAdapterThatNamesAnotherBaseIsToldOf) {
    const TempDir dir;
    const TinyModel model;
    write_tiny_model(dir / "model", model);
    write_adapter(dir / "adapter", model, "some-org/other", 0.5f, model.num_layers);
    const Session session({.model = dir / "model", .adapter = dir / "adapter", .dtype = "f32"});
    ASSERT_EQ(session.warnings().size(), 1u);
    EXPECT_NE(session.warnings()[0].find("some-org/other"), std::string::npos);
}

TEST(Session, NamesOfOneModelAreSpeltInManyWays) {
    const TempDir dir;
    write_tiny_model(dir / "Tiny-Model_1.5B");
    const ModelFiles folder = ModelFiles::open(dir / "Tiny-Model_1.5B");
    for (const char* name :
         {"org/Tiny-Model-1.5B", "tiny_model_1.5b/", "/some/where/TinyModel1.5B"})
        EXPECT_EQ(warning_of_another_base("a", name, folder), "") << name;
    for (const char* name : {"org/Tiny-Model-15", "Tiny"})
        EXPECT_NE(warning_of_another_base("a", name, folder), "") << name;
}

TEST(Session, AGgufsNameGoesOnWithItsQuantisation) {
    GARAM_REQUIRE_DATA("golden/gguf/llama-f32.gguf");
    const ModelFiles file = ModelFiles::open(testing::data_dir() / "golden/gguf/llama-f32.gguf");
    EXPECT_EQ(warning_of_another_base("a", "meta/Llama", file), "");
    EXPECT_NE(warning_of_another_base("a", "meta/Llama-2", file), "");
}

TEST(Session, AnAdapterOfAnotherBaseIsRefused) {
    const TempDir dir;
    const TinyModel model;
    write_tiny_model(dir / "model", model);
    TinyModel wider = model;
    wider.hidden_size = 32;
    write_adapter(dir / "wide", wider, "", 0.5f, model.num_layers);
    const std::string shapes = message_of([&] {
        const Session session({.model = dir / "model", .adapter = dir / "wide", .dtype = "f32"});
    });
    EXPECT_NE(shapes.find("[2, 32]"), std::string::npos) << shapes;
    EXPECT_NE(shapes.find("[2, 24]"), std::string::npos) << shapes;
    write_adapter(dir / "deep", model, "", 0.5f, model.num_layers + 1);
    const std::string names = message_of([&] {
        const Session session({.model = dir / "model", .adapter = dir / "deep", .dtype = "f32"});
    });
    EXPECT_NE(names.find("layers.2.self_attn.q_proj"), std::string::npos) << names;
}

TEST(Session, ATokenizerOfAnotherModelIsRefusedWithBothSizes) {
    const TempDir dir;
    TinyModel model;
    model.vocab_size = 200;
    write_tiny_model(dir / "model", model);
    // Its own eos id lies beyond the vocabulary: take that out of the way first.
    Json config = model.config();
    config.set("eos_token_id", 1);
    config.set("bos_token_id", 1);
    std::ofstream(dir / "model" / "config.json") << config.dump();
    const std::string message =
        message_of([&] { const Session session({.model = dir / "model", .dtype = "f32"}); });
    EXPECT_NE(message.find("259"), std::string::npos) << message;
    EXPECT_NE(message.find("200"), std::string::npos) << message;
}

TEST(Session, DevicesAndDtypesThatAreNotHereAreNamed) {
    EXPECT_NE(message_of([] { open_device("cuda"); }).find("cpu"), std::string::npos);
    DeviceProfile profile;
    EXPECT_EQ(choose_compute_dtype("auto", profile), DType::f32);
    profile.fast_bf16 = true;
    EXPECT_EQ(choose_compute_dtype("auto", profile), DType::bf16);
    EXPECT_EQ(choose_compute_dtype("f32", profile), DType::f32);
    EXPECT_NE(message_of([&] { choose_compute_dtype("f16", profile); }).find("bf16"),
              std::string::npos);
}

}  // namespace
}  // namespace garam
