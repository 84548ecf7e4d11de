#include "garam/train/vocabulary.h"

#include <algorithm>

#include "garam/core/error.h"
#include "garam/models/adapter_targets.h"
#include "garam/models/vocabulary_size.h"
#include "garam/serve/adapter_vocabulary.h"

namespace garam {
namespace {

void take_adapter(PreparedJob& job) {
    const std::string& folder = job.config.adapter;
    job.adapter = read_peft_adapter(folder);
    const std::int64_t rows = vocabulary_size(job.files);
    for (const AdapterTensor& tensor : job.adapter->embeddings)
        if (is_instead_of_base(tensor, rows))
            throw Error(
                folder +
                ": holds the whole embedding of a vocabulary that was resized, beside the adapter: "
                "merge it into the model first (garam merge), then train on");
    take_vocabulary(job.files, job.tokenizer, *job.adapter, folder);
}

std::string in_quotes(const std::vector<std::string>& tokens) {
    std::string list;
    for (const std::string& token : tokens)
        list += (list.empty() ? "" : ", ") + Json(token).dump();
    return list;
}

// By name or all of it, in the family's names or Transformers'.
bool is_target(const LoraSettings& lora, const std::string& path) {
    const LoraTargets targets(lora);
    const bool all = lora.target_modules.size() == 1 && lora.target_modules.front() == "all-linear";
    return !all && targets.contains(path);
}

// The rows of the tokens from `first` on are trained.
void train_rows(PreparedJob& job, std::int64_t first, std::int64_t count) {
    LoraSettings& lora = job.config.lora;
    const DecoderConfig config =
        DecoderConfig::from_json(job.files.config(), job.files.path().string());
    const DecoderFamily& family = *config.family;
    const std::string embedding(family.tensors.embedding);
    const std::string head(family.tensors.head);
    const bool saves_embedding = is_saved_module(lora, family, embedding);
    const bool saves_head = is_saved_module(lora, family, head);
    if (!saves_embedding) {
        if (is_target(lora, embedding) || is_target(lora, "model.embed_tokens"))
            throw Error(
                "data.add_special_tokens trains rows of their own for the new tokens, which "
                "lora.target_modules with embed_tokens excludes: leave it out there, or name "
                "embed_tokens in lora.modules_to_save");
        for (std::int64_t id = first; id < first + count; ++id) {
            std::vector<std::int64_t>& indices = lora.trainable_token_indices;
            if (std::find(indices.begin(), indices.end(), id) == indices.end())
                indices.push_back(id);
        }
    }
    const bool tied = config.ties_head(job.files) && !saves_embedding && !saves_head;
    if (tied || saves_head || is_target(lora, head) || is_target(lora, "lm_head")) return;
    job.notes.push_back(
        "warning: the head is a matrix of its own, in which the new tokens' rows are not trained: "
        "the model reads these tokens but does not learn to say them; add lm_head to "
        "lora.modules_to_save");
}

void add_tokens(PreparedJob& job) {
    const JobConfig& config = job.config;
    std::vector<std::string> fresh, known;
    for (const std::string& token : config.data.add_special_tokens) {
        if (token.empty()) throw Error("data.add_special_tokens: a token is empty");
        if (std::count(fresh.begin(), fresh.end(), token) > 0 ||
            std::count(known.begin(), known.end(), token) > 0)
            throw Error("data.add_special_tokens: " + Json(token).dump() + " comes twice");
        (job.tokenizer->id_of(token) ? known : fresh).push_back(token);
    }
    if (!known.empty())
        job.notes.push_back("data.add_special_tokens: " + in_quotes(known) +
                            (known.size() == 1 ? " is" : " are") +
                            " in the vocabulary already and stay as they are");
    if (fresh.empty()) return;
    if (job.adapter)
        throw Error("data.add_special_tokens and adapter: " + in_quotes(fresh) +
                    " would be new to " + config.adapter +
                    ": merge it into the model first (garam merge)");
    const std::int64_t first = job.tokenizer->vocab_size();
    const auto count = static_cast<std::int64_t>(fresh.size());
    job.tokenizer = load_tokenizer(config.model, fresh);
    const std::int64_t rows = vocabulary_size(job.files);
    const std::int64_t wanted = std::max(rows, first + count);
    // Before the files change: what is refused costs nothing.
    if (config.train.method != "full") train_rows(job, first, count);
    if (wanted > rows) resize_token_embeddings(job.files, wanted);
    job.notes.push_back("data.add_special_tokens: " + in_quotes(fresh) +
                        (count == 1 ? " is token " + std::to_string(first)
                                    : " are tokens " + std::to_string(first) + " to " +
                                          std::to_string(first + count - 1)) +
                        (wanted > rows ? "; the embedding grows from " + std::to_string(rows) +
                                             " to " + std::to_string(wanted) +
                                             " rows, new ones beginning as the mean of all"
                                       : "; the embedding has rows for them"));
}

}  // namespace

void prepare_vocabulary(PreparedJob& job) {
    if (!job.config.adapter.empty()) take_adapter(job);
    if (!job.config.data.add_special_tokens.empty()) add_tokens(job);
}

}  // namespace garam
