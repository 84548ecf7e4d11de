// Text to token ids and back, exactly as the reference tokenizers do it.
//
// A tokenizer is immutable after loading and may be used from several threads. Invalid UTF-8 in the
// input is an Error that names the byte offset.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace garam {

// Bytes [begin, end) of the text that was encoded.
struct ByteSpan {
    std::size_t begin = 0;
    std::size_t end = 0;
};

struct Encoding {
    std::vector<std::int32_t> ids;
    // One a token: the bytes of the input that it covers. Tokens that the tokenizer added itself (BOS)
    // have an empty span at their place. A character split over several tokens gives each the bytes it
    // really holds, or all of the character where bytes cannot be told apart (after normalisation).
    std::vector<ByteSpan> spans;
};

class Tokenizer {
  public:
    virtual ~Tokenizer() = default;

    struct EncodeOptions {
        // Adds what the tokenizer's post-processor adds (BOS for Llama), never twice.
        bool add_special_tokens = false;
        // Recognises the text of special tokens ("<|im_end|>"). Off for text that must not be able to
        // forge them.
        bool parse_special_tokens = true;
    };
    virtual Encoding encode(std::string_view text, const EncodeOptions& options) const = 0;
    // Encoding::ids alone, which may take less time.
    virtual std::vector<std::int32_t> encode_ids(std::string_view text,
                                                 const EncodeOptions& options) const {
        return encode(text, options).ids;
    }
    // The same for many texts, on all threads of parallel_for. The Error of the first text that fails is
    // thrown.
    std::vector<Encoding> encode_batch(std::span<const std::string_view> texts,
                                       const EncodeOptions& options) const;
    std::vector<std::vector<std::int32_t>> encode_ids_batch(std::span<const std::string_view> texts,
                                                            const EncodeOptions& options) const;

    // Text of the ids. Bytes that do not form UTF-8 become U+FFFD as in the reference. With
    // skip_special_tokens, special tokens are left out. Ids that name no token are passed over. The
    // setting clean_up_tokenization_spaces is not applied: it loses text, and the reference ignores it
    // for these tokenizers too.
    virtual std::string decode(std::span<const std::int32_t> ids,
                               bool skip_special_tokens) const = 0;

    virtual std::int64_t vocab_size() const = 0;  // largest id + 1, added tokens included
    virtual std::optional<std::int32_t> id_of(std::string_view token) const = 0;
    virtual std::string token_of(std::int32_t id) const = 0;  // as in the vocabulary file
    virtual bool is_special(std::int32_t id) const = 0;

    virtual std::optional<std::int32_t> bos_id() const = 0;
    virtual std::optional<std::int32_t> eos_id() const = 0;
    virtual std::optional<std::int32_t> pad_id() const = 0;
    // Whether encode(add_special_tokens) begins with BOS.
    virtual bool adds_bos() const = 0;

    // Source of the chat template (Jinja), empty when the files have none.
    virtual const std::string& chat_template() const = 0;
    // Another one for conversations with tools ("tool_use"), empty when the files have none.
    virtual const std::string& tool_chat_template() const;

    // Writes tokenizer.json, tokenizer_config.json (and chat template) into an existing folder, so that
    // Transformers loads the same tokenizer from there. Files of a Hugging Face folder are copied.
    virtual void save(const std::filesystem::path& folder) const = 0;
};

// From a model: a Hugging Face folder (tokenizer.json, or vocab.json + merges.txt, with
// tokenizer_config.json and special_tokens_map.json where present), a GGUF file, or a hub name in the
// local cache. Throws Error naming what is missing or unsupported.
// `special_tokens` that it does not have are added to it (text/new_tokens.h).
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& model,
                                          const std::vector<std::string>& special_tokens = {});

// The tokenizer in an adapter's folder, where it has special tokens that the `own` one of its base has not;
// null: none that has. `adapter` may be a hub name in the local cache, or a file.
std::unique_ptr<Tokenizer> tokenizer_of_adapter(const std::filesystem::path& adapter,
                                                const Tokenizer& own);

// Decodes ids one by one for streaming: returns the text that became certain with this id (never half a
// character), flush() the rest.
class StreamDecoder {
  public:
    explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true);
    std::string push(std::int32_t id);
    std::string flush();

  private:
    std::string take(std::size_t end);

    const Tokenizer& tokenizer_;
    bool skip_special_tokens_;
    std::vector<std::int32_t> pending_;
    std::size_t context_ = 0;  // pending_[0, context_) is emitted already
};

}  // namespace garam
