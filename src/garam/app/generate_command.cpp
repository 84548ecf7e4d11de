// garam generate MODEL: continues a text, or answers one message.
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <iterator>

#include "garam/app/command.h"
#include "garam/app/session_arguments.h"
#include "garam/app/standard_output.h"
#include "garam/core/error.h"
#include "garam/core/json.h"
#include "garam/serve/chat.h"

namespace garam {
namespace {

constexpr std::size_t kLargestPrompt = std::size_t{64} << 20;

// All of a stream, less one line end at its end: `echo` and editors put it there.
std::string read_prompt(std::istream& in, const std::string& name) {
    std::string text(kLargestPrompt + 1, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (in.bad()) throw Error(name + ": cannot be read");
    text.resize(static_cast<std::size_t>(in.gcount()));
    if (text.size() > kLargestPrompt) throw Error(name + ": a prompt has at most 64 MiB");
    if (text.ends_with('\n')) text.pop_back();
    if (text.ends_with('\r')) text.pop_back();
    return text;
}

class GenerateCommand : public Command {
  public:
    std::string name() const override { return "generate"; }
    std::string summary() const override { return "Continue a text, or answer one message"; }
    std::string details() const override {
        return R"(The prompt is --prompt, --prompt-file, or standard input (less its last line end). Text
streams to standard output. Without --temperature the likeliest token is always taken.

Examples:
  garam generate MODEL --prompt "Once upon a time"
  garam generate MODEL --chat --prompt "Spam or ham? You have won!" --adapter run/adapter
  garam generate MODEL --temperature 0.8 --top-p 0.95 --seed 7 < prompt.txt
  garam generate MODEL --json --prompt "…" > answer.json)";
    }

    void declare(Arguments& arguments) override {
        arguments_ = &arguments;
        session_.declare(arguments);
        arguments.option("--prompt", &prompt_, "The text to continue");
        arguments.option("--prompt-file", &prompt_file_, "A file that holds it");
        arguments.option("--chat", &chat_,
                         "The prompt is a user's message: apply the model's chat template");
        arguments.option("--system", &system_, "System message, with --chat");
        answer_.declare(arguments);
        arguments.option("--raw", &raw_, "Write special tokens of the answer too");
        arguments.option("--json", &json_, "Write one JSON object instead of streaming text");
    }

    int run() override {
        if (!system_.empty() && !chat_) throw Error("--system needs --chat");
        const std::string text = prompt();
        Session session(session_.options());
        print_warnings(session);
        GenerationOptions options = answer_.options(session);
        options.skip_special_tokens = !raw_;
        options.continues_prompt = !chat_;

        const std::vector<std::int32_t> ids = encode(session, text);
        Sequence sequence(session, static_cast<std::int64_t>(ids.size()) +
                                       std::min(options.max_new_tokens, session.context()));
        const auto stream = [](std::string_view piece) {
            print(piece);
            flush_output();
        };
        const Generation result =
            json_ ? generate(sequence, ids, options) : generate(sequence, ids, options, stream);
        print(json_ ? to_json(result).dump(2) + "\n" : "\n");
        return 0;
    }

  private:
    std::string prompt() const {
        const bool has_text = !arguments_->options().find("--prompt")->source.empty();
        if (has_text && !prompt_file_.empty())
            throw Error("--prompt and --prompt-file are both given: keep one");
        if (has_text) return prompt_;
        if (!prompt_file_.empty()) {
            std::ifstream file(prompt_file_, std::ios::binary);
            if (!file) throw Error(prompt_file_ + ": cannot be opened");
            return read_prompt(file, prompt_file_);
        }
        if (isatty(STDIN_FILENO) != 0)
            throw Error("no prompt: give --prompt TEXT, --prompt-file FILE or standard input");
        return read_prompt(std::cin, "standard input");
    }

    std::vector<std::int32_t> encode(const Session& session, const std::string& text) const {
        if (!chat_) {
            std::vector<std::int32_t> ids =
                session.tokenizer().encode_ids(text, {.add_special_tokens = true});
            if (ids.empty()) throw Error("the prompt is empty");
            return ids;
        }
        std::vector<ChatMessage> messages;
        if (!system_.empty()) messages.push_back({"system", system_});
        messages.push_back({"user", text});
        return chat_prompt(session.tokenizer(), messages, session_.model);
    }

    static Json to_json(const Generation& result) {
        Json::Array ids;
        for (const std::int32_t id : result.ids)
            ids.emplace_back(static_cast<std::int64_t>(id));
        Json json;
        json.set("text", result.text);
        json.set("ids", Json(std::move(ids)));
        json.set("finish_reason", name_of(result.finish_reason));
        json.set("prompt_tokens", result.prompt_tokens);
        json.set("completion_tokens", static_cast<std::int64_t>(result.ids.size()));
        Json timings;
        timings.set("prefill_seconds", result.prefill_seconds);
        timings.set("decode_seconds", result.decode_seconds);
        timings.set("prefill_tokens_per_second", result.prefill_tokens_per_second());
        timings.set("decode_tokens_per_second", result.decode_tokens_per_second());
        json.set("timings", std::move(timings));
        return json;
    }

    Arguments* arguments_ = nullptr;
    SessionArguments session_;
    AnswerArguments answer_;
    std::string prompt_;
    std::string prompt_file_;
    std::string system_;
    bool chat_ = false;
    bool raw_ = false;
    bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_generate_command() {
    return std::make_unique<GenerateCommand>();
}

}  // namespace garam
