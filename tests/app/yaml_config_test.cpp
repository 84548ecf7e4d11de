#include "garam/app/yaml_config.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"
#include "io/mutation.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

using Kind = ConfigText::Kind;

std::string refusal(const std::string& text) {
    try {
        parse_yaml_config(text, "f.yaml");
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

std::string repeated(const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i)
        all += text;
    return all;
}

TEST(YamlConfig, FlattensMapsWithLinesAndKeepsText) {
    const auto lines = parse_yaml_config(
        "model: a/b\n"
        "train:\n"
        "  learning_rate: 1e-4   # a comment\n"
        "  bf16: true\n"
        "\n"
        "  note: 'null'\n"
        "lora.r: 08\n"
        "empty:\n"
        "nothing: {}\n"
        "list: [a, 'b, c']\n"
        "block:\n"
        "  - x\n"
        "  - y\n"
        "text: |\n"
        "  two\n"
        "  lines\n",
        "f.yaml");
    ASSERT_EQ(lines.size(), 10u);
    const auto is = [&](std::size_t i, const char* key, Kind kind, const char* text, int line) {
        EXPECT_EQ(lines[i].key, key);
        EXPECT_EQ(lines[i].value.kind, kind) << key;
        EXPECT_EQ(lines[i].value.text, text) << key;
        EXPECT_EQ(lines[i].source, "f.yaml:" + std::to_string(line)) << key;
    };
    is(0, "model", Kind::plain, "a/b", 1);
    is(1, "train.learning_rate", Kind::plain, "1e-4", 3);
    is(2, "train.bf16", Kind::plain, "true", 4);
    is(3, "train.note", Kind::quoted, "null", 6);
    is(4, "lora.r", Kind::plain, "08", 7);
    is(5, "empty", Kind::null, "", 8);
    is(6, "nothing", Kind::null, "", 9);
    is(7, "list", Kind::list, "", 10);
    EXPECT_EQ(lines[7].value.items, (std::vector<std::string>{"a", "b, c"}));
    is(8, "block", Kind::list, "", 11);
    EXPECT_EQ(lines[8].value.items, (std::vector<std::string>{"x", "y"}));
    is(9, "text", Kind::quoted, "two\nlines\n", 14);
}

TEST(YamlConfig, ReadsAnchors) {
    const auto lines = parse_yaml_config("a: &x {p: 1, q: 2}\nb: *x\nc: &y 5\nd: *y\n", "f");
    ASSERT_EQ(lines.size(), 6u);
    EXPECT_EQ(lines[3].key, "b.q");
    EXPECT_EQ(lines[3].value.text, "2");
    EXPECT_EQ(lines[5].key, "d");
    EXPECT_EQ(lines[5].value.text, "5");
}

TEST(YamlConfig, EmptyFilesHoldNothing) {
    EXPECT_TRUE(parse_yaml_config("", "f").empty());
    EXPECT_TRUE(parse_yaml_config("# nothing\n---\n", "f").empty());
}

TEST(YamlConfig, RefusesWithFileAndLine) {
    EXPECT_EQ(refusal("a: 1\nb: 2\na: 3\n"), "f.yaml:3: the key a is there twice, first in line 1");
    EXPECT_EQ(refusal("a:\n  b: 1\na.b: 2\n"),
              "f.yaml:3: the key a.b is there twice, first in line 2");
    EXPECT_EQ(refusal("a:\n  b: 1\nc: 1\na:\n  d: 2\n"),
              "f.yaml:4: the key a is there twice, first in line 1");
    EXPECT_EQ(refusal("a: [1, [2]]\n"), "f.yaml:1: a: a list may hold single values only");
    EXPECT_EQ(refusal("a: [1, {b: 2}]\n"), "f.yaml:1: a: a list may hold single values only");
    EXPECT_EQ(refusal("x: 1\na: !!int 5\n"),
              "f.yaml:2: the tag tag:yaml.org,2002:int is not supported: write the value alone");
    EXPECT_EQ(refusal("a: &x {p: 1}\nb:\n  <<: *x\n"),
              "f.yaml:3: merge keys (<<) are not supported: write the keys out");
    EXPECT_EQ(refusal("? [a]\n: 1\n"), "f.yaml:1: a key must be a plain name");
    EXPECT_EQ(refusal("- a\n- b\n"),
              "f.yaml: a config is a map of keys (key: value), see `garam config`");
    EXPECT_EQ(refusal("a: 1\n---\nb: 2\n"),
              "f.yaml:2: holds several documents, or something behind the one that is allowed");
    EXPECT_EQ(refusal("a: 1\nb: [1, 2\nc: 3\n").rfind("f.yaml:", 0), 0u);
    EXPECT_NE(refusal("a: 1\nb: [1, 2\nc: 3\n").find("not valid YAML"), std::string::npos);
    EXPECT_NE(refusal("a: *nowhere\n").find("f.yaml:1: not valid YAML"), std::string::npos);
}

TEST(YamlConfig, HostileFilesEndInErrors) {
    // Each level names the one before nine times: 9^9 values when written out.
    std::string bomb = "k0: &k0 {v: 1}\n";
    for (int level = 1; level < 10; ++level) {
        const std::string below = std::to_string(level - 1);
        bomb += "k" + std::to_string(level) + ": &k" + std::to_string(level) + " {";
        for (int i = 0; i < 9; ++i)
            bomb += (i > 0 ? ", a" : "a") + std::to_string(i) + ": *k" + below;
        bomb += "}\n";
    }
    EXPECT_NE(refusal(bomb).find("too many values"), std::string::npos);
    EXPECT_NE(refusal("a: &x {b: *x}\n"), "");  // a map that holds itself
    std::string deep;
    for (int i = 0; i < 100; ++i)
        deep += "{a: ";
    deep += "1" + std::string(100, '}');
    EXPECT_NE(refusal(deep), "");
    EXPECT_NE(refusal(std::string(100'000, '[')), "");
    EXPECT_NE(refusal("a: [" + std::string(30'000, ',') + "1]"), "");
}

// The YAML library makes values of what says nothing: of each comma here two.
TEST(YamlConfig, ValuesAreCountedBeforeTheyAreMade) {
    for (const std::string& text :
         {"a: {" + std::string(500'000, ',') + "}\n", "a: [" + repeated("{}, ", 100'000) + "]\n",
          "a: [" + repeated("[], ", 100'000) + "]\n",
          "a: &a 1\nb: [" + repeated("*a, ", 100'000) + "]\n",
          "a: [" + repeated("1, ", 100'000) + "]\n", "a: [" + repeated("? , ", 100'000) + "]\n"}) {
        const std::size_t peak = testing::peak_allocation_of([&] {
            EXPECT_NE(refusal(text).find("too many values for a config"), std::string::npos)
                << refusal(text);
        });
        EXPECT_LE(peak, (std::size_t{64} << 20) + 20 * text.size()) << text.substr(0, 20);
    }
}

// The YAML library reads a comma that belongs to nothing as empty documents without end.
TEST(YamlConfig, WhatBelongsToNoDocumentIsRefused) {
    for (const char* text : {",", "a: 1\n,", "a: 1\n}", "]", "# a comment\n, b"})
        EXPECT_NE(refusal(text), "") << text;
}

// 10,000 values are few, but each may be an alias of half the file, or lie below a key as long.
TEST(YamlConfig, AliasesMultiplyNoLongText) {
    const std::string half(400'000, 'x');
    std::string values = "a: &a " + half + "\nb: [";
    for (int i = 0; i < 5000; ++i)
        values += "*a, ";
    EXPECT_NE(refusal(values + "1]\n").find("too much text"), std::string::npos);
    std::string keys = "? " + half + "\n: {";
    for (int i = 0; i < 5000; ++i)
        keys += "k" + std::to_string(i) + ": 1, ";
    EXPECT_NE(refusal(keys + "}\n").find("too much text"), std::string::npos);
}

TEST(YamlConfig, RefusesFilesThatAreNoText) {
    const testing::TempDir folder;
    const auto fails_with = [](const std::filesystem::path& path, const char* part) {
        try {
            read_yaml_config(path);
            ADD_FAILURE() << path << " was read";
        } catch (const Error& error) {
            EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
        }
    };
    fails_with(folder.write("big.yaml", std::string((1 << 20) + 1, '#')), "larger than 1 MiB");
    fails_with(folder.write("model.gguf", std::string("GGUF\0\0\0", 7)), "binary");
    EXPECT_EQ(read_yaml_config(folder.write("ok.yaml", "a: 1")).size(), 1u);
}

}  // namespace
}  // namespace garam
