// garam tokenize MODEL: texts to ids and back.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>

#include "garam/app/command.h"
#include "garam/app/line_blocks.h"
#include "garam/app/standard_output.h"
#include "garam/core/error.h"
#include "garam/core/json.h"
#include "garam/core/parallel.h"
#include "garam/text/chat_spans.h"
#include "garam/text/chat_template.h"
#include "garam/text/tokenizer.h"

namespace garam {
namespace {

// Terminal colours: pieces in turns, and what a model is trained to say.
constexpr const char* kColours[] = {"\x1b[36m", "\x1b[33m"};
constexpr const char* kTarget = "\x1b[1;32m";
constexpr const char* kPlain = "\x1b[0m";

std::int64_t characters_of(std::string_view text) {
    return std::count_if(text.begin(), text.end(), [](char byte) {
        return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
    });
}

// A list of ids: numbers with spaces or commas between, or as JSON writes it.
std::vector<std::int32_t> ids_in(std::string_view line) {
    constexpr std::string_view kBetween = " \t,[]";
    std::vector<std::int32_t> ids;
    for (std::size_t at = line.find_first_not_of(kBetween); at != std::string_view::npos;
         at = line.find_first_not_of(kBetween, at)) {
        const std::size_t end = std::min(line.find_first_of(kBetween, at), line.size());
        const std::string_view word = line.substr(at, end - at);
        std::int32_t id = 0;
        const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
        if (error != std::errc() || stop != word.data() + word.size())
            throw Error("\"" + std::string(word.substr(0, 40)) + "\" is no token id");
        ids.push_back(id);
        at = end;
    }
    return ids;
}

class TokenizeCommand : public Command {
  public:
    std::string name() const override { return "tokenize"; }
    std::string summary() const override {
        return "Show texts as a model's tokens, and tokens as text";
    }
    std::string details() const override {
        return R"(Each TEXT, or each line of standard input, becomes a line of ids, with the special tokens that the
tokenizer puts around a text (BOS). Lines are read in blocks and encoded by all cores: gigabytes need
little memory. With --chat a text is a conversation: a JSON list of messages, which goes through the
model's chat template; what training would learn to say is coloured on a terminal, or "targets" in
--json. --decode takes ids (with --no-special it leaves special tokens out).

Examples:
  garam tokenize MODEL "Hello world"
  garam tokenize MODEL --pieces --no-special "naïve 한국어"
  garam tokenize MODEL --decode 15496 995
  garam tokenize MODEL --count < corpus.txt
  garam tokenize MODEL --json < corpus.txt > ids.jsonl
  garam tokenize MODEL --chat --pieces '[{"role": "user", "content": "Hi"}]')";
    }

    void declare(Arguments& arguments) override {
        arguments.positional("MODEL", model_,
                             "A model or tokenizer folder, a GGUF file, or a hub name");
        arguments.positionals("TEXT", texts_, "What to encode; lines of standard input without it",
                              false);
        arguments.option("--decode", &decode_, "Texts are ids; write what they say");
        arguments.option("--pieces", &pieces_, "One line a token: id, bytes of the text, piece");
        arguments.option("--json", &json_, "One JSON object a text: ids, pieces, offsets in bytes");
        arguments.option("--count", &count_, "Only totals, and characters a token");
        arguments.option("--special", &special_, "Special tokens around each text (the default)");
        arguments.option("--no-special", &no_special_, "None around a text; none in decoded ones");
        arguments.option("--chat", &chat_, "Texts are conversations: JSON lists of messages");
    }

