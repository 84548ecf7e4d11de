#include "garam/text/chat_turns.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "garam/core/error.h"

namespace garam {
namespace {

using jinja::Mark;
using jinja::Origin;

constexpr std::string_view kAssistant = "assistant";
constexpr const char* kPlainAnswer = "Zq5plainqZ";  // no template changes or looks for it

bool is_blank(std::string_view text) {
    return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// Bytes that one message has without another's between them.
struct Run {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::optional<std::size_t> first_data;
    std::size_t data_end = 0;
    bool has_words = false;   // the template's own
    bool split_data = false;  // its own words stand within the data
};

std::vector<Run> runs_of(const RenderedChat& chat, int message) {
    std::vector<Run> runs;
    bool apart = true;
    for (const Mark& mark : chat.marks) {
        if (mark.message != message) {
            apart = apart || (mark.message >= 0 && mark.begin < mark.end);
            continue;
        }
        if (apart) runs.emplace_back().begin = mark.begin;
        apart = false;
        Run& run = runs.back();
        run.end = mark.end;
        if (mark.origin == Origin::literal) {
            run.has_words = true;
            continue;
        }
        if (run.first_data && mark.begin > run.data_end) run.split_data = true;
        if (!run.first_data) run.first_data = mark.begin;
        run.data_end = mark.end;
    }
    // White space alone is left by loops that write nothing.
    std::erase_if(runs, [&](const Run& run) {
        return !run.first_data &&
               is_blank(std::string_view(chat.text).substr(run.begin, run.end - run.begin));
    });
    // A word of it that stands in another's turn (the name of a called function before its result) is
    // no turn.
    if (std::any_of(runs.begin(), runs.end(), [](const Run& run) { return run.has_words; }))
        std::erase_if(runs, [](const Run& run) { return !run.has_words; });
    return runs;
}

class Turns {
  public:
    Turns(const ChatTemplate& chat_template, const RenderedChat& chat,
          const std::vector<ChatMessage>& messages, const ChatTemplate::Options& options)
        : template_(chat_template), chat_(chat), messages_(messages), options_(options) {}

    std::vector<ChatTurn> find() {
        for (std::size_t m = 0; m < messages_.size(); ++m) {
            if (messages_[m].role != kAssistant) continue;
            const std::vector<Run> runs = runs_of(chat_, static_cast<int>(m));
            if (runs.empty()) continue;
            if (runs.size() > 1)
                refuse(m, "the template writes it in several places, with other messages between");
            if (!runs[0].first_data && leaves_out_answers(m)) continue;
            turns_.push_back(turn(m, runs[0]));
        }
        return std::move(turns_);
    }

    std::vector<ChatTurn> find_generation() {
        std::size_t begin = 0;
        for (std::size_t i = 0; i < chat_.marks.size(); i = std::max(begin, i + 1)) {
            begin = i;
            if (!chat_.marks[i].generation) continue;
            ChatTurn found;
            found.message = messages_.size();
            found.exact = true;
            found.begin = chat_.marks[i].begin;
            for (; begin < chat_.marks.size() && chat_.marks[begin].generation &&
                   (begin == i || chat_.marks[begin].begin == found.end);
                 ++begin) {
                const Mark& mark = chat_.marks[begin];
                if (mark.message >= 0 && mark.message != static_cast<int>(found.message)) {
                    const auto place = static_cast<std::size_t>(mark.message);
                    if (messages_[place].role == kAssistant) {
                        if (found.message < messages_.size()) break;  // the next turn touches
                        found.message = place;
                    }
                }
                found.end = mark.end;
            }
            found.data_end = found.end;
            if (found.begin < found.end) turns_.push_back(found);
        }
        return std::move(turns_);
    }

  private:
    [[noreturn]] static void refuse(std::size_t message, const std::string& why) {
        throw Error("message " + std::to_string(message + 1) +
                    ": it cannot be told what of it the assistant is to say: " + why);
    }

    std::string_view part(std::size_t begin, std::size_t end) const {
        return std::string_view(chat_.text).substr(begin, end - begin);
    }

    ChatTurn turn(std::size_t m, const Run& run) {
        ChatTurn found;
        found.message = m;
        found.has_calls = !messages_[m].more.empty();
        found.end = run.end;
        if (!run.has_words && run.first_data) {
            // No loop is at the message: its words around the data are nobody's.
            if (run.split_data || found.has_calls)
                refuse(
                    m,
                    "the template writes more than its content, outside of a loop over messages");
            found.begin = *run.first_data;
        } else {
            found.begin = begin_of(m, run);
        }
        found.data_end = std::max(found.begin, run.first_data ? run.data_end : found.begin);
        return found;
    }

    std::size_t begin_of(std::size_t m, const Run& run) {
        const std::size_t first = run.first_data.value_or(run.end);
        if (!prompt_.empty() && part(run.begin, first) == prompt_) return first;
        if (const auto begin = behind_prompt(m, run)) return *begin;
        if (messages_[m].more.empty() && !run.split_data && run.first_data) return first;
        // A plain answer in that place shows the header.
        const auto header = plain_header(m);
        if (!header) {
            refuse(
                m,
                "the template writes neither a generation prompt that the turn begins with nor a "
                "plain answer");
        }
        const std::string_view words = part(run.begin, first);
        std::size_t same = 0;
        while (same < words.size() && same < header->size() && words[same] == (*header)[same])
            ++same;
        // A header that only partly agrees is cut at what both write before they part.
        while (same > 0 && same < words.size() &&
               (static_cast<unsigned char>(words[same]) & 0xC0u) == 0x80u)
            --same;
        return run.begin + same;
    }

    std::optional<std::string> render(const std::vector<ChatMessage>& messages, bool prompt) const {
        if (messages.empty()) return std::nullopt;
        ChatTemplate::Options options = options_;
        options.add_generation_prompt = prompt;
        try {
            return template_.render(messages, options).text;
        } catch (const Error&) {
            return std::nullopt;  // it refuses the beginning of this conversation
        }
    }

    std::vector<ChatMessage> before(std::size_t m) const {
        return {messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(m)};
    }

    std::optional<std::size_t> behind_prompt(std::size_t m, const Run& run) {
        const auto prompted = render(before(m), true);
        if (!prompted) return std::nullopt;
        if (prompted->size() > run.begin && prompted->size() <= run.end &&
            std::string_view(chat_.text).starts_with(*prompted)) {
            prompt_ = part(run.begin, prompted->size());
            return prompted->size();
        }
        // A template that writes earlier turns anew: what the prompt adds is compared alone.
        const auto without = render(before(m), false);
        if (!without || !prompted->starts_with(*without)) return std::nullopt;
        const std::string added = prompted->substr(without->size());
        if (added.empty() || !part(run.begin, run.end).starts_with(added)) return std::nullopt;
        prompt_ = added;
        return run.begin + added.size();
    }

    // Whether the template writes something in that place, but never what the assistant says.
    bool leaves_out_answers(std::size_t m) const {
        std::vector<ChatMessage> messages = before(m);
        messages.push_back({std::string(kAssistant), kPlainAnswer});
        try {
            return template_.render(messages, options_).text.find(kPlainAnswer) ==
                   std::string::npos;
        } catch (const Error&) {
            return false;
        }
    }

    std::optional<std::string> plain_header(std::size_t m) const {
        std::vector<ChatMessage> messages = before(m);
        messages.push_back({std::string(kAssistant), kPlainAnswer});
        try {
            const RenderedChat plain = template_.render(messages, options_);
            for (const Run& run : runs_of(plain, static_cast<int>(m)))
                if (run.first_data)
                    return plain.text.substr(run.begin, *run.first_data - run.begin);
        } catch (const Error&) {
            return std::nullopt;
        }
        return std::nullopt;
    }

    const ChatTemplate& template_;
    const RenderedChat& chat_;
    const std::vector<ChatMessage>& messages_;
    const ChatTemplate::Options& options_;
    std::string prompt_;  // as found at an earlier turn
    std::vector<ChatTurn> turns_;
};

}  // namespace

std::vector<ChatTurn> find_turns(const ChatTemplate& chat_template, const RenderedChat& chat,
                                 const std::vector<ChatMessage>& messages,
                                 const ChatTemplate::Options& options) {
    Turns turns(chat_template, chat, messages, options);
    return chat_template.marks_generation(options) ? turns.find_generation() : turns.find();
}

}  // namespace garam
