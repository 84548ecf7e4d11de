// What of a rendered conversation is the assistant's to say, turn by turn.
//
// A template with {% generation %} blocks says it itself. For any other it follows from where each byte
// came from: a turn is what the template wrote while it was at that message of the assistant, data and
// its own words alike; it begins behind what the generation prompt would have written there. That is
// found by asking the template for the prompt of the messages before. Where it writes none that the turn
// begins with, the header is what stands before the content of a plain answer in that place.
#pragma once

#include <cstddef>
#include <vector>

#include "garam/text/chat_template.h"

namespace garam {

struct ChatTurn {
    std::size_t message = 0;   // its place in the conversation
    std::size_t begin = 0;     // the first byte to be said
    std::size_t data_end = 0;  // behind the last byte that is the message's own
    std::size_t end = 0;       // behind the last byte that the template wrote for it
    bool has_calls = false;    // more than a content: the template's words behind the data count
    bool exact = false;        // {% generation %}: [begin, end) and nothing else
};

// In order. Turns that the template leaves out are not there; with generation blocks a turn may have
// several. Throws Error naming the message where a turn cannot be decided.
std::vector<ChatTurn> find_turns(const ChatTemplate& chat_template, const RenderedChat& chat,
                                 const std::vector<ChatMessage>& messages,
                                 const ChatTemplate::Options& options);

}  // namespace garam
