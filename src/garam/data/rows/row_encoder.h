// From a row's JSON to token ids and labels.
//
// How ids are counted follows TRL's SFTTrainer:
//   text         all tokens are targets; the EOS token follows unless the text ends with it
//   prompt,      as texts: the EOS token follows the completion unless it is there; the completion begins
//   completion   where the ids of prompt + completion part from those of the prompt alone. As messages:
//                one chat, in which the assistant's turns of the completion are targets
//   messages     what the chat template writes and nothing more; targets are the assistant's turns up
//                to and including the token that ends a turn
//   instruction  a chat of one question and its answer where there is a chat template, else Alpaca's text
//                as prompt and completion
//   token ids    as they are; positions that attention_mask leaves out at either end are padding
// The tokenizer's own BOS comes before texts, never before a chat (the template writes it), and
// never twice. Truncation to max_length comes last, so that it takes the EOS of a long row away.
//
// Targets are found by position, never by token id: a pad token that equals EOS changes nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "garam/core/error.h"
#include "garam/core/json.h"
#include "garam/data/data_config.h"
#include "garam/data/rows/row_schema.h"
#include "garam/data/samples/sample.h"
#include "garam/text/chat_template.h"
#include "garam/text/tokenizer.h"

namespace garam {

enum class Truncation : std::uint8_t { keep_start, keep_end };

struct EncodingSettings {
    std::int64_t max_length = 1024;  // tokens, at least 2
    Truncation truncation = Truncation::keep_start;
    // messages, and labelled rows as chats: only the assistant's turns are targets.
    bool assistant_only_loss = true;
    // prompt + completion, completion_mask: only the completion is a target. Unset: true.
    std::optional<bool> completion_only_loss;
    // Jinja source used instead of the tokenizer's chat template; empty: the tokenizer's.
    std::string chat_template;
    std::string tool_chat_template;  // beside chat_template, of chats with tools; empty: the same
    // Rows of the model's embedding; ids must lie below. 0: not checked.
    std::int64_t vocab_size = 0;
};

// The tokenizer gives an id that the model has no embedding for: no row of the file can be trusted.
class VocabularyError : public Error {
  public:
    using Error::Error;
};

struct EncodedRow {
    Sample sample;  // without row number
    bool truncated = false;
    std::int64_t full_tokens = 0;  // before truncation
    std::optional<DropReason> dropped;
    bool merged_start = false;  // see ReadReport
    std::string beginning;      // of the text of a row that is dropped, or merged_start, quoted
};

class RowEncoder {
  public:
    // Keeps references to config and tokenizer. May be used from several threads. Throws Error when
    // a setting is out of range.
    RowEncoder(const DataConfig& config, const EncodingSettings& settings,
               const Tokenizer& tokenizer);

    // Throws Error "<where>: ..." when a value is missing or of the wrong kind, or the chat template
    // refuses it; VocabularyError as above.
    EncodedRow encode(const Json& row, const RowColumns& columns, const std::string& where) const;

    // Turns, and what else a chat template sees.
    struct Chat {
        std::vector<ChatMessage> messages;
        Json tools;
        Json::Object variables;
    };
    // A labelled row's text and label; `before`: what comes before the question. Throws Error as encode()
    // does, and where the columns are no labelled row's.
    struct Labelled {
        std::string text;
        std::string label;
        Chat before;
    };
    Labelled labelled(const Json& row, const RowColumns& columns, const std::string& where) const;
    // Ids of the question about the row's text up to where the answer begins.
    std::vector<std::int32_t> question(const Labelled& row, const std::string& where) const;
    // What is answered where that is the label (data.answer).
    std::string answer(const std::string& label) const;
    // Question and answer as training sees them, up to and including the last target; not
    // truncated.
    std::vector<std::int32_t> answered(const Labelled& row, const std::string& label,
                                       const std::string& where) const;

    const EncodingSettings& settings() const { return settings_; }
    const Tokenizer& tokenizer() const { return tokenizer_; }

  private:
    EncodedRow encode_text(const std::string& text) const;
    EncodedRow encode_completion(const std::string& prompt, const std::string& completion) const;
    EncodedRow encode_prompt_and_completion(const Json& row, const RowColumns& columns,
                                            const std::string& where) const;
    EncodedRow encode_instruction(const Json& row, const RowColumns& columns,
                                  const std::string& where) const;
    EncodedRow encode_token_ids(const Json& row, const RowColumns& columns,
                                const std::string& where) const;
    // `text`: what the template wrote; `why_silent`: why no assistant's turn is in it, else empty;
    // `merged_start`: as in ReadReport.
    Sample chat_sample(const Chat& chat, std::string& text, std::string& why_silent,
                       bool& merged_start, const std::string& where) const;
    EncodedRow encode_chat(const Chat& chat, const std::string& where) const;
    // The last `completion` turns are the completion.
    EncodedRow encode_chat_completion(Chat chat, std::size_t completion,
                                      const std::string& where) const;
    EncodedRow encode_labelled(const Labelled& row, const std::string& where) const;
    void truncate(EncodedRow& row) const;
    EncodedRow finish(EncodedRow row, std::string_view text, const std::string& where) const;

    // The system turn, tools and variables of a row, without its turns. `own`: the system text where the
    // row has none.
    Chat context_of(const Json& row, const RowColumns& columns, const std::string& own,
                    const std::string& where) const;
    static Chat asked(Chat chat, const std::string& text, const std::string* answer = nullptr);
    std::string prompt(const std::string& text) const;
    // Without a chat: the answer follows behind white space.
    std::string plain_prompt(const std::string& text) const;
    ChatTemplate::Options render_options(const Chat& chat, bool add_generation_prompt) const;
    const ChatTemplate& chat_template(const std::string& where) const;
    bool has_chat_template() const { return template_.has_value() || !template_error_.empty(); }
    std::string label_name(const std::string& label, const RowColumns& columns,
                           const std::string& where) const;
    void check_ids(const std::vector<std::int32_t>& ids, const std::string& where) const;
    void drop_second_bos(Sample& sample) const;
    void append_eos(std::vector<std::int32_t>& ids) const;

    const DataConfig& config_;
    EncodingSettings settings_;
    const Tokenizer& tokenizer_;
    std::optional<ChatTemplate> template_;
    Json::Object variables_;      // data.chat_template_kwargs
    std::string template_error_;  // why it could not be parsed: told when a row needs it
    std::string bos_;
    std::string eos_;
};

// The first characters of a text, quoted, for messages.
std::string quoted_beginning(std::string_view text);

// Length of the common beginning of two id sequences.
std::size_t common_prefix(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b);

}  // namespace garam
