#include "garam/text/chat_spans.h"

#include <algorithm>
#include <string_view>

#include "garam/core/error.h"
#include "garam/text/chat_turns.h"

namespace garam {
namespace {

constexpr std::string_view kAssistant = "assistant";

bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

std::string reason(const std::vector<ChatTurn>& turns, const std::vector<ChatMessage>& messages,
                   bool marks_generation) {
    bool speaks = false;
    bool trained = false;
    for (const ChatMessage& message : messages) {
        if (message.role != kAssistant) continue;
        speaks = true;
        trained = trained || message.train;
    }
    if (!speaks) return "the conversation has no message with the role \"assistant\"";
    if (!trained) return "all of the assistant's messages have train: false";
    if (turns.empty() && marks_generation)
        return "the chat template has generation blocks, but writes none here";
    if (turns.empty()) return "the chat template leaves out the assistant's messages";
    return "the assistant's messages are empty and nothing ends them";
}

class Marker {
  public:
    Marker(ChatTokens& out, const std::vector<ByteSpan>& spans, const RenderedChat& chat,
           const Tokenizer& tokenizer)
        : out_(out), spans_(spans), chat_(chat), tokenizer_(tokenizer) {}

    void mark(const ChatTurn& turn) {
        const std::size_t end = turn.exact ? turn.end : end_of(turn);
        for (std::size_t i = first_behind(turn.begin); i < spans_.size(); ++i) {
            const ByteSpan span = spans_[i];
            if (span.begin >= end) break;
            if (span.begin >= span.end) continue;
            // A token that the block only touches counts, as in Transformers.
            if (span.end > end && !turn.exact) continue;
            out_.merged_start = out_.merged_start || span.begin < turn.begin;
            out_.num_targets += out_.is_target[i] ? 0 : 1;
            out_.is_target[i] = true;
        }
    }

  private:
    // The first token that ends behind `place`.
    std::size_t first_behind(std::size_t place) const {
        const auto found = std::partition_point(
            spans_.begin(), spans_.end(), [&](const ByteSpan& span) { return span.end <= place; });
        return static_cast<std::size_t>(found - spans_.begin());
    }

    // Behind the token that ends the turn: the first EOS behind its data, else the last special token
    // that the template wrote for it, else the one that follows at once.
    std::size_t end_of(const ChatTurn& turn) const {
        std::size_t last = 0;
        std::size_t i = first_behind(turn.data_end);
        for (; i < spans_.size() && spans_[i].end <= turn.end; ++i) {
            if (spans_[i].begin < turn.data_end || !tokenizer_.is_special(out_.ids[i])) continue;
            last = spans_[i].end;
            if (out_.ids[i] == tokenizer_.eos_id()) break;
        }
        if (last > 0) return last;
        const std::string_view text = chat_.text;
        std::size_t place = turn.end;
        for (const std::size_t limit = next_mark(turn); place < limit && is_space(text[place]);)
            ++place;
        i = first_behind(place);
        if (i < spans_.size() && spans_[i].begin == place && tokenizer_.is_special(out_.ids[i]) &&
            (out_.ids[i] == tokenizer_.eos_id() || spans_[i].end <= next_mark(turn)))
            return spans_[i].end;
        if (!turn.has_calls) return turn.data_end;
        std::size_t end = turn.end;
        while (end > turn.data_end && is_space(text[end - 1]))
            --end;
        return end;
    }

    // Where something of a message begins next.
    std::size_t next_mark(const ChatTurn& turn) const {
        for (const jinja::Mark& mark : chat_.marks)
            if (mark.message >= 0 && mark.begin >= turn.end && mark.begin < mark.end)
                return mark.begin;
        return chat_.text.size();
    }

    ChatTokens& out_;
    const std::vector<ByteSpan>& spans_;
    const RenderedChat& chat_;
    const Tokenizer& tokenizer_;
};

}  // namespace

ChatTokens tokenize_chat(const ChatTemplate& chat_template,
                         const std::vector<ChatMessage>& messages,
                         const ChatTemplate::Options& options, const Tokenizer& tokenizer,
                         const ChatTargets& targets) {
    RenderedChat chat = chat_template.render(messages, options);
    std::vector<ChatTurn> turns = find_turns(chat_template, chat, messages, options);
    Encoding encoding = tokenizer.encode(chat.text, {});
    ChatTokens out;
    out.ids = std::move(encoding.ids);
    out.is_target.assign(out.ids.size(), false);
    Marker marker(out, encoding.spans, chat, tokenizer);
    std::size_t last = messages.size();
    while (last > 0 && messages[last - 1].role != kAssistant)
        --last;
    const bool chooses = targets.train_on_turns == TrainOnTurns::last ||
                         std::any_of(messages.begin(), messages.end(),
                                     [](const ChatMessage& message) { return !message.train; });
    for (const ChatTurn& turn : turns) {
        if (turn.message >= messages.size()) {
            if (chooses)
                throw Error(
                    "the chat template's generation blocks do not show whose turn they are, "
                    "so that turns cannot be chosen (train: false, train_on_turns: last)");
        } else {
            if (!messages[turn.message].train) continue;
            if (targets.train_on_turns == TrainOnTurns::last && turn.message + 1 != last) continue;
        }
        marker.mark(turn);
    }
    if (out.num_targets == 0)
        out.why_no_targets = reason(turns, messages, chat_template.marks_generation(options));
    out.text = std::move(chat.text);
    return out;
}

}  // namespace garam
