// What answering needs of a model, be it loaded to be asked (Session) or in the middle of training.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "garam/io/model_files.h"
#include "garam/models/decoder.h"
#include "garam/runtime/stream.h"
#include "garam/text/tokenizer.h"

namespace garam {

// Prompts are fed in chunks of so many tokens: enough to fill the matrix product, and a bound on
// the step memory whatever the prompt's length.
constexpr std::int64_t kPrefillChunk = 256;

class ServedModel {
  public:
    virtual ~ServedModel() = default;
    virtual Decoder& decoder() = 0;
    virtual const Tokenizer& tokenizer() const = 0;
    // The stream of the moment: reserve() may make a new one.
    virtual Stream& stream() = 0;
    // Tokens that prompt and answer may have together.
    virtual std::int64_t context() const = 0;
    // A cache for a sequence of up to `capacity` tokens (Decoder::cache_capacity).
    virtual KvCache make_cache(std::int64_t capacity) = 0;
    // Makes the step memory large enough for what `calls` does. decode() of up to kPrefillChunk tokens is
    // always covered. No tensor of the arena may be in use.
    virtual void reserve(const std::function<void(Decoder& decoder, Stream& stream)>& calls) = 0;
};

// Ids that end an answer: of config.json, generation_config.json and the tokenizer; ascending.
std::vector<std::int32_t> answer_end_ids(const ModelFiles& files, const DecoderConfig& config,
                                         const Tokenizer& tokenizer);

}  // namespace garam
