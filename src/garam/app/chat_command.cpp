// garam chat MODEL: a conversation on the terminal.
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "garam/app/command.h"
#include "garam/app/command_line.h"
#include "garam/app/session_arguments.h"
#include "garam/app/standard_output.h"
#include "garam/core/error.h"
#include "garam/serve/chat.h"

namespace garam {
namespace {

class ChatCommand : public Command {
  public:
    std::string name() const override { return "chat"; }
    std::string summary() const override { return "Talk with a model"; }
    std::string details() const override {
        return R"(Each line of input is a message. /reset begins a new conversation, /quit or the end of input
ends it. Earlier turns stay computed, so an answer costs its own tokens only. When input is no
terminal, the answers alone are written, each with a line end.

Examples:
  garam chat MODEL --system "Answer in one sentence."
  garam chat MODEL --adapter run/adapter --temperature 0.7 --min-p 0.05)";
    }

    void declare(Arguments& arguments) override {
        session_.declare(arguments);
        arguments.option("--system", &system_, "System message");
        answer_.declare(arguments);
    }

    int run() override {
        Session session(session_.options());
        print_warnings(session);
        GenerationOptions options = answer_.options(session);
        Chat chat(session, system_);
        const bool interactive = isatty(STDIN_FILENO) != 0;
        if (interactive) std::fputs("/reset: new conversation, /quit: end\n", stderr);
        for (;;) {
            if (interactive) std::fputs("> ", stderr);
            std::string line;
            if (!std::getline(std::cin, line)) break;
            if (line.ends_with('\r')) line.pop_back();
            if (line.empty()) continue;
            if (line == "/quit") break;
            if (line == "/reset") {
                chat.reset();
                continue;
            }
            answer(chat, line, options, interactive);
            // The next turn draws other numbers, the whole conversation the same ones again.
            ++options.sampling.seed;
        }
        if (interactive) std::fputs("\n", stderr);
        return 0;
    }

  private:
    // At a terminal a turn that fails (a full context) does not end the conversation.
    static void answer(Chat& chat, const std::string& line, const GenerationOptions& options,
                       bool interactive) {
        try {
            const Generation result = chat.answer(line, options, [](std::string_view piece) {
                print(piece);
                flush_output();
            });
            print("\n");
            flush_output();
            if (result.finish_reason == FinishReason::context)
                std::fputs("garam: the model's context is full: /reset begins anew\n", stderr);
        } catch (const Error& error) {
            if (!interactive) throw;
            std::fputs(("garam: " + one_line(error.what()) + " (/reset begins anew)\n").c_str(),
                       stderr);
        }
    }

    SessionArguments session_;
    AnswerArguments answer_;
    std::string system_;
};

}  // namespace

std::unique_ptr<Command> make_chat_command() {
    return std::make_unique<ChatCommand>();
}

}  // namespace garam
