// Texts and ids of Transformers' apply_chat_template, for every vector file of the reference data.
#include <gtest/gtest.h>

#include <sstream>

#include "garam/core/json.h"
#include "garam/text/chat_template.h"
#include "testing/test_data.h"
#include "tokenizer_data.h"

namespace garam {
namespace {

using testing::data_dir;
using testing::read_file;

class ChatVectors : public ::testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ChatVectors);

TEST_P(ChatVectors, TextsIdsAndContents) {
    const std::string& name = GetParam();
    const std::filesystem::path folder = data_dir() / "golden/chat";
    GARAM_SKIP_UNSUPPORTED(const ChatTemplate chat_template,
                           ChatTemplate(read_file(folder / (name + ".template.jinja")), name));
    GARAM_SKIP_UNSUPPORTED(const Tokenizer* tokenizer, testing::reference_tokenizer(name));
    if (tokenizer == nullptr) GTEST_SKIP() << "no tokenizer files for " << name;
    const auto token = [&](std::optional<std::int32_t> id) {
        return id ? tokenizer->token_of(*id) : std::string();
    };
    std::istringstream lines(read_file(folder / (name + ".jsonl")));
    std::size_t compared = 0;
    std::size_t with_tools = 0;
    for (std::string line; std::getline(lines, line);) {
        if (line.empty()) continue;
        const Json row = Json::parse(line, name);
        std::vector<ChatMessage> messages;
        for (const Json& message : row.at("messages").array())
            messages.push_back(ChatMessage::from_json(message, name));
        ChatTemplate::Options options{row.at("add_generation_prompt").boolean(),
                                      token(tokenizer->bos_id()), token(tokenizer->eos_id())};
        if (const Json* tools = row.find("tools"); tools != nullptr && !tools->is_null()) {
            options.tools = *tools;
            ++with_tools;
        }
        const RenderedChat chat = chat_template.render(messages, options);
        EXPECT_EQ(chat.text, row.at("text").string());
        std::vector<std::int32_t> want;
        for (const Json& id : row.at("ids").array())
            want.push_back(static_cast<std::int32_t>(id.integer()));
        EXPECT_EQ(tokenizer->encode_ids(chat.text, {}), want);
        // A content is where it was put, possibly trimmed.
        for (std::size_t i = 0; i < messages.size(); ++i) {
            if (messages[i].content.empty()) continue;
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
    EXPECT_GT(compared, 0u);
    if (name == "qwen2.5") {
        EXPECT_GT(with_tools, 0u);
    }
}

INSTANTIATE_TEST_SUITE_P(Golden, ChatVectors, ::testing::ValuesIn(testing::golden_templates()),
                         testing::case_name);

}  // namespace
}  // namespace garam
