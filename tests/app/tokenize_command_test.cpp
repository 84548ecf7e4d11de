// `garam tokenize` as a user runs it.
#include <gtest/gtest.h>

#include <algorithm>

#include "app/run_garam.h"
#include "garam/core/json.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

using testing::run_garam;
using testing::run_shell;
using testing::RunResult;
using testing::TempDir;

void expect_refused(const RunResult& result, const std::string& part) {
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_TRUE(result.err.starts_with("garam: error: ")) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
}

// A folder with one of the small tokenizers of tests/text/files.
class Tokenize : public ::testing::Test {
  protected:
    Tokenize() {
        const std::filesystem::path file =
            testing::source_dir() / "tests" / "text" / "files" / "gemma.json";
        folder_.write("tokenizer.json", Json::parse_file(file).at("tokenizer").dump());
        folder_.write("tokenizer_config.json",
                      Json(Json::Object{{"bos_token", "<bos>"},
                                        {"eos_token", "<eos>"},
                                        {"chat_template",
                                         "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ "
                                         "m.role }}\n{{ m.content }}"
                                         "<end_of_turn>\n{% endfor %}"}})
                          .dump());
    }
    std::string model() const { return folder_.path().string(); }
    TempDir folder_;
};

TEST_F(Tokenize, TextsBecomeIdsAndBack) {
    const RunResult ids = run_garam({"tokenize", model(), "the cat", "2"});
    EXPECT_EQ(ids.status, 0) << ids.err;
    EXPECT_EQ(ids.err, "");
    EXPECT_TRUE(ids.out.starts_with("2 ")) << ids.out;  // <bos>
    EXPECT_EQ(std::count(ids.out.begin(), ids.out.end(), '\n'), 2);
    const std::string line = ids.out.substr(0, ids.out.find('\n'));
    EXPECT_EQ(run_garam({"tokenize", model(), "--decode", line}).out, "<bos>the cat\n");
    EXPECT_EQ(run_garam({"tokenize", model(), "--decode", "--no-special", line}).out, "the cat\n");
    EXPECT_EQ(run_garam({"tokenize", model(), "--decode", "--json", line}).out,
              "{\"text\": \"<bos>the cat\"}\n");
    const RunResult plain = run_garam({"tokenize", model(), "--no-special", "the cat"});
    EXPECT_EQ("2 " + plain.out, line + "\n");
    EXPECT_EQ(run_garam({"tokenize", model(), "--special", "the cat"}).out, line + "\n");
}

TEST_F(Tokenize, TextsInBracketsAreTexts) {
    for (const char* text : {"[a, b]", "[]", "[INST] x [/INST]"}) {
        const RunResult ids = run_garam({"tokenize", model(), "--no-special", text});
        const std::string line = ids.out.substr(0, ids.out.find('\n'));
        EXPECT_EQ(line + "\n", ids.out);
        EXPECT_EQ(run_garam({"tokenize", model(), "--decode", line}).out, std::string(text) + "\n");
        EXPECT_EQ(run_garam({"tokenize", model(), "--decode", "[" + line + "]"}).out,
                  std::string(text) + "\n");
    }
}

TEST_F(Tokenize, PiecesAndJson) {
    const Json object =
        Json::parse(run_garam({"tokenize", model(), "--json", "the 가\U0001F999"}).out, "out");
    const std::size_t count = object.at("ids").array().size();
    EXPECT_EQ(object.at("pieces").array().size(), count);
    EXPECT_EQ(object.at("offsets").array().size(), count);
    EXPECT_EQ(object.at("pieces").array()[0].string(), "<bos>");
    EXPECT_EQ(object.at("offsets").array().back().array()[1].integer(), 11);
    const RunResult pieces = run_garam({"tokenize", model(), "--pieces", "the 가"});
    EXPECT_NE(pieces.out.find("\"<bos>\""), std::string::npos) << pieces.out;
    EXPECT_NE(pieces.out.find("0-0"), std::string::npos) << pieces.out;
    EXPECT_EQ(pieces.out.find('\x1b'), std::string::npos);  // no terminal, no colours
}

