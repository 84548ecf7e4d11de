// A rendered conversation as tokens, and which of them a model is trained to say.
//
// Targets are the tokens of the assistant's contents and what ends each of them: everything behind a
// content up to and including the next special token (<|im_end|>); nothing behind that, such as the
// newline that the template puts there. Where no special token comes before the next message's content,
// only the content counts. Found from byte positions, not by looking for ids. A token with bytes before
// the content and in it is a target when its last byte lies in the content.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "garam/text/chat_template.h"
#include "garam/text/tokenizer.h"

namespace garam {

struct ChatTokens {
    std::vector<std::int32_t> ids;
    std::vector<bool> is_target;  // [ids]; the token itself is to be said, labels are not shifted
    std::int64_t num_targets = 0;
};

// As apply_chat_template tokenizes it: special tokens in the text count as such, and no BOS is added to
// the one that the template may have written.
ChatTokens tokenize_chat(const RenderedChat& chat, const std::vector<ChatMessage>& messages,
                         const Tokenizer& tokenizer);

// Why a conversation has nothing to train on ("no message of the assistant"); empty when it has.
std::string reason_for_no_targets(const RenderedChat& chat,
                                  const std::vector<ChatMessage>& messages,
                                  const ChatTokens& tokens);

}  // namespace garam
