#include "garam/io/gguf_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "garam/core/error.h"
#include "garam/io/gguf.h"
#include "garam/io/gguf_architecture.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

using testing::TempDir;

TEST(GgufWriter, KeysAndTensorsReadBack) {
    const GgufKeys keys = {
        {"a.u32", std::uint32_t{4000000000}},
        {"a.i32", std::int32_t{-5}},
        {"a.u64", std::uint64_t{1} << 40},
        {"a.f32", 0.1f},
        {"a.yes", true},
        {"a.text", std::string("가람 \n\"")},
        {"a.texts", std::vector<std::string>{"x", "", "세"}},
        {"a.floats", std::vector<float>{1.5f, -2}},
        {"a.numbers", std::vector<std::int32_t>{-1, 7}},
        {"a.flags", std::vector<std::uint8_t>{1, 0}},
    };
    const TempDir dir;
    const std::vector<float> values = {1, 2, 3, -0.0f, 1e-42f, 6};
    std::vector<std::int8_t> blocks(2 * 34);
    std::iota(blocks.begin(), blocks.end(), std::int8_t{1});
    GgufWriter writer(dir / "m.gguf", keys,
                      {{"matrix", {2, 3}, StoredType::f32},
                       {"codes", {1, 64}, StoredType::q8_0},
                       {"empty", {0}, StoredType::f32},
                       {"last", {1}, StoredType::f32}});
    writer.write("matrix", values.data(), 8);  // in pieces
    writer.write("matrix", values.data() + 2, 16);
    EXPECT_FALSE(std::filesystem::exists(dir / "m.gguf"));
    writer.write("codes", blocks.data(), 68);
    writer.write("empty", nullptr, 0);
    writer.write("last", values.data(), 4);
    writer.commit();
    EXPECT_EQ(writer.total_bytes(),
              static_cast<std::int64_t>(std::filesystem::file_size(dir / "m.gguf")));

    const auto file = GgufFile::open(dir / "m.gguf");
    ASSERT_EQ(file->keys().size(), keys.size());
    for (const auto& [key, value] : keys)
        EXPECT_EQ(gguf_value(*file->find(key), key), value) << key;
    ASSERT_EQ(file->tensors().size(), 4u);
    EXPECT_EQ(file->tensors()[0].shape, (Shape{2, 3}));
    std::vector<float> read(6);
    read_tensor(file->tensors()[0], read.data());
    EXPECT_EQ(read, values);
    EXPECT_TRUE(std::signbit(read[3]));
    EXPECT_EQ(file->tensors()[1].type, StoredType::q8_0);
    EXPECT_EQ(std::memcmp(file->tensors()[1].data, blocks.data(), 68), 0);
    read_tensor(file->tensors()[3], read.data());
    EXPECT_EQ(read[0], 1);
}

TEST(GgufWriter, WithoutCommitNothingRemains) {
    const TempDir dir;
    {
        GgufWriter writer(dir / "m.gguf", {}, {{"a", {2}, StoredType::f32}});
        const float value = 1;
        writer.write("a", &value, 4);
        EXPECT_THROW(writer.write("b", &value, 4), Bug);
        EXPECT_THROW(writer.commit(), Bug);
    }
    EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
    EXPECT_THROW(GgufWriter(dir / "m.gguf", {}, {{"a", {1}}, {"a", {1}}}), Bug);
    EXPECT_THROW(GgufWriter(dir / "m.gguf", {}, {{"a", {33}, StoredType::q8_0}}), Bug);
    EXPECT_THROW(GgufWriter(dir / "m.gguf", {{"k", true}, {"k", true}}, {}), Bug);
}

TEST(GgufWriter, ValuesWithoutAFormAreNamed) {
    EXPECT_THROW(gguf_value(Json(), "k"), Error);
    EXPECT_THROW(gguf_value(Json(std::int64_t{-1} << 40), "k"), Error);
    EXPECT_THROW(gguf_value(Json(Json::Array{Json("a"), Json(1)}), "k"), Error);
    EXPECT_THROW(gguf_value(Json(Json::Array{Json(Json::Array{})}), "k"), Error);
    EXPECT_THROW(gguf_value(Json(Json::Array{Json(std::int64_t{1} << 40)}), "k"), Error);
}

// Names of either side lead to the other and back.
TEST(GgufArchitecture, NamesAreOneToOne) {
    EXPECT_EQ(
        known_gguf_architectures(),
        "llama, qwen2, qwen3, exaone, exaone4, gemma2, gemma3, phi3, smollm3, olmo2, granite");
    for (const GgufArchitecture& family : gguf_architectures()) {
        SCOPED_TRACE(family.model_type);
        EXPECT_EQ(find_gguf_architecture_of(family.model_type), &family);
        const auto check = [&](const GgufTensorName& name) {
            const std::string own = gguf_name(name);
            const std::string other = hugging_face_name(family, name);
            const auto parsed = parse_gguf_name(family, own);
            const auto from_other = parse_hugging_face_name(family, other);
            ASSERT_TRUE(parsed && from_other) << own << " " << other;
            EXPECT_EQ(hugging_face_name(family, *parsed), other);
            EXPECT_EQ(gguf_name(*from_other), own);
        };
        for (const GgufName& name : family.model_names)
            check({std::nullopt, name.gguf, "weight"});
        for (const GgufName& name : family.layer_names) {
            check({0, name.gguf, "weight"});
            check({31, name.gguf, "bias"});
        }
    }
    const GgufArchitecture& llama = *find_gguf_architecture("llama");
    for (const char* name : {"blk.", "blk.01.attn_q.weight", "blk.-1.attn_q.weight",
                             "blk.x.attn_q.weight", "blk.0", "blk.0.attn_q", "blk.0.attn_q.scale",
                             "attn_q.weight", "blk.0.token_embd.weight", "output.bias", "", ".",
                             "blk.0.attn_q_norm.weight", "blk.99999999999999999999.attn_q.weight"})
        EXPECT_FALSE(parse_gguf_name(llama, name)) << name;
    EXPECT_EQ(parse_gguf_name(llama, "blk.7.ffn_up.weight")->layer, 7);
    EXPECT_EQ(permuted_heads(llama, "attn_q", 8, 2), 8);
    EXPECT_EQ(permuted_heads(llama, "attn_k", 8, 2), 2);
    EXPECT_EQ(permuted_heads(llama, "attn_v", 8, 2), 0);
    EXPECT_EQ(permuted_heads(*find_gguf_architecture("qwen2"), "attn_q", 8, 2), 0);
    EXPECT_TRUE(has_one_added(*find_gguf_architecture("gemma2"), "attn_norm"));
    EXPECT_FALSE(has_one_added(*find_gguf_architecture("gemma2"), "attn_q"));
    EXPECT_FALSE(has_one_added(llama, "attn_norm"));
}

}  // namespace
}  // namespace garam