TEST_F(Tokenize, LinesOfStandardInputKeepTheirOrder) {
    std::string lines;
    for (int i = 0; i < 60000; ++i)
        lines += "line " + std::to_string(i) + (i % 2 == 0 ? "\n" : "\r\n");
    lines += "\nthe end";  // an empty line, and one without an end
    folder_.write("lines.txt", lines);
    const RunResult back = run_shell("\"$GARAM\" tokenize " + model() + " --no-special < " +
                                     (folder_ / "lines.txt").string() + " | \"$GARAM\" tokenize " +
                                     model() + " --decode");
    EXPECT_EQ(back.status, 0) << back.err;
    std::string want;
    for (int i = 0; i < 60000; ++i)
        want += "line " + std::to_string(i) + "\n";
    EXPECT_TRUE(back.out == want + "\nthe end\n");
    const RunResult count = run_shell("\"$GARAM\" tokenize " + model() + " --count < " +
                                      (folder_ / "lines.txt").string());
    EXPECT_NE(count.out.find("texts               60002\n"), std::string::npos) << count.out;
    EXPECT_NE(count.out.find("characters/token"), std::string::npos) << count.out;
}

TEST_F(Tokenize, ConversationsShowTheirTargets) {
    const std::string chat =
        R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "the man"}])";
    const Json object =
        Json::parse(run_garam({"tokenize", model(), "--chat", "--json", chat}).out, "out");
    std::string said;
    for (std::size_t i = 0; i < object.at("ids").array().size(); ++i)
        if (object.at("targets").array()[i].boolean())
            said += object.at("pieces").array()[i].string();
    EXPECT_EQ(said, "the▁man<end_of_turn>");
    EXPECT_EQ(object.at("pieces").array()[0].string(), "<bos>");
    EXPECT_NE(object.at("pieces").array()[1].string(), "<bos>");
    const RunResult listing = run_garam({"tokenize", model(), "--chat", "--pieces", chat});
    EXPECT_NE(listing.out.find("  target\n"), std::string::npos) << listing.out;
    expect_refused(run_garam({"tokenize", model(), "--chat", "no json"}), "text 1: conversation");
    expect_refused(run_garam({"tokenize", model(), "--chat", "[{\"content\": \"Hi\"}]"}), "role");
}

TEST_F(Tokenize, WhatIsWrongIsNamed) {
    folder_.write("bad.txt", "fine\nalso fine\nno \xFF utf-8\nnever seen\n");
    const RunResult bad =
        run_shell("\"$GARAM\" tokenize " + model() + " < " + (folder_ / "bad.txt").string());
    expect_refused(bad, "standard input, line 3: the text is not valid UTF-8 at byte 3");
    EXPECT_EQ(std::count(bad.out.begin(), bad.out.end(), '\n'), 2);  // what came before it
    expect_refused(run_garam({"tokenize", model(), "--decode", "12 x"}), "\"x\" is no token id");
    expect_refused(run_garam({"tokenize", model(), "--decode", "99999999999"}), "no token id");
    expect_refused(run_garam({"tokenize", model(), "--json", "--pieces", "a"}), "keep one");
    expect_refused(run_garam({"tokenize", model(), "--special", "--no-special", "a"}), "keep one");
    expect_refused(run_garam({"tokenize", "nowhere", "a"}), "nowhere");
    // Ids that name no token are passed over, as in the reference.
    EXPECT_EQ(run_garam({"tokenize", model(), "--decode", "9999999"}).out, "\n");
}

TEST_F(Tokenize, AClosedPipeEndsQuietly) {
    const RunResult result = run_shell("(yes the cat sat | head -n 400000 | \"$GARAM\" tokenize " +
                                       model() + "; echo $? >&2) | head -n 1");
    EXPECT_EQ(result.err, "141\n");
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1);
}

}  // namespace
}  // namespace garam
