#include "garam/text/chat_template_source.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"
#include "garam/text/builtin_templates.h"
#include "garam/text/chat_template.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

std::string refusal(const std::string& name_or_path) {
    try {
        chat_template_source(name_or_path);
    } catch (const Error& error) {
        return error.what();
    }
    return {};
}

TEST(ChatTemplateSource, NamesAndFiles) {
    const testing::TempDir folder;
    EXPECT_EQ(chat_template_source("llama3").source, builtin_chat_template("llama3"));
    EXPECT_EQ(chat_template_source(folder.write("own.jinja", "{{ 1 }}\n").string()).source,
              "{{ 1 }}\n");
    EXPECT_EQ(
        chat_template_source(folder.write("c.json", R"({"chat_template": "x"})").string()).source,
        "x");
    const std::string listed =
        folder
            .write("list.json", R"({"chat_template": [{"name": "tool_use", "template": "t"},
                   {"name": "default", "template": "d"}, {"name": "rag", "template": "r"}]})")
            .string();
    EXPECT_EQ(chat_template_source(listed).source, "d");
    EXPECT_EQ(chat_template_source(listed).tool_use, "t");
}

TEST(ChatTemplateSource, FoldersAsTransformersReadsThem) {
    const testing::TempDir folder;
    folder.write("tokenizer_config.json",
                 R"({"chat_template": {"default": "d", "tool_use": "t"}})");
    ChatTemplateSource found = chat_template_source(folder.path().string());
    EXPECT_EQ(found.source, "d");
    EXPECT_EQ(found.tool_use, "t");
    // Files of their own come first.
    folder.write("chat_template.jinja", "own");
    EXPECT_EQ(chat_template_source(folder.path().string()).source, "own");
    std::filesystem::create_directory(folder / "additional_chat_templates");
    folder.write("additional_chat_templates/tool_use.jinja", "tools");
    found = chat_template_source(folder.path().string());
    EXPECT_EQ(found.source, "own");
    EXPECT_EQ(found.tool_use, "tools");
}

TEST(ChatTemplateSource, TheOneForToolsIsTakenWhereThereAreTools) {
    const ChatTemplate chat(ChatTemplateSource{"plain", "{{ tools | length }} tools"}, "t");
    EXPECT_EQ(chat.render({{"user", "u"}}, {}).text, "plain");
    EXPECT_EQ(chat.render({{"user", "u"}}, {.tools = Json::Array{Json::Object{}}}).text, "1 tools");
}

TEST(ChatTemplateSource, WhatIsNoneIsNamed) {
    const testing::TempDir folder;
    const std::string unknown = refusal("wizard");
    EXPECT_NE(unknown.find("alpaca, chatml, exaone, gemma, llama2, llama3, mistral"),
              std::string::npos)
        << unknown;
    EXPECT_NE(unknown.find("no such file"), std::string::npos);
    EXPECT_NE(refusal(folder.path().string()).find("no chat template"), std::string::npos);
    EXPECT_NE(refusal(folder.write("a.json", "{}").string()).find("has no \"chat_template\""),
              std::string::npos);
    EXPECT_NE(refusal(folder.write("b.json", "{").string()).find("b.json"), std::string::npos);
    EXPECT_NE(refusal(folder.write("c.jinja", " \n").string()).find("empty"), std::string::npos);
    EXPECT_NE(
        refusal(folder.write("d.json", R"({"chat_template": [{"name": "rag", "template": "r"}]})")
                    .string())
            .find("\"default\""),
        std::string::npos);
}

}  // namespace
}  // namespace garam