    int run() override {
        if (special_ && no_special_)
            throw Error("--special and --no-special are both given: keep one");
        if (decode_ && (pieces_ || chat_ || count_))
            throw Error("--decode goes with --json and --no-special only");
        if (pieces_ + json_ + count_ > 1)
            throw Error("--pieces, --json and --count are three ways to show the same: keep one");
        tokenizer_ = load_tokenizer(model_);
        if (chat_) {
            if (tokenizer_->chat_template().empty())
                throw Error(model_ + ": has no chat template for --chat");
            template_ = std::make_unique<ChatTemplate>(
                ChatTemplateSource{tokenizer_->chat_template(), tokenizer_->tool_chat_template()},
                model_ + ": chat template");
        }
        coloured_ = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
        if (!texts_.empty()) {
            const std::vector<std::string_view> lines(texts_.begin(), texts_.end());
            show(lines, [](std::size_t i) { return "text " + std::to_string(i + 1); });
        } else {
            if (isatty(STDIN_FILENO) != 0)
                throw Error("no text: give it as an argument or on standard input");
            LineBlocks blocks(stdin, "standard input");
            for (;;) {
                const std::vector<std::string_view>& lines = blocks.next();
                if (lines.empty()) break;
                show(lines, [&](std::size_t i) {
                    return "standard input, line " +
                           std::to_string(blocks.first_line() + static_cast<std::int64_t>(i));
                });
            }
        }
        if (count_) print_totals();
        flush_output();
        return 0;
    }

  private:
    struct Shown {
        std::string text;
        std::int64_t tokens = 0;
        std::int64_t characters = 0;
        std::int64_t bytes = 0;
        std::int64_t targets = 0;
        std::exception_ptr error;
    };

    // Works on all of them at once; what comes before one that fails is still written.
    template <class Name>
    void show(const std::vector<std::string_view>& lines, Name name_of) {
        std::vector<Shown> shown(lines.size());
        parallel_for(static_cast<std::int64_t>(lines.size()), 8,
                     [&](std::int64_t begin, std::int64_t end) {
                         for (auto i = static_cast<std::size_t>(begin);
                              i < static_cast<std::size_t>(end); ++i) {
                             try {
                                 shown[i] = decode_ ? decoded(lines[i]) : encoded(lines[i]);
                             } catch (const Error&) {
                                 shown[i].error = std::current_exception();
                             }
                         }
                     });
        for (std::size_t i = 0; i < shown.size(); ++i) {
            if (shown[i].error) {
                flush_output();
                try {
                    std::rethrow_exception(shown[i].error);
                } catch (const Error& error) {
                    throw Error(name_of(i) + ": " + error.what());
                }
            }
            total_.tokens += shown[i].tokens;
            total_.characters += shown[i].characters;
            total_.bytes += shown[i].bytes;
            total_.targets += shown[i].targets;
            ++num_texts_;
            if (!count_) print(shown[i].text);
        }
    }

    Shown decoded(std::string_view line) const {
        Shown shown;
        shown.text = tokenizer_->decode(ids_in(line), no_special_);
        if (json_) shown.text = Json(Json::Object{{"text", shown.text}}).dump();
        shown.text += '\n';
        return shown;
    }

    Shown encoded(std::string_view line) const {
        Shown shown;
        std::string rendered;
        std::string_view text = line;
        ChatTokens chat;
        if (chat_) {
            rendered = conversation(line, chat);
            text = rendered;
        }
        shown.bytes = static_cast<std::int64_t>(text.size());
        shown.characters = characters_of(text);
        shown.targets = chat.num_targets;
        const Tokenizer::EncodeOptions options{.add_special_tokens = !chat_ && !no_special_};
        if (!pieces_ && !json_) {
            const std::vector<std::int32_t> ids = tokenizer_->encode_ids(text, options);
            shown.tokens = static_cast<std::int64_t>(ids.size());
            if (!count_) shown.text = line_of(ids);
            return shown;
        }
        const Encoding encoding = tokenizer_->encode(text, options);
        if (chat_ && encoding.ids != chat.ids) chat.is_target.clear();
        shown.tokens = static_cast<std::int64_t>(encoding.ids.size());
        shown.text = json_ ? object_of(encoding, chat) : listing_of(encoding, chat, text);
        return shown;
    }

    // Its text, and `tokens` with the targets.
    std::string conversation(std::string_view line, ChatTokens& tokens) const {
        const Json parsed = Json::parse(line, "conversation");
        const Json* listed = parsed.is_object() ? parsed.find("messages") : &parsed;
        if (listed == nullptr)
            throw Error(
                "a conversation is a JSON list of messages, or an object with \"messages\"");
        std::vector<ChatMessage> messages;
        for (const Json& message : listed->array("conversation"))
            messages.push_back(ChatMessage::from_json(message, "conversation"));
        const auto spelled = [&](std::optional<std::int32_t> id) {
            return id ? tokenizer_->token_of(*id) : std::string();
        };
        ChatTemplate::Options options;
        options.bos_token = spelled(tokenizer_->bos_id());
        options.eos_token = spelled(tokenizer_->eos_id());
        if (const Json* tools = parsed.find("tools")) options.tools = *tools;
        tokens = tokenize_chat(*template_, messages, options, *tokenizer_);
        return tokens.text;
    }

