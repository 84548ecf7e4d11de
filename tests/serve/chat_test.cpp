#include "garam/serve/chat.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::TempDir;
using testing::TinyModel;
using testing::write_tiny_model;

class ChatTest : public ::testing::Test {
  protected:
    void SetUp() override {
        write_tiny_model(dir_ / "model", model_);
        session_ =
            std::make_unique<Session>(SessionOptions{.model = dir_ / "model", .dtype = "f32"});
    }
    std::vector<std::int32_t> prompt(const std::vector<ChatMessage>& messages) const {
        return chat_prompt(session_->tokenizer(), messages, "model");
    }

    TempDir dir_;
    TinyModel model_;
    std::unique_ptr<Session> session_;
    GenerationOptions options_{.max_new_tokens = 12, .eos_ids = {258}};
};

TEST_F(ChatTest, ThePromptIsWhatTheTemplateWrites) {
    const std::vector<std::int32_t> ids = prompt({{"system", "S"}, {"user", "hi"}});
    EXPECT_EQ(session_->tokenizer().decode(ids, false),
              "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
              "<|im_start|>assistant\n");
    EXPECT_EQ(ids.front(), 257);
}

TEST_F(ChatTest, EarlierTurnsAreNotComputedAgain) {
    Chat chat(*session_, "Be brief.");
    const Generation first = chat.answer("one", options_, {});
    EXPECT_EQ(first.reused_tokens, 0);
    const std::vector<std::int32_t> before = prompt({{"system", "Be brief."}, {"user", "one"}});
    const Generation second = chat.answer("two", options_, {});
    // At least the first prompt; the answer too, up to where its text was written as other ids.
    EXPECT_GE(second.reused_tokens, static_cast<std::int64_t>(before.size()));
    EXPECT_LT(second.reused_tokens, second.prompt_tokens);

    // The same answer as from a conversation that is computed in one go.
    std::vector<ChatMessage> messages = chat.messages();
    ASSERT_EQ(messages.size(), 5u);
    EXPECT_EQ(messages[2].content, first.text);
    EXPECT_EQ(messages[4].role, "assistant");
    messages.pop_back();
    Sequence fresh(*session_);
    EXPECT_EQ(generate(fresh, prompt(messages), options_).ids, second.ids);
}

TEST_F(ChatTest, ResetBeginsAfterTheSystemMessage) {
    Chat chat(*session_, "S");
    const Generation first = chat.answer("hello", options_, {});
    chat.answer("more", options_, {});
    chat.reset();
    ASSERT_EQ(chat.messages().size(), 1u);
    const Generation again = chat.answer("hello", options_, {});
    EXPECT_EQ(again.ids, first.ids);
    EXPECT_GT(again.reused_tokens, 0);
}

TEST_F(ChatTest, ATurnThatDoesNotFitIsForgotten) {
    Chat chat(*session_, "");
    chat.answer("short", options_, {});
    const std::vector<ChatMessage> before = chat.messages();
    EXPECT_THROW(chat.answer(std::string(600, 'x'), options_, {}), Error);
    EXPECT_EQ(chat.messages().size(), before.size());
    EXPECT_NO_THROW(chat.answer("again", options_, {}));
}

TEST_F(ChatTest, AModelWithoutTemplateIsNoChatModel) {
    TinyModel plain;
    plain.chat_template = false;
    write_tiny_model(dir_ / "plain", plain);
    Session session({.model = dir_ / "plain", .dtype = "f32"});
    try {
        const Chat chat(session, "");
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("chat template"), std::string::npos);
    }
}

}  // namespace
}  // namespace garam
