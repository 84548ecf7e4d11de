// Chat templates: the part of Jinja2 that published templates of the supported families use, rendered
// as Transformers' apply_chat_template renders it (trim_blocks, lstrip_blocks), with provenance: for
// each character it is known from which message it came.
//
// Bounded by construction: output, loop count and depth have limits; no access to anything outside the
// values given. What is not supported is refused when the template is parsed, naming it and its line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "garam/core/json.h"
#include "garam/text/chat_template_source.h"
#include "garam/text/jinja/marked_text.h"
#include "garam/text/tokenizer.h"

namespace garam {

struct ChatMessage {
    std::string role;  // "system", "user", "assistant", "tool", …
    std::string content;
    // Further members as the template sees them: tool_calls, name, reasoning_content, … Holds "content"
    // itself where that is no text: null, or a list of parts.
    Json::Object more = {};
    bool train = true;  // false: an assistant's turn that is context only

    // From a message of a row: role, content, train (or OpenAI's weight: 0) and whatever else it
    // has. Members that are null are left out, as in rows from tables, where a message has the
    // members of all; a content that is null or absent is null in `more`. Throws Error "<where>:
    // ..." for what is no message.
    static ChatMessage from_json(const Json& json, const std::string& where);
};

struct RenderedChat {
    std::string text;
    // One a message, in order of the messages: the bytes of `text` that are its content; empty at its
    // place when the template leaves the message out.
    std::vector<ByteSpan> contents;
    // One a message: false when the template leaves it out (an empty content is not left out).
    std::vector<bool> present;
    // Where each byte came from; what bears no mark is the template's own outside of any message.
    std::vector<jinja::Mark> marks;
};

class ChatTemplate {
  public:
    // Throws Error "<source name>: line L: ..." for what cannot be parsed or is not supported.
    ChatTemplate(std::string_view source, const std::string& source_name);
    // With another template for conversations that come with tools.
    ChatTemplate(const ChatTemplateSource& source, const std::string& source_name);
    ~ChatTemplate();
    ChatTemplate(ChatTemplate&&) noexcept;
    ChatTemplate& operator=(ChatTemplate&&) noexcept;

    struct Options {
        bool add_generation_prompt = false;
        std::string bos_token;
        std::string eos_token;
        Json tools = {};              // a list of function schemas; null: none
        Json::Object variables = {};  // further ones: enable_thinking, documents, …
        // What strftime_now tells, in seconds since 1970; none: the clock's time.
        std::optional<std::int64_t> now = std::nullopt;
    };
    // Throws Error when the template itself raises (raise_exception) or exceeds a limit.
    RenderedChat render(const std::vector<ChatMessage>& messages, const Options& options) const;

    // Whether it has {% generation %} blocks, which then say what is the assistant's to say.
    bool marks_generation(const Options& options) const;

  private:
    struct Program;
    const Program& program(const Options& options) const;
    std::unique_ptr<Program> program_;
    std::unique_ptr<Program> tool_program_;  // null: the same
};

}  // namespace garam
