#include "garam/text/ollama_template.h"

#include <algorithm>

#include "garam/core/error.h"
#include "garam/text/chat_template.h"

namespace garam {
namespace {

using Messages = std::vector<ChatMessage>;

// Words that no template changes or looks for.
constexpr const char* kSystemMark = "Zq1systemqZ";
constexpr const char* kUserMark = "Zq2userqZ";
constexpr const char* kAnswerMark = "Zq3answerqZ";
constexpr const char* kNextMark = "Zq4nextqZ";

struct Around {
    std::string before;
    std::string behind;
};

class Probe {
  public:
    explicit Probe(const Tokenizer& tokenizer)
        : tokenizer_(tokenizer), template_(tokenizer.chat_template(), "chat template") {
        if (const auto bos = tokenizer.bos_id()) options_.bos_token = tokenizer.token_of(*bos);
        if (const auto eos = tokenizer.eos_id()) options_.eos_token = tokenizer.token_of(*eos);
    }

    std::optional<OllamaTemplate> take() {
        if (!find_turns()) return std::nullopt;
        find_system();
        if (!reassembles()) return std::nullopt;
        OllamaTemplate out;
        out.go_template = go_template();
        for (const std::string* text :
             {&always_, &without_system_, &system_.before, &system_.behind, &user_.before,
              &user_.behind, &answer_.before, &answer_.behind, &prompt_}) {
            // Neither Go's templates nor a Modelfile's quotes can hold these as text.
            if (text->find("{{") != std::string::npos || text->find("\"\"\"") != std::string::npos)
                return std::nullopt;
        }
        out.stops = stops();
        return out;
    }

  private:
    std::string render(const Messages& messages, bool prompt) const {
        ChatTemplate::Options options = options_;
        options.add_generation_prompt = prompt;
        std::string text = template_.render(messages, options).text;
        const std::string& bos = options_.bos_token;
        if (!bos.empty() && tokenizer_.adds_bos() && text.starts_with(bos))
            text.erase(0, bos.size());
        return text;
    }

    // Cuts `text` at the marks: one more piece than there are marks; none where one is missing.
    static std::vector<std::string> cut(const std::string& text,
                                        const std::vector<const char*>& marks) {
        std::vector<std::string> pieces;
        std::size_t at = 0;
        for (const char* mark : marks) {
            const std::size_t found = text.find(mark, at);
            if (found == std::string::npos) return {};
            pieces.push_back(text.substr(at, found - at));
            at = found + std::char_traits<char>::length(mark);
        }
        pieces.push_back(text.substr(at));
        return pieces;
    }

    // What stands around a user's message and an answer, and how an answer is asked for.
    bool find_turns() {
        const Messages asked = {{"user", kUserMark}};
        Messages answered = asked;
        answered.push_back({"assistant", kAnswerMark});
        Messages again = answered;
        again.push_back({"user", kNextMark});
        const auto first = cut(render(asked, false), {kUserMark});
        const auto prompted = cut(render(asked, true), {kUserMark});
        const auto whole = cut(render(again, false), {kUserMark, kAnswerMark, kNextMark});
        if (first.empty() || prompted.empty() || whole.empty()) return false;
        user_.behind = whole[3];
        if (!whole[1].starts_with(user_.behind)) return false;
        answer_.before = whole[1].substr(user_.behind.size());
        if (!prompted[1].starts_with(user_.behind)) return false;
        prompt_ = prompted[1].substr(user_.behind.size());
        start_ = whole[0];
        // Between an answer and the next message: its end and the message's beginning, which the first
        // message has too, behind a default system message perhaps.
        const auto ended = cut(render(answered, false), {kUserMark, kAnswerMark});
        if (ended.empty()) return false;
        answer_.behind = ended[2];
        if (!whole[2].starts_with(answer_.behind)) {
            // A template may end the last answer otherwise than those before it.
            std::size_t same = 0;
            while (same < answer_.behind.size() && same < whole[2].size() &&
                   answer_.behind[same] == whole[2][same])
                ++same;
            answer_.behind.resize(same);
        }
        user_.before = whole[2].substr(answer_.behind.size());
        return start_.ends_with(user_.before);
    }

    // A template without a system role (Gemma's) raises.
    std::string render_system() const {
        try {
            return render({{"system", kSystemMark}, {"user", kUserMark}}, false);
        } catch (const Error&) {
            return {};
        }
    }