    static std::string line_of(const std::vector<std::int32_t>& ids) {
        std::string line;
        line.reserve(ids.size() * 6 + 1);
        char digits[16];
        for (const std::int32_t id : ids) {
            if (!line.empty()) line += ' ';
            line.append(digits, std::to_chars(digits, digits + sizeof(digits), id).ptr);
        }
        return line + '\n';
    }

    std::string object_of(const Encoding& encoding, const ChatTokens& chat) const {
        Json::Array ids;
        Json::Array pieces;
        Json::Array offsets;
        for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
            ids.emplace_back(std::int64_t{encoding.ids[i]});
            pieces.emplace_back(tokenizer_->token_of(encoding.ids[i]));
            offsets.emplace_back(Json::Array{static_cast<std::int64_t>(encoding.spans[i].begin),
                                             static_cast<std::int64_t>(encoding.spans[i].end)});
        }
        Json object = Json::Object{{"ids", std::move(ids)},
                                   {"pieces", std::move(pieces)},
                                   {"offsets", std::move(offsets)}};
        if (chat_) {
            Json::Array targets;
            for (const bool is_target : chat.is_target)
                targets.emplace_back(is_target);
            object.set("targets", std::move(targets));
        }
        return object.dump() + '\n';
    }

    std::string listing_of(const Encoding& encoding, const ChatTokens& chat,
                           std::string_view text) const {
        std::string listing;
        for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
            const ByteSpan span = encoding.spans[i];
            const bool is_target = i < chat.is_target.size() && chat.is_target[i];
            std::string id = std::to_string(encoding.ids[i]);
            std::string bytes = std::to_string(span.begin) + "-" + std::to_string(span.end);
            id.insert(0, id.size() < 7 ? 7 - id.size() : 0, ' ');
            bytes.insert(0, bytes.size() < 11 ? 11 - bytes.size() : 0, ' ');
            // Quoted, since pieces hold line ends and other controls.
            const std::string piece = Json(tokenizer_->token_of(encoding.ids[i])).dump();
            const std::string covered = Json(text.substr(span.begin, span.end - span.begin)).dump();
            listing += id + bytes + "  ";
            if (coloured_) listing += is_target ? kTarget : kColours[i % 2];
            listing += piece;
            if (coloured_) listing += kPlain;
            if (covered != piece) listing += "  " + covered;
            if (is_target && !coloured_) listing += "  target";
            listing += '\n';
        }
        return listing + '\n';
    }

    void print_totals() const {
        const double tokens = static_cast<double>(std::max<std::int64_t>(total_.tokens, 1));
        char ratio[32];
        std::snprintf(ratio, sizeof(ratio), "%.3f",
                      static_cast<double>(total_.characters) / tokens);
        const auto line = [](const char* what, const std::string& number) {
            return std::string(what) + std::string(20 - std::string_view(what).size(), ' ') +
                   number + "\n";
        };
        print(line("texts", std::to_string(num_texts_)) +
              line("tokens", std::to_string(total_.tokens)) +
              (chat_ ? line("targets", std::to_string(total_.targets)) : "") +
              line("characters", std::to_string(total_.characters)) +
              line("bytes", std::to_string(total_.bytes)) + line("characters/token", ratio));
    }

    std::string model_;
    std::vector<std::string> texts_;
    bool decode_ = false;
    bool pieces_ = false;
    bool json_ = false;
    bool count_ = false;
    bool special_ = false;
    bool no_special_ = false;
    bool chat_ = false;
    bool coloured_ = false;
    std::unique_ptr<Tokenizer> tokenizer_;
    std::unique_ptr<ChatTemplate> template_;
    Shown total_;
    std::int64_t num_texts_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_tokenize_command() {
    return std::make_unique<TokenizeCommand>();
}

}  // namespace garam
