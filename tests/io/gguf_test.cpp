#include "garam/io/gguf.h"

#include <gtest/gtest.h>

#include <cstring>

#include "garam/core/error.h"
#include "garam/io/safetensors.h"
#include "io/gguf_builder.h"
#include "io/mutation.h"
#include "io/refusal.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::Bytes;
using testing::GgufBuilder;
using testing::TempDir;

std::string refusal_of(const std::string& content) {
    const TempDir dir;
    const fs::path path = dir.write("bad.gguf", content);
    return testing::refusal_naming(path, [&] { GgufFile::open(path); });
}

// One case a block type: each file of the folder must dequantise to the stored values bit for bit.
class GgufGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(GgufGolden, DequantisesBitForBit) {
    if (GetParam() == "absent") GTEST_SKIP() << "reference data is not here: golden/gguf/types";
    const fs::path folder = testing::data_dir() / "golden/gguf/types";
    const auto file = GgufFile::open(folder / (GetParam() + ".gguf"));
    ASSERT_EQ(file->tensors().size(), 1u);
    const StoredTensor& tensor = file->tensors()[0];
    const auto golden = SafetensorsFile::open(folder / "dequant.safetensors");
    const StoredTensor* wanted = golden->find("dequant." + GetParam());
    ASSERT_NE(wanted, nullptr);
    ASSERT_EQ(tensor.shape, wanted->shape);
    std::vector<float> out(static_cast<std::size_t>(tensor.shape.elements()));
    read_tensor(tensor, out.data());
    EXPECT_EQ(std::memcmp(out.data(), wanted->data, wanted->bytes), 0);
    std::vector<bfloat16> narrow(out.size());
    read_tensor(tensor, narrow.data());
    for (std::size_t i = 0; i < out.size(); ++i)
        ASSERT_EQ(narrow[i].bits, bfloat16(out[i]).bits);
}

std::vector<std::string> golden_types() {
    std::vector<std::string> names;
    for (const std::string& file :
         testing::files_in(testing::data_dir() / "golden/gguf/types", ".gguf"))
        names.push_back(fs::path(file).stem().string());
    if (names.empty()) names.emplace_back("absent");
    return names;
}

INSTANTIATE_TEST_SUITE_P(Types, GgufGolden, ::testing::ValuesIn(golden_types()),
                         [](const auto& test) { return test.param; });

TEST(Gguf, KeysKeepTheirKinds) {
    GgufBuilder builder;
    builder.key_raw("a.u8", 0, "\xff").key_raw("a.i8", 1, "\xff");
    builder.key_raw("a.u16", 2, "\xfe\xff").key_raw("a.i16", 3, "\xfe\xff");
    builder.key_u32("a.u32", 0xffffffffu).key_raw("a.i32", 5, "\xff\xff\xff\xff");
    builder.key_f32("a.f32", 0.5f);
    builder.key_raw("a.bool", 7, "\x01").key_text("a.text", "가람");
    builder.key_raw("a.u64", 10, Bytes().put(std::uint64_t{1} << 62).str());
    builder.key_raw("a.u64large", 10, Bytes().put(~std::uint64_t{0}).str());
    builder.key_raw("a.i64", 11, Bytes().put(std::int64_t{-5}).str());
    builder.key_raw("a.f64", 12, Bytes().put(0.1).str());
    builder.key_raw("a.texts", 9,
                    Bytes().put(8u).put(std::uint64_t{2}).text("x").text("\xff\xfe").str());
    builder.key_raw("a.nested", 9,
                    Bytes()
                        .put(9u)
                        .put(std::uint64_t{2})
                        .put(5u)
                        .put(std::uint64_t{2})
                        .put(-1)
                        .put(-2)
                        .put(7u)
                        .put(std::uint64_t{1})
                        .put('\0')
                        .str());
    const TempDir dir;
    for (const std::uint32_t version : {2u, 3u}) {
        builder.version = version;
        const auto file = GgufFile::open(dir.write("a.gguf", builder.build()));
        EXPECT_EQ(file->find("a.u8")->integer(), 255);
        EXPECT_EQ(file->find("a.i8")->integer(), -1);
        EXPECT_EQ(file->find("a.u16")->integer(), 65534);
        EXPECT_EQ(file->find("a.i16")->integer(), -2);
        EXPECT_EQ(file->find("a.u32")->integer(), 4294967295);
        EXPECT_EQ(file->find("a.i32")->integer(), -1);
        EXPECT_EQ(file->find("a.f32")->number(), 0.5);
        EXPECT_TRUE(file->find("a.bool")->boolean());
        EXPECT_EQ(file->find("a.text")->string(), "가람");
        EXPECT_EQ(file->find("a.u64")->integer(), std::int64_t{1} << 62);
        EXPECT_EQ(file->find("a.u64large")->number(), 0x1p64);
        EXPECT_EQ(file->find("a.i64")->integer(), -5);
        EXPECT_EQ(file->find("a.f64")->number(), 0.1);
        EXPECT_EQ(file->find("a.texts")->array()[1].string(), "\xff\xfe");
        EXPECT_EQ(file->find("a.nested")->array()[0].array()[1].integer(), -2);
        EXPECT_FALSE(file->find("a.nested")->array()[1].array()[0].boolean());
        EXPECT_EQ(file->find("absent"), nullptr);
        EXPECT_EQ(file->keys().size(), 15u);
        EXPECT_TRUE(file->tensors().empty());
    }
}

