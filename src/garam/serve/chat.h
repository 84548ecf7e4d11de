// Conversations: messages through the model's chat template, one answer a turn.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "garam/serve/generation.h"
#include "garam/serve/session.h"
#include "garam/text/chat_template.h"

namespace garam {

// Ids of the messages as the template writes them, up to where the assistant's answer begins. The
// template itself writes BOS where the model wants one. Throws Error when the tokenizer has no chat
// template, naming `model`, or the template refuses the messages.
std::vector<std::int32_t> chat_prompt(const Tokenizer& tokenizer,
                                      const std::vector<ChatMessage>& messages,
                                      const std::string& model);

class Chat {
  public:
    // `system`: the first message; empty: none beyond what the template adds itself. The session must
    // outlive the chat. Throws Error when the model has no chat template.
    Chat(Session& session, std::string system);

    // One turn; its text is one of its own, whatever the options say. When it throws (the context
    // is full), the turn is not part of the conversation.
    Generation answer(const std::string& text, const GenerationOptions& options,
                      const std::function<void(std::string_view)>& on_text);
    // Begins anew after the system message.
    void reset();
    const std::vector<ChatMessage>& messages() const { return messages_; }

  private:
    Session& session_;
    Sequence sequence_;  // earlier turns are computed already
    std::string system_;
    std::vector<ChatMessage> messages_;
};

}  // namespace garam
