// A rendered conversation as tokens, and which of them a model is trained to say.
//
// Targets are what the model must write behind the generation prompt in each turn of the assistant
// (text/chat_turns.h): thoughts, content and tool calls with the template's words around them, up to and
// including the token that ends the turn; nothing behind that, such as the newline that the template puts
// there. Where no special token ends a turn, its own text counts. Found from byte positions, not by
// looking for ids. A token with bytes before a turn and in it is a target when its last byte lies in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "garam/text/chat_template.h"
#include "garam/text/tokenizer.h"

namespace garam {

// Of which assistant's turns the targets are taken; messages with train = false never give any.
enum class TrainOnTurns : std::uint8_t { all, last };

struct ChatTargets {
    TrainOnTurns train_on_turns = TrainOnTurns::all;
};

struct ChatTokens {
    std::string text;  // as the template wrote it
    std::vector<std::int32_t> ids;
    std::vector<bool> is_target;  // [ids]; the token itself is to be said, labels are not shifted
    std::int64_t num_targets = 0;
    // A turn's first token began before it: asked by the prompt alone, the model sees other tokens there.
    bool merged_start = false;
    std::string why_no_targets;  // a reason ("no message of the assistant") where there are none
};

// As apply_chat_template tokenizes it: special tokens in the text count as such, and no BOS is added to
// the one that the template may have written. Throws Error as ChatTemplate::render, and when it cannot
// be told what of a turn is the assistant's to say, naming the message and why.
ChatTokens tokenize_chat(const ChatTemplate& chat, const std::vector<ChatMessage>& messages,
                         const ChatTemplate::Options& options, const Tokenizer& tokenizer,
                         const ChatTargets& targets = {});

}  // namespace garam