TEST(Gguf, ShapesAreOutermostFirstAndAlignmentIsHeeded) {
    GgufBuilder builder;
    builder.alignment = 128;
    builder.key_u32("general.alignment", 128);
    builder.tensor_f32("a", {2, 3}, {0, 1, 2, 3, 4, 5});
    builder.tensor_f32("scalar", {}, {7});
    builder.tensor("codes", {32, 1, 2}, 8, std::string(68, '\1'));
    const TempDir dir;
    const auto file = GgufFile::open(dir.write("a.gguf", builder.build()));
    ASSERT_EQ(file->tensors().size(), 3u);
    EXPECT_EQ(file->tensors()[0].shape, (Shape{3, 2}));
    EXPECT_EQ(file->tensors()[1].shape.rank(), 0);
    EXPECT_EQ(file->tensors()[2].shape, (Shape{2, 1, 32}));
    EXPECT_EQ(file->tensors()[2].type, StoredType::q8_0);
    EXPECT_EQ(file->tensors()[2].bytes, 68u);
    float value = 0;
    read_tensor(file->tensors()[1], &value);
    EXPECT_EQ(value, 7);
}

GgufBuilder good() {
    GgufBuilder builder;
    builder.key_text("general.architecture", "llama");
    builder.tensor_f32("a", {4}, {1, 2, 3, 4});
    return builder;
}

TEST(Gguf, OtherFilesAndVersionsAreRefused) {
    EXPECT_REFUSED("", "does not begin with \"GGUF\"");
    EXPECT_REFUSED("GGU", "does not begin with \"GGUF\"");
    EXPECT_REFUSED(std::string("GGML\3\0\0\0", 8), "does not begin with \"GGUF\"");
    EXPECT_REFUSED("GGUF", "needs 4 bytes at byte 4");
    GgufBuilder builder = good();
    builder.version = 1;
    EXPECT_REFUSED(builder.build(), "GGUF version 1 is not supported; supported are 2 and 3");
    builder.version = 4;
    EXPECT_REFUSED(builder.build(), "GGUF version 4 is not supported");
    builder.version = 0x03000000;
    EXPECT_REFUSED(builder.build(), "big-endian GGUF files are not supported");
}

TEST(Gguf, EveryTruncationIsRefused) {
    const std::string whole = good().build();
    EXPECT_EQ(refusal_of(whole), "read");
    const TempDir dir;
    for (std::size_t length = 0; length < whole.size(); ++length) {
        const fs::path path = dir.write(std::to_string(length), whole.substr(0, length));
        EXPECT_THROW(GgufFile::open(path), Error) << length;
    }
}

TEST(Gguf, CountsAreHeldAgainstTheFileBeforeAnythingIsAllocated) {
    for (const std::int64_t claim : {std::int64_t{1} << 60, INT64_MAX, std::int64_t{1000}}) {
        GgufBuilder tensors = good();
        tensors.claimed_tensors = claim;
        EXPECT_REFUSED(tensors.build(), "tensors, more than fit");
        GgufBuilder keys = good();
        keys.claimed_keys = claim;
        EXPECT_REFUSED(keys.build(), "keys, more than fit");
    }
    for (const std::uint64_t claim :
         {std::uint64_t{1} << 60, ~std::uint64_t{0}, std::uint64_t{100}}) {
        for (const std::uint32_t type : {0u, 4u, 8u, 9u, 12u}) {
            GgufBuilder builder;
            builder.key_raw("long.array", 9, Bytes().put(type).put(claim).str());
            EXPECT_REFUSED(builder.build(), "key long.array: an array of " + std::to_string(claim));
        }
        GgufBuilder text;
        text.key_raw("long.text", 8, Bytes().put(claim).str());
        EXPECT_REFUSED(text.build(), "key long.text: needs " + std::to_string(claim) + " bytes");
    }
}

