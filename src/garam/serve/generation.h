// Answers: token after token until one ends it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "garam/serve/sampling.h"
#include "garam/serve/sequence.h"

namespace garam {

struct GenerationOptions {
    std::int64_t max_new_tokens = 256;
    SamplingOptions sampling;
    std::vector<std::string> stop;      // texts that end the answer and do not belong to it
    std::vector<std::int32_t> eos_ids;  // ids that end it; usually the session's
    bool skip_special_tokens = true;    // leave them out of the text
    // The text goes on where the prompt's ends (it may begin with a space that tokenizers drop at the
    // start of a text); false: it is a text of its own, a chat's answer.
    bool continues_prompt = true;

    // Throws Error naming the option that is out of range.
    void check() const;
};

enum class FinishReason : std::uint8_t {
    stop,     // an eos id or a stop string
    length,   // max_new_tokens
    context,  // the model's context is full
};
const char* name_of(FinishReason reason);

struct Generation {
    std::string text;
    std::vector<std::int32_t> ids;  // all chosen ones, an ending eos id included
    FinishReason finish_reason = FinishReason::length;
    std::int64_t prompt_tokens = 0;
    std::int64_t reused_tokens = 0;  // of the prompt, computed before
    double prefill_seconds = 0;
    double decode_seconds = 0;

    // 0 where nothing was computed.
    double prefill_tokens_per_second() const;
    double decode_tokens_per_second() const;
};

// Continues `prompt` (at least one id). `on_text` hears each piece of text as soon as it is
// certain: whole characters, never a part of a stop string; together the pieces are the result's
// text. The sequence ends with the prompt and those of the answer's ids that were fed. Throws Error
// when the prompt leaves no room in the context.
Generation generate(Sequence& sequence, std::span<const std::int32_t> prompt,
                    const GenerationOptions& options,
                    const std::function<void(std::string_view)>& on_text = {});

}  // namespace garam
