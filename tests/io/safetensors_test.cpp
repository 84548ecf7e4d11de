#include "garam/io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "garam/core/error.h"
#include "io/mutation.h"
#include "io/refusal.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::read_file;
using testing::TempDir;

std::string file_of(std::string_view header, std::size_t data_bytes, std::uint64_t length) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    bytes += header;
    return bytes + std::string(data_bytes, '\1');
}
std::string file_of(std::string_view header, std::size_t data_bytes) {
    return file_of(header, data_bytes, header.size());
}

std::string refusal_of(const std::string& content) {
    const TempDir dir;
    const fs::path path = dir.write("bad.safetensors", content);
    return testing::refusal_naming(path, [&] { SafetensorsFile::open(path); });
}

TEST(Safetensors, WhatIsWrittenReadsBack) {
    const TempDir dir;
    std::vector<float> f(6);
    std::iota(f.begin(), f.end(), 1.5f);
    std::vector<std::uint8_t> u(3, 7);
    std::vector<std::int64_t> i(2, -5);
    std::vector<bfloat16> b(4, bfloat16(2.0f));
    std::vector<float16> h(1, float16(3.0f));
    std::vector<std::int32_t> empty;
    write_safetensors(dir / "a.safetensors",
                      {{"z \"quoted\": \\", Tensor(f.data(), DType::f32, {2, 3}, DeviceKind::cpu)},
                       {"u", Tensor(u.data(), DType::u8, {3}, DeviceKind::cpu)},
                       {"i", Tensor(i.data(), DType::i64, {1, 2}, DeviceKind::cpu)},
                       {"한글", Tensor(b.data(), DType::bf16, {4}, DeviceKind::cpu)},
                       {"scalar", Tensor(h.data(), DType::f16, {}, DeviceKind::cpu)},
                       {"none", Tensor(empty.data(), DType::i32, {0, 5}, DeviceKind::cpu)}},
                      {{"format", "pt"}});
    const auto file = SafetensorsFile::open(dir / "a.safetensors");
    ASSERT_EQ(file->tensors().size(), 6u);
    EXPECT_EQ(file->tensors()[0].name, "z \"quoted\": \\");
    EXPECT_EQ(file->tensors()[0].shape, (Shape{2, 3}));
    EXPECT_EQ(std::memcmp(file->tensors()[0].data, f.data(), 24), 0);
    ASSERT_NE(file->find("i"), nullptr);
    EXPECT_EQ(file->find("i")->type, StoredType::i64);
    EXPECT_EQ(std::memcmp(file->find("i")->data, i.data(), 16), 0);
    EXPECT_EQ(file->find("한글")->type, StoredType::bf16);
    EXPECT_EQ(file->find("scalar")->shape.rank(), 0);
    EXPECT_EQ(file->find("none")->bytes, 0u);
    EXPECT_EQ(file->find("absent"), nullptr);
    ASSERT_EQ(file->metadata().size(), 1u);
    EXPECT_EQ(file->metadata()[0].second, "pt");
    const std::string bytes = read_file(dir / "a.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    EXPECT_EQ(length % 8, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file->tensors()[0].data) % 8, 0u);
}

TEST(Safetensors, WritingRefusesANameTwice) {
    const TempDir dir;
    float value = 1;
    const Tensor tensor(&value, DType::f32, {1}, DeviceKind::cpu);
    EXPECT_THROW(write_safetensors(dir / "a", {{"x", tensor}, {"x", tensor}}), Bug);
}

TEST(Safetensors, GoldenFilesOpen) {
    GARAM_REQUIRE_DATA("golden");
    int opened = 0;
    for (const auto& entry : fs::recursive_directory_iterator(testing::data_dir() / "golden")) {
        if (entry.path().extension() != ".safetensors") continue;
        const auto file = SafetensorsFile::open(entry.path());
        EXPECT_FALSE(file->tensors().empty()) << entry.path();
        ++opened;
    }
    EXPECT_GT(opened, 0);
}

TEST(Safetensors, MissingFilesAndFoldersAreNamed) {
    const TempDir dir;
    for (const fs::path& path : {dir / "none.safetensors", dir.path()}) {
        try {
            SafetensorsFile::open(path);
            FAIL();
        } catch (const Error& error) {
            EXPECT_EQ(std::string(error.what()).find(path.string() + ": cannot be read: "), 0u);
        }
    }
}

constexpr std::string_view kGood = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

TEST(Safetensors, TruncatedFilesAreRefused) {
    EXPECT_EQ(refusal_of(file_of(kGood, 8)), "read");
    EXPECT_REFUSED("", "0 bytes, fewer than its header length");
    EXPECT_REFUSED("1234567", "7 bytes, fewer than its header length");
    const std::string whole = file_of(kGood, 8);
    EXPECT_REFUSED(whole.substr(0, 30), "perhaps its download is incomplete");
    EXPECT_REFUSED(whole.substr(0, whole.size() - 1),
                   "tensor a: ends at byte 8 of the data, which has 7");
}

TEST(Safetensors, HeadersThatLieAboutTheirLengthAreRefused) {
    EXPECT_REFUSED(file_of(kGood, 8, 1000), "claims 1000 bytes");
    EXPECT_REFUSED(file_of(kGood, 8, 100'000'001), "more than 100 MB");
    EXPECT_REFUSED(file_of(kGood, 8, ~0ull), "more than 100 MB");
    EXPECT_REFUSED(file_of(kGood, 8, ~0ull - 7), "more than 100 MB");
    EXPECT_REFUSED(file_of("", 8, 0), "does not begin with {");
    EXPECT_REFUSED(file_of(kGood, 8, kGood.size() - 1), "not valid JSON");
    EXPECT_REFUSED(file_of(kGood, 8, kGood.size() + 1), "not valid JSON");
}

TEST(Safetensors, HeadersOfTheWrongKindAreRefused) {
    EXPECT_REFUSED(file_of("[1]", 0), "does not begin with {");
    EXPECT_REFUSED(file_of("{\"a\":1}", 0), "tensor a: its entry is no object");
    EXPECT_REFUSED(file_of(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4),
                   "\"dtype\" is missing");
    EXPECT_REFUSED(file_of(R"({"a":{"dtype":3,"shape":[1],"data_offsets":[0,4]}})", 4),
                   "dtype is no string");
    EXPECT_REFUSED(file_of(R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4),
                   "shape is no array");
    EXPECT_REFUSED(file_of(R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4),
                   "shape must be whole numbers");
    EXPECT_REFUSED(file_of(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4),
                   "shape must be whole numbers");
    EXPECT_REFUSED(file_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4),
                   "not negative");
    EXPECT_REFUSED(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4]}})", 4),
                   "data_offsets are not two numbers");
    EXPECT_REFUSED(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4),
                   "not negative");
    EXPECT_REFUSED(file_of(R"({"__metadata__":{"a":1}})", 0), "__metadata__: \"a\" is no string");
    EXPECT_REFUSED(file_of(R"({"__metadata__":"x"})", 0), "__metadata__ is no object");
}

