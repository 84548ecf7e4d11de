#include "garam/text/chat_spans.h"

#include <algorithm>

#include "garam/core/error.h"

namespace garam {
namespace {

constexpr std::string_view kAssistant = "assistant";

}  // namespace

ChatTokens tokenize_chat(const RenderedChat& chat, const std::vector<ChatMessage>& messages,
                         const Tokenizer& tokenizer) {
    GARAM_CHECK(chat.contents.size() == messages.size() && chat.present.size() == messages.size(),
                "a rendered chat of other messages");
    Encoding encoding = tokenizer.encode(chat.text, {});
    ChatTokens out;
    out.ids = std::move(encoding.ids);
    const std::vector<ByteSpan>& spans = encoding.spans;
    const std::size_t count = out.ids.size();
    out.is_target.assign(count, false);
    const auto target = [&](std::size_t i) {
        out.num_targets += out.is_target[i] ? 0 : 1;
        out.is_target[i] = true;
    };
    for (std::size_t m = 0; m < messages.size(); ++m) {
        if (messages[m].role != kAssistant || !chat.present[m]) continue;
        const ByteSpan content = chat.contents[m];
        std::size_t limit = chat.text.size();  // where the next message's content begins
        for (std::size_t other = 0; other < messages.size(); ++other) {
            if (other != m && chat.present[other] && chat.contents[other].begin >= content.end)
                limit = std::min(limit, chat.contents[other].begin);
        }
        std::size_t i = 0;
        for (; i < count && spans[i].end <= content.end; ++i) {
            if (spans[i].end > content.begin && spans[i].begin < spans[i].end) target(i);
        }
        const std::size_t behind = i;
        while (i < count && spans[i].end <= limit && !tokenizer.is_special(out.ids[i]))
            ++i;
        const bool ended = i < count && spans[i].end <= limit && tokenizer.is_special(out.ids[i]);
        for (std::size_t t = behind; ended && t <= i; ++t)
            target(t);
    }
    return out;
}

std::string reason_for_no_targets(const RenderedChat& chat,
                                  const std::vector<ChatMessage>& messages,
                                  const ChatTokens& tokens) {
    if (tokens.num_targets > 0) return {};
    bool speaks = false;
    bool rendered = false;
    for (std::size_t m = 0; m < messages.size(); ++m) {
        if (messages[m].role != kAssistant) continue;
        speaks = true;
        rendered = rendered || chat.present[m];
    }
    if (!speaks) return "the conversation has no message with the role \"assistant\"";
    if (!rendered) return "the chat template leaves out the assistant's messages";
    return "the assistant's messages are empty and nothing ends them";
}

}  // namespace garam
