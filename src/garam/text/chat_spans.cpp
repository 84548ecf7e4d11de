#include "garam/text/chat_spans.h"

#include <algorithm>

namespace garam {
namespace {

constexpr std::string_view kAssistant = "assistant";

std::string reason(const RenderedChat& chat, const std::vector<ChatMessage>& messages) {
    bool speaks = false;
    bool trained = false;
    bool rendered = false;
    for (std::size_t m = 0; m < messages.size(); ++m) {
        if (messages[m].role != kAssistant) continue;
        speaks = true;
        trained = trained || messages[m].train;
        rendered = rendered || chat.present[m];
    }
    if (!speaks) return "the conversation has no message with the role \"assistant\"";
    if (!trained) return "all of the assistant's messages have train: false";
    if (!rendered) return "the chat template leaves out the assistant's messages";
    return "the assistant's messages are empty and nothing ends them";
}

}  // namespace

ChatTokens tokenize_chat(const ChatTemplate& chat_template,
                         const std::vector<ChatMessage>& messages,
                         const ChatTemplate::Options& options, const Tokenizer& tokenizer,
                         const ChatTargets& targets) {
    RenderedChat chat = chat_template.render(messages, options);
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
    std::size_t last = messages.size();
    while (last > 0 && messages[last - 1].role != kAssistant)
        --last;
    for (std::size_t m = 0; m < messages.size(); ++m) {
        if (messages[m].role != kAssistant || !messages[m].train || !chat.present[m]) continue;
        if (targets.train_on_turns == TrainOnTurns::last && m + 1 != last) continue;
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
    out.why_no_targets = out.num_targets > 0 ? std::string() : reason(chat, messages);
    out.text = std::move(chat.text);
    return out;
}

}  // namespace garam