TEST(Safetensors, UnknownTypesAndTooManyDimensionsAreRefusedByName) {
    EXPECT_REFUSED(file_of(R"({"a.b":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", 1),
                   "tensor a.b has dtype F8_E4M3, which is not supported; supported are F32, F16");
    EXPECT_REFUSED(file_of(R"({"a":{"dtype":"F32","shape":[1,1,1,1,1],"data_offsets":[0,4]}})", 4),
                   "tensor a has 5 dimensions; at most 4");
}

TEST(Safetensors, OffsetsThatDisagreeAreRefused) {
    EXPECT_REFUSED(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4),
                   "end before they begin");
    EXPECT_REFUSED(file_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
                   "shape [3] of F32 does not agree with its 8 bytes");
    EXPECT_REFUSED(
        file_of(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0),
        "does not agree");
    EXPECT_REFUSED(
        file_of(R"({"a":{"dtype":"I64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0),
        "does not agree");
    EXPECT_REFUSED(
        file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,99999999999999999999]}})", 1),
        "whole numbers");
    EXPECT_REFUSED(file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                           R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                           3),
                   "tensor b: overlaps");
    EXPECT_REFUSED(file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                           R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                           2),
                   "tensor b: overlaps");
    EXPECT_REFUSED(file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                           R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
                           5),
                   "tensor b: does not begin where");
    EXPECT_REFUSED(file_of(kGood, 9), "1 bytes behind the last tensor");
}

TEST(Safetensors, NamesGivenTwiceAreRefused) {
    EXPECT_REFUSED(file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                           R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                           2),
                   "twice");
    EXPECT_REFUSED(
        file_of(R"({"a":{"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2),
        "twice");
    EXPECT_EQ(
        refusal_of(file_of(R"({"a:\\\":b\\":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2)),
        "read")
        << "colons and quotes inside a name count as neither";
}

TEST(Safetensors, ManyShortMembersStayWithinMemory) {
    std::string header = R"({"a":{"dtype":"F32","shape":[)";
    for (int i = 0; i < 200000; ++i)
        header += "1,";
    header += R"(1],"data_offsets":[0,4]}})";
    const TempDir dir;
    const fs::path path = dir.write("a", file_of(header, 4));
    const std::size_t peak =
        testing::peak_allocation_of([&] { EXPECT_THROW(SafetensorsFile::open(path), Error); });
    EXPECT_LT(peak, 100 * header.size());
}

TEST(Safetensors, MutatedFilesOpenOrAreRefused) {
    const TempDir dir;
    std::vector<float> values(64, 1.0f);
    const auto tensor = [&](Shape shape) {
        return Tensor(values.data(), DType::f32, shape, DeviceKind::cpu);
    };
    const fs::path path = dir / "a.safetensors";
    write_safetensors(path,
                      {{"x", tensor({4, 4})}, {"y", tensor({8})}, {"z", tensor({2, 2, 2, 2})}},
                      {{"format", "pt"}});
    std::vector<float> out(1 << 12);
    const testing::MutationResult result =
        testing::try_mutations(read_file(path), path, 4000, 1, [&] {
            const auto file = SafetensorsFile::open(path);
            for (const StoredTensor& stored : file->tensors()) {
                ASSERT_LE(stored.shape.elements(), 1 << 12);
                read_tensor(stored, out.data());
            }
        });
    EXPECT_GT(result.opened, 100);
    EXPECT_GT(result.refused, 1000);
}

}  // namespace
}  // namespace garam
