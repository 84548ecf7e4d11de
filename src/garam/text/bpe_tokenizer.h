// The tokenizer that a tokenizer.json describes: added tokens, normalizer, pre-tokenizer, model (byte-pair
// encoding, or one of text/piece_model.h), post-processor and decoder in a row.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "garam/text/added_tokens.h"
#include "garam/text/bpe_model.h"
#include "garam/text/normalizer.h"
#include "garam/text/piece_model.h"
#include "garam/text/pre_tokenizer.h"
#include "garam/text/token_decoder.h"
#include "garam/text/tokenizer.h"
#include "garam/text/tokenizer_files.h"
#include "garam/text/vocabulary.h"

namespace garam {

class BpeTokenizer final : public Tokenizer {
  public:
    // Longest text that is encoded at once.
    static constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

    // Throws Error naming file and key for what is missing, contradictory or not supported.
    explicit BpeTokenizer(TokenizerFiles files);

    Encoding encode(std::string_view text, const EncodeOptions& options) const override;
    std::vector<std::int32_t> encode_ids(std::string_view text,
                                         const EncodeOptions& options) const override;
    std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const override;
    std::int64_t vocab_size() const override { return vocabulary_.size(); }
    std::optional<std::int32_t> id_of(std::string_view token) const override {
        return vocabulary_.find(token);
    }
    std::string token_of(std::int32_t id) const override { return vocabulary_.token(id); }
    bool is_special(std::int32_t id) const override {
        return id >= 0 && static_cast<std::size_t>(id) < special_.size() &&
               special_[static_cast<std::size_t>(id)];
    }
    std::optional<std::int32_t> bos_id() const override { return bos_; }
    std::optional<std::int32_t> eos_id() const override { return eos_; }
    std::optional<std::int32_t> pad_id() const override { return pad_; }
    bool adds_bos() const override {
        return bos_.has_value() && !prefix_.empty() && prefix_.front() == *bos_;
    }
    const std::string& chat_template() const override { return chat_template_; }
    const std::string& tool_chat_template() const override { return tool_chat_template_; }
    void save(const std::filesystem::path& folder) const override;

  private:
    void read_vocabulary(const TokenizerFiles& files);
    void read_added_tokens(const TokenizerFiles& files);
    void read_post_processor(const Json* processor, const std::string& source);
    void put_around(const Json& id, bool behind, const std::string& name, const std::string& where);
    // What a text was found to be; spans are nullptr where nobody asks for them.
    struct Found {
        std::vector<std::int32_t>& ids;
        std::vector<ByteSpan>* spans;
        void add(std::int32_t id, ByteSpan span) const {
            ids.push_back(id);
            if (spans != nullptr) spans->push_back(span);
        }
    };
    void encode(std::string_view text, const EncodeOptions& options, const Found& found) const;
    void encode_unchanged(std::string_view text, std::size_t begin, const Found& found) const;
    void encode_aligned(AlignedText text, bool at_start, bool parse_special,
                        const Found& found) const;

    Vocabulary vocabulary_;
    Normalizer normalizer_;
    PreTokenizer pre_tokenizer_;
    TokenDecoder decoder_;
    std::unique_ptr<BpeModel> model_;
    std::unique_ptr<PieceModel> other_model_;  // in its place: Unigram, WordPiece
    AddedTokenMatcher raw_tokens_;             // matched in the text as it is
    AddedTokenMatcher normalized_tokens_;      // matched after the normalizer
    // Those are spelled as they are matched when they are decoded, as in the reference.
    std::unordered_map<std::int32_t, std::string> normalized_spelling_;
    std::vector<bool> special_;         // by id
    std::vector<std::int32_t> prefix_;  // what the post-processor puts around a text
    std::vector<std::int32_t> suffix_;
    std::optional<std::int32_t> bos_, eos_, pad_;
    std::string chat_template_;
    std::string tool_chat_template_;
    std::vector<std::pair<std::string, std::string>> to_save_;
};

}  // namespace garam
