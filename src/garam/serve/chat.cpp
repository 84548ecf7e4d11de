#include "garam/serve/chat.h"

#include <utility>

#include "garam/core/error.h"

namespace garam {

std::vector<std::int32_t> chat_prompt(const Tokenizer& tokenizer,
                                      const std::vector<ChatMessage>& messages,
                                      const std::string& model) {
    if (tokenizer.chat_template().empty())
        throw Error(model +
                    ": the tokenizer has no chat template: it is no chat model, continue "
                    "plain text with garam generate");
    const auto text_of = [&](const std::optional<std::int32_t>& id) {
        return id ? tokenizer.token_of(*id) : std::string();
    };
    ChatTemplate::Options options;
    options.add_generation_prompt = true;
    options.bos_token = text_of(tokenizer.bos_id());
    options.eos_token = text_of(tokenizer.eos_id());
    const ChatTemplate chat(tokenizer.chat_template(), model + ": chat template");
    return tokenizer.encode_ids(chat.render(messages, options).text, {});
}

Chat::Chat(Session& session, std::string system)
    : session_(session), sequence_(session), system_(std::move(system)) {
    reset();
    chat_prompt(session_.tokenizer(), {{"user", "?"}}, session_.files().path().string());
}

void Chat::reset() {
    messages_.clear();
    if (!system_.empty()) messages_.push_back({"system", system_});
}

Generation Chat::answer(const std::string& text, const GenerationOptions& options,
                        const std::function<void(std::string_view)>& on_text) {
    std::vector<ChatMessage> messages = messages_;
    messages.push_back({"user", text});
    const std::vector<std::int32_t> prompt =
        chat_prompt(session_.tokenizer(), messages, session_.files().path().string());
    GenerationOptions own = options;
    own.continues_prompt = false;
    Generation generation = generate(sequence_, prompt, own, on_text);
    messages.push_back({"assistant", generation.text});
    messages_ = std::move(messages);
    return generation;
}

}  // namespace garam
