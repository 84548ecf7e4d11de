// Files in parts: any part opens the whole; what contradicts or lacks is named.
#include "garam/io/gguf_split.h"

#include <gtest/gtest.h>

#include "io/gguf_builder.h"
#include "io/refusal.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::Bytes;
using testing::GgufBuilder;
using testing::TempDir;

GgufBuilder part(std::uint16_t number, std::uint16_t count, std::int32_t tensors) {
    GgufBuilder builder;
    if (number == 0) builder.key_text("general.architecture", "llama");
    builder.key_raw("split.no", 2, Bytes().put(number).str());
    builder.key_raw("split.count", 2, Bytes().put(count).str());
    builder.key_raw("split.tensors.count", 5, Bytes().put(tensors).str());
    return builder;
}

GgufBuilder with(GgufBuilder builder, const char* tensor, float value) {
    builder.tensor_f32(tensor, {1}, {value});
    return builder;
}

// Two parts with a tensor each, and a first part with none, as some writers make it.
void write_parts(const TempDir& dir, std::int32_t told = 2) {
    dir.write("m-00001-of-00003.gguf", part(0, 3, told).build());
    dir.write("m-00002-of-00003.gguf", with(part(1, 3, told), "a", 1).build());
    dir.write("m-00003-of-00003.gguf", with(part(2, 3, told), "b", 2).build());
}

std::string refusal_of(const fs::path& path) {
    return testing::refusal_naming(path.parent_path(), [&] { GgufFile::open(path); });
}

TEST(GgufSplit, AnyPartOpensTheWhole) {
    const TempDir dir;
    write_parts(dir);
    for (const char* name :
         {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
        const auto file = GgufFile::open(dir / name);
        EXPECT_EQ(file->path(), dir / name);
        EXPECT_EQ(file->find("general.architecture")->string(), "llama");
        ASSERT_EQ(file->tensors().size(), 2u);
        float value = 0;
        read_tensor(file->tensors()[1], &value);
        EXPECT_EQ(file->tensors()[1].name, "b");
        EXPECT_EQ(value, 2);
    }
}

TEST(GgufSplit, OnePartNeedsNoName) {
    const TempDir dir;
    EXPECT_EQ(refusal_of(dir.write("m.gguf", with(part(0, 1, 1), "a", 1).build())), "read");
}

TEST(GgufSplit, MissingPartsAreNamed) {
    const TempDir dir;
    write_parts(dir);
    fs::remove(dir / "m-00001-of-00003.gguf");
    fs::remove(dir / "m-00003-of-00003.gguf");
    EXPECT_REFUSED(dir / "m-00002-of-00003.gguf",
                   "is one of 3 parts; missing beside it: m-00001-of-00003.gguf, "
                   "m-00003-of-00003.gguf");
    // A count that nobody has files for costs no memory and names only the first.
    const fs::path many =
        dir.write("x-00001-of-65535.gguf", with(part(0, 65535, 1), "a", 1).build());
    EXPECT_REFUSED(many, "x-00005-of-65535.gguf and 65530 more");
}

TEST(GgufSplit, ContradictionsAreNamed) {
    const TempDir dir;
    write_parts(dir);
    EXPECT_REFUSED(dir.write("m.gguf", part(0, 3, 2).build()),
                   "part 1 of 3, so its name must end in -00001-of-00003.gguf");
    EXPECT_REFUSED(dir.write("n-00001-of-00003.gguf", part(3, 3, 2).build()),
                   "key split.no is 3 of 3 parts");
    GgufBuilder negative;
    negative.key_raw("split.count", 5, Bytes().put(-2).str());
    EXPECT_REFUSED(dir.write("o.gguf", negative.build()), "key split.count is -2");
    GgufBuilder absurd;
    absurd.key_raw("split.count", 11, Bytes().put(std::int64_t{1} << 60).str());
    EXPECT_REFUSED(dir.write("o.gguf", absurd.build()), "not between 1 and 65535");
    GgufBuilder text;
    text.key_text("split.count", "3");
    EXPECT_REFUSED(dir.write("o.gguf", text.build()), "key split.count must be a whole number");

    dir.write("m-00003-of-00003.gguf", with(part(1, 3, 2), "b", 2).build());
    EXPECT_REFUSED(dir / "m-00001-of-00003.gguf", "its keys say part 2 of 3, its name part 3 of 3");
    dir.write("m-00003-of-00003.gguf", with(part(2, 3, 2), "a", 2).build());
    EXPECT_REFUSED(dir / "m-00001-of-00003.gguf", "tensor a is in m-00002-of-00003.gguf too");
    write_parts(dir, 3);
    EXPECT_REFUSED(dir / "m-00002-of-00003.gguf",
                   "key split.tensors.count is 3, but its 3 parts hold 2 tensors");
    dir.write("m-00003-of-00003.gguf", "GGUF");
    EXPECT_REFUSED(dir / "m-00001-of-00003.gguf", "m-00003-of-00003.gguf: not a valid GGUF file");
}

}  // namespace
}  // namespace garam