TEST(Gguf, KeysThatLieAreRefused) {
    EXPECT_REFUSED(good().key_raw("k", 13, "1234").build(), "key k: unknown value type 13");
    EXPECT_REFUSED(good().key_raw("k", 7, "\2").build(), "key k: a bool is 2");
    EXPECT_REFUSED(good().key_u32("k", 1).key_u32("k", 1).build(), "key k: is there twice");
    EXPECT_REFUSED(good().key_u32("k\xc3\x28", 1).build(), "the name of a key is not UTF-8");
    EXPECT_REFUSED(good().key_u32("\xed\xa0\x80", 1).build(), "not UTF-8");
    EXPECT_REFUSED(good().key_u32("\xc0\x80", 1).build(), "not UTF-8");
    EXPECT_REFUSED(good().key_u32("\xf4\x90\x80\x80", 1).build(), "not UTF-8");
    EXPECT_REFUSED(good().key_u32("\xe2\x82", 1).build(), "not UTF-8");
    EXPECT_EQ(refusal_of(good().key_u32("key é 가 😀", 1).build()), "read");
    EXPECT_REFUSED(good().key_u32(std::string(65536, 'k'), 1).build(), "more than 65535 bytes");
    for (const std::uint32_t alignment : {0u, 24u, 0xffffffffu})
        EXPECT_REFUSED(good().key_u32("general.alignment", alignment).build(), "power of two");
    EXPECT_REFUSED(good().key_text("general.alignment", "32").build(), "power of two");
    Bytes nested;
    for (int i = 0; i < 1000; ++i)
        nested.put(9u).put(std::uint64_t{1});
    EXPECT_REFUSED(good().key_raw("k", 9, nested.str()).build(), "nested too deeply");
}

TEST(Gguf, TensorsThatLieAreRefused) {
    const std::string data(64, '\0');
    EXPECT_REFUSED(good().tensor("b", {1, 1, 1, 1, 1}, 0, data).build(),
                   "tensor b: has 5 dimensions");
    EXPECT_REFUSED(good().tensor("b", {~0ull}, 0, data).build(), "tensor b: a dimension is larger");
    EXPECT_REFUSED(good().tensor("b", {1ull << 62, 4}, 0, data).build(), "larger than any file");
    EXPECT_REFUSED(good().tensor("b", {1ull << 61, 1}, 0, data).build(), "larger than any file");
    EXPECT_REFUSED(good().tensor("b", {1ull << 40, 1}, 0, data).build(), "end beyond the file");
    EXPECT_REFUSED(good().tensor("b", {17}, 0, data).build(),
                   "tensor b: its 68 bytes at offset 32");
    EXPECT_REFUSED(good().tensor("b", {33}, 8, data).build(), "no whole q8_0 blocks of 32");
    EXPECT_REFUSED(good().tensor("a", {1}, 0, data).build(), "tensor a: is there twice");
    EXPECT_REFUSED(good().tensor("\xff", {1}, 0, data).build(),
                   "the name of a tensor is not UTF-8");
    EXPECT_REFUSED(good().tensor("b", {1}, 0, data, 33).build(), "is no multiple of 32");
    EXPECT_REFUSED(good().tensor("b", {1}, 0, data, INT64_MAX - 31).build(), "end beyond the file");
    EXPECT_REFUSED(good().tensor("b", {1}, 0, data, 0).build(), "overlaps");
}

TEST(Gguf, UnsupportedTypesAreNamed) {
    const std::string data(256, '\0');
    EXPECT_REFUSED(
        good().tensor("w", {256}, 10, data).build(),
        "tensor w is of type Q2_K, which is not supported; supported are F32, F16, BF16");
    EXPECT_REFUSED(good().tensor("w", {256}, 4, data).build(), "of type number 4, which");
    EXPECT_REFUSED(good().tensor("w", {256}, 0xffffffffu, data).build(),
                   "of type number 4294967295");
}

TEST(Gguf, MutatedFilesOpenOrAreRefused) {
    GgufBuilder builder = good();
    builder.key_u32("general.alignment", 32);
    builder.key_raw("tokens", 9,
                    Bytes().put(8u).put(std::uint64_t{3}).text("a").text("b").text("").str());
    builder.key_raw("scores", 9, Bytes().put(6u).put(std::uint64_t{2}).put(1.0f).put(2.0f).str());
    builder.tensor("blk.0.attn_q.weight", {32, 2}, 3, std::string(40, '\1'));
    builder.tensor_f32("b", {2, 2}, {1, 2, 3, 4});
    const TempDir dir;
    const fs::path path = dir / "a.gguf";
    std::vector<float> out(1 << 12);
    const testing::MutationResult result =
        testing::try_mutations(builder.build(), path, 5000, 2, [&] {
            const auto file = GgufFile::open(path);
            for (const StoredTensor& tensor : file->tensors()) {
                ASSERT_LE(tensor.shape.elements(), 1 << 12);
                read_tensor(tensor, out.data());
            }
        });
    EXPECT_GT(result.opened, 500);
    EXPECT_GT(result.refused, 1000);
}

}  // namespace
}  // namespace garam
