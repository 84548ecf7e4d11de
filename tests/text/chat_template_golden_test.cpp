// Texts and ids of Transformers' apply_chat_template, for every vector file of the reference data.
#include <gtest/gtest.h>

#include <iostream>
#include <sstream>

#include "garam/core/json.h"
#include "garam/text/chat_template.h"
#include "testing/test_data.h"
#include "tokenizer_data.h"

namespace garam {
namespace {

using testing::data_dir;
using testing::read_file;

// Conversations with tools or other fields of messages are not supported.
bool plain(const Json& row) {
    if (const Json* tools = row.find("tools"); tools != nullptr && !tools->is_null()) return false;
    for (const Json& message : row.at("messages").array()) {
        const Json* content = message.find("content");
        if (message.object().size() != 2 || content == nullptr || !content->is_string())
            return false;
    }
    return true;
}

TEST(ChatTemplateGolden, Vectors) {
    GARAM_REQUIRE_DATA("golden/chat");
    const std::filesystem::path folder = data_dir() / "golden/chat";
    std::size_t compared = 0;
    for (const std::string& file : testing::files_in(folder, ".jsonl")) {
        const std::string name = file.substr(0, file.size() - 6);
        SCOPED_TRACE(name);
        const ChatTemplate chat_template(read_file(folder / (name + ".template.jinja")), name);
        const Tokenizer* tokenizer = testing::reference_tokenizer(name);
        ASSERT_NE(tokenizer, nullptr);
        const auto token = [](const std::optional<std::int32_t>& id, const Tokenizer& from) {
            return id ? from.token_of(*id) : std::string();
        };
        std::istringstream lines(read_file(folder / file));
        std::size_t skipped = 0;
        for (std::string line; std::getline(lines, line);) {
            if (line.empty()) continue;
            const Json row = Json::parse(line, file);
            if (!plain(row)) {
                ++skipped;
                continue;
            }
            std::vector<ChatMessage> messages;
            for (const Json& message : row.at("messages").array())
                messages.push_back({message.at("role").string(), message.at("content").string()});
            const RenderedChat chat =
                chat_template.render(messages, {row.at("add_generation_prompt").boolean(),
                                                token(tokenizer->bos_id(), *tokenizer),
                                                token(tokenizer->eos_id(), *tokenizer)});
            EXPECT_EQ(chat.text, row.at("text").string());
            std::vector<std::int32_t> want;
            for (const Json& id : row.at("ids").array())
                want.push_back(static_cast<std::int32_t>(id.integer()));
            EXPECT_EQ(tokenizer->encode_ids(chat.text, {}), want);
            // A content is where it was put, possibly trimmed.
            for (std::size_t i = 0; i < messages.size(); ++i) {
                EXPECT_TRUE(chat.present[i]);
                const ByteSpan span = chat.contents[i];
                const std::string got = chat.text.substr(span.begin, span.end - span.begin);
                EXPECT_NE(messages[i].content.find(got), std::string::npos);
                if (messages[i].content.find_first_not_of(" \t\n") != std::string::npos) {
                    EXPECT_FALSE(got.empty());
                }
            }
            ++compared;
        }
        if (skipped > 0)
            std::cout << "[  SKIPPED ] " << name << ": " << skipped
                      << " conversations with tools\n";
    }
    EXPECT_GT(compared, 0u);
}

}  // namespace
}  // namespace garam