    void find_system() {
        const std::string preface = start_.substr(0, start_.size() - user_.before.size());
        const auto pieces = cut(render_system(), {kSystemMark, kUserMark});
        if (!pieces.empty() && pieces[1].ends_with(user_.before)) {
            has_system_ = true;
            system_.before = pieces[0];
            system_.behind = pieces[1].substr(0, pieces[1].size() - user_.before.size());
        }
        if (has_system_ && !system_.before.starts_with(preface)) {
            without_system_ = preface;
        } else {
            always_ = preface;
            if (has_system_) system_.before.erase(0, preface.size());
        }
    }

    // As Ollama will put it together.
    std::string assemble(const Messages& messages) const {
        std::string text = always_;
        if (messages[0].role != "system") text += without_system_;
        for (const ChatMessage& message : messages) {
            const Around& around = message.role == "system" ? system_
                                   : message.role == "user" ? user_
                                                            : answer_;
            text += around.before + message.content + around.behind;
        }
        return text + prompt_;
    }

    bool reassembles() const {
        const Messages one = {{"user", "What is a river?"}};
        const Messages three = {
            {"user", "Hello"}, {"assistant", "Hello, friend."}, {"user", "Say: two\nlines"}};
        std::vector<Messages> all = {one, three};
        if (has_system_) {
            for (Messages messages : {one, three}) {
                messages.insert(messages.begin(), {"system", "You answer briefly."});
                all.push_back(std::move(messages));
            }
        }
        return std::all_of(all.begin(), all.end(), [&](const Messages& messages) {
            return assemble(messages) == render(messages, true);
        });
    }

    std::string go_template() const {
        std::string text = always_;
        if (!without_system_.empty())
            text += "{{ if not .System }}" + without_system_ + "{{ end }}";
        text += "{{ range .Messages }}";
        if (has_system_)
            text += "{{ if eq .Role \"system\" }}" + system_.before + "{{ .Content }}" +
                    system_.behind + "{{ else if eq .Role \"user\" }}";
        else
            text += "{{ if eq .Role \"user\" }}";
        text += user_.before + "{{ .Content }}" + user_.behind +
                "{{ else if eq .Role \"assistant\" }}" + answer_.before + "{{ .Content }}" +
                answer_.behind + "{{ end }}{{ end }}" + prompt_;
        return text;
    }

    // The end of sequence, and the special tokens that stand behind an answer or before a message.
    std::vector<std::string> stops() const {
        std::vector<std::string> stops;
        const auto add = [&](const std::string& token) {
            if (!token.empty() && std::find(stops.begin(), stops.end(), token) == stops.end())
                stops.push_back(token);
        };
        add(options_.eos_token);
        for (const std::string* text : {&answer_.behind, &user_.before}) {
            for (const std::int32_t id : tokenizer_.encode_ids(*text, {})) {
                if (tokenizer_.is_special(id)) add(tokenizer_.token_of(id));
            }
        }
        return stops;
    }

    const Tokenizer& tokenizer_;
    ChatTemplate template_;
    ChatTemplate::Options options_;
    bool has_system_ = false;
    Around system_;
    Around user_;
    Around answer_;
    std::string start_;   // of a conversation without a system message, up to the user's words
    std::string always_;  // what stands at the beginning in any case
    std::string without_system_;  // there where the first message is no system message
    std::string prompt_;
};

// Between three quotes nothing is escaped; a quote at the end needs a space.
std::string quoted(const std::string& text) {
    return "\"\"\"" + text + (text.ends_with('"') ? " " : "") + "\"\"\"";
}

}  // namespace

std::optional<OllamaTemplate> ollama_template(const Tokenizer& tokenizer) {
    if (tokenizer.chat_template().empty()) return std::nullopt;
    try {
        return Probe(tokenizer).take();
    } catch (const Error&) {
        return std::nullopt;  // it raises on a plain conversation
    }
}

std::string ollama_modelfile(const std::string& model, const std::string& adapter,
                             const std::optional<OllamaTemplate>& chat) {
    std::string text = "FROM " + model + "\n";
    if (!adapter.empty()) text += "ADAPTER " + adapter + "\n";
    if (!chat) return text;
    text += "TEMPLATE " + quoted(chat->go_template) + "\n";
    for (const std::string& stop : chat->stops)
        text += "PARAMETER stop \"" + stop + "\"\n";
    return text;
}

}  // namespace garam
