#include "garam/io/safetensors_writer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "garam/core/error.h"
#include "garam/io/safetensors.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

using testing::TempDir;

TEST(SafetensorsWriter, ReadsBack) {
    const TempDir dir;
    const std::vector<float> first{1, 2, 3, 4, 5, 6};
    const std::vector<std::uint8_t> second{7, 8, 9};
    SafetensorsWriter writer(dir / "x.safetensors",
                             {{"a.weight", DType::f32, {2, 3}}, {"b", DType::u8, {3}}},
                             {{"format", "pt"}});
    writer.write("a.weight", first.data(), 24);
    EXPECT_FALSE(std::filesystem::exists(dir / "x.safetensors"));
    writer.write("b", second.data(), 3);
    writer.commit();
    const auto file = SafetensorsFile::open(dir / "x.safetensors");
    ASSERT_EQ(file->tensors().size(), 2u);
    const StoredTensor* a = file->find("a.weight");
    ASSERT_NE(a, nullptr);
    EXPECT_EQ(a->type, StoredType::f32);
    EXPECT_EQ(a->shape, (Shape{2, 3}));
    EXPECT_EQ(std::memcmp(a->data, first.data(), 24), 0);
    EXPECT_EQ(std::memcmp(file->find("b")->data, second.data(), 3), 0);
    ASSERT_EQ(file->metadata().size(), 1u);
    EXPECT_EQ(file->metadata()[0].second, "pt");
}

TEST(SafetensorsWriter, WritesTheBytesOfTheOneCallWriter) {
    const TempDir dir;
    std::vector<float> a{1, 2, 3, 4};
    std::vector<std::int64_t> b{5};
    write_safetensors(dir / "whole.safetensors",
                      {{"a", Tensor(a.data(), DType::f32, {2, 2}, DeviceKind::cpu)},
                       {"b", Tensor(b.data(), DType::i64, {1}, DeviceKind::cpu)}},
                      {{"k", "v"}});
    SafetensorsWriter writer(dir / "streamed.safetensors",
                             {{"a", DType::f32, {2, 2}}, {"b", DType::i64, {1}}}, {{"k", "v"}});
    writer.write("a", a.data(), 16);
    writer.write("b", b.data(), 8);
    writer.commit();
    EXPECT_EQ(testing::read_file(dir / "streamed.safetensors"),
              testing::read_file(dir / "whole.safetensors"));
}

TEST(SafetensorsWriter, NothingRemainsWithoutCommit) {
    const TempDir dir;
    {
        SafetensorsWriter writer(dir / "x.safetensors", {{"a", DType::u8, {1}}});
        const std::uint8_t byte = 1;
        writer.write("a", &byte, 1);
    }
    EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(SafetensorsWriter, OrderAndSizesAreHeld) {
    const TempDir dir;
    SafetensorsWriter writer(dir / "x.safetensors", {{"a", DType::u8, {1}}, {"b", DType::u8, {1}}});
    const std::uint8_t byte = 1;
    EXPECT_THROW(writer.write("b", &byte, 1), Bug);
    EXPECT_THROW(writer.write("a", &byte, 2), Bug);
    writer.write("a", &byte, 1);
    EXPECT_THROW(writer.commit(), Bug);
    EXPECT_THROW(SafetensorsWriter(dir / "y", {{"a", DType::u8, {1}}, {"a", DType::u8, {1}}}), Bug);
}

}  // namespace
}  // namespace garam
