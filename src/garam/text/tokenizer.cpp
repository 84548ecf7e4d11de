#include "garam/text/tokenizer.h"

#include <exception>
#include <mutex>

#include "garam/core/error.h"
#include "garam/core/parallel.h"
#include "garam/io/gguf.h"
#include "garam/io/hub_cache.h"
#include "garam/text/bpe_tokenizer.h"
#include "garam/text/new_tokens.h"
#include "garam/text/tokenizer_files.h"

namespace garam {

const std::string& Tokenizer::tool_chat_template() const {
    static const std::string none;
    return none;
}
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool ends_open(const std::string& text) {
    return text.size() >= kReplacement.size() &&
           text.compare(text.size() - kReplacement.size(), kReplacement.size(), kReplacement) == 0;
}

// one(i) for each text; of several failures that of the first text counts, whichever thread came first.
template <class One>
void for_each_text(std::size_t count, const One& one) {
    constexpr std::int64_t kGrain = 8;  // texts that a thread takes at once
    std::mutex lock;
    std::size_t failed = count;
    std::exception_ptr failure;
    parallel_for(
        static_cast<std::int64_t>(count), kGrain, [&](std::int64_t begin, std::int64_t end) {
            for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
                try {
                    one(i);
                } catch (...) {
                    const std::lock_guard<std::mutex> guard(lock);
                    if (i >= failed) continue;
                    failed = i;
                    failure = std::current_exception();
                }
            }
        });
    if (failure) std::rethrow_exception(failure);
}

}  // namespace

std::vector<Encoding> Tokenizer::encode_batch(std::span<const std::string_view> texts,
                                              const EncodeOptions& options) const {
    std::vector<Encoding> made(texts.size());
    for_each_text(texts.size(), [&](std::size_t i) { made[i] = encode(texts[i], options); });
    return made;
}

std::vector<std::vector<std::int32_t>> Tokenizer::encode_ids_batch(
    std::span<const std::string_view> texts, const EncodeOptions& options) const {
    std::vector<std::vector<std::int32_t>> made(texts.size());
    for_each_text(texts.size(), [&](std::size_t i) { made[i] = encode_ids(texts[i], options); });
    return made;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& given,
                                          const std::vector<std::string>& special_tokens) {
    const std::filesystem::path model = find_model_path(given).path;
    if (!std::filesystem::exists(model))
        throw Error(model.string() + ": there is no such model folder or GGUF file");
    TokenizerFiles files = std::filesystem::is_directory(model)
                               ? read_huggingface_tokenizer(model)
                               : read_gguf_tokenizer(*GgufFile::open(model));
    if (!special_tokens.empty()) add_special_tokens(files, special_tokens);
    return std::make_unique<BpeTokenizer>(std::move(files));
}

std::unique_ptr<Tokenizer> tokenizer_of_adapter(const std::filesystem::path& adapter,
                                                const Tokenizer& own) {
    const std::filesystem::path folder = find_model_path(adapter).path;
    if (!std::filesystem::exists(folder / "tokenizer.json")) return nullptr;
    std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(folder);
    const auto size = static_cast<std::int32_t>(tokenizer->vocab_size());
    for (std::int32_t id = 0; id < size; ++id)
        if (tokenizer->is_special(id) && !own.id_of(tokenizer->token_of(id))) return tokenizer;
    return nullptr;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

// What an id decodes to can depend on what stood before it (a leading space is dropped at the start of a
// text), so the ids last emitted stay in front of the pending ones, and only what they do not explain is
// new. Text that ends in U+FFFD may be half a character: it waits for more.
std::string StreamDecoder::push(std::int32_t id) {
    constexpr std::size_t kLongestWait = 16;  // tokens; a character has at most 4 bytes
    if (skip_special_tokens_ && tokenizer_.is_special(id)) return {};
    pending_.push_back(id);
    const std::string text = tokenizer_.decode(pending_, skip_special_tokens_);
    if (!ends_open(text)) return take(pending_.size());
    if (pending_.size() - context_ < kLongestWait) return {};
    // So many bytes that are no text are no beginning of a character: let go of all but the last ones,
    // where the cut does not change what they say.
    for (std::size_t keep = 4; keep > 0; --keep) {
        const std::span<const std::int32_t> ids(pending_);
        const std::string parts =
            tokenizer_.decode(ids.first(ids.size() - keep), skip_special_tokens_) +
            tokenizer_.decode(ids.last(keep), skip_special_tokens_);
        if (parts == text) return take(pending_.size() - keep);
    }
    return take(pending_.size());
}

std::string StreamDecoder::flush() {
    return context_ == pending_.size() ? std::string() : take(pending_.size());
}

// Emits pending_[context_, end) and keeps those ids as the context of what follows.
std::string StreamDecoder::take(std::size_t end) {
    const std::span<const std::int32_t> ids(pending_);
    const std::string before = tokenizer_.decode(ids.first(context_), skip_special_tokens_);
    const std::string text = tokenizer_.decode(ids.first(end), skip_special_tokens_);
    std::string fresh =
        text.compare(0, before.size(), before) == 0
            ? text.substr(before.size())
            // Broken bytes behind whole ones: the reference breaks both, but the whole ones are out.
            : tokenizer_.decode(ids.subspan(context_, end - context_), skip_special_tokens_);
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(context_));
    context_ = end - context_;
    return fresh;
}

}  // namespace garam
