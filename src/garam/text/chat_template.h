// Chat templates: the part of Jinja2 that published templates of the supported families use, rendered
// as Transformers' apply_chat_template renders it (trim_blocks, lstrip_blocks), with provenance: for
// each character it is known from which message it came.
//
// Bounded by construction: output, loop count and depth have limits; no access to anything outside the
// values given. What is not supported is refused when the template is parsed, naming it and its line.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "garam/text/tokenizer.h"

namespace garam {

struct ChatMessage {
    std::string role;  // "system", "user", "assistant", …
    std::string content;
};

struct RenderedChat {
    std::string text;
    // One a message, in order of the messages: the bytes of `text` that are its content; empty at its
    // place when the template leaves the message out.
    std::vector<ByteSpan> contents;
    // One a message: false when the template leaves it out (an empty content is not left out).
    std::vector<bool> present;
};

class ChatTemplate {
  public:
    // Throws Error "<source name>: line L: ..." for what cannot be parsed or is not supported.
    ChatTemplate(std::string_view source, const std::string& source_name);
    ~ChatTemplate();
    ChatTemplate(ChatTemplate&&) noexcept;
    ChatTemplate& operator=(ChatTemplate&&) noexcept;

    struct Options {
        bool add_generation_prompt = false;
        std::string bos_token;
        std::string eos_token;
    };
    // Throws Error when the template itself raises (raise_exception) or exceeds a limit.
    RenderedChat render(const std::vector<ChatMessage>& messages, const Options& options) const;

  private:
    struct Program;
    std::unique_ptr<Program> program_;
};

}  // namespace garam
