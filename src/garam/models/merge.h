// Adapters folded into their base: W + sum of w s B A in place of W (w: the adapter's weight, 1 of one alone; of
// DoRA w times its whole change of W), as a Hugging Face model folder that needs no
// adapter any more.
//
// Each sum is taken in double precision from the stored W and the fp32 adapter and rounded once to the
// dtype that is written, so a merged weight is within half a unit in its last place of the exact value.
// Tensor by tensor: memory for two tensors at a time, whatever the model's size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "garam/core/dtype.h"
#include "garam/core/json.h"
#include "garam/io/model_files.h"
#include "garam/io/peft_adapter.h"
#include "garam/models/sharded_weights.h"

namespace garam {

// One of several adapters whose changes are added up, each times its weight.
struct WeightedAdapter {
    const PeftAdapter* adapter = nullptr;
    std::string source;  // for messages
    double weight = 1;
};

// The weights of a base with adapters folded in, in double precision before their one rounding.
class MergedWeights {
  public:
    // Without adapters the base's own. The base and the adapters must outlive this. Throws Error naming tensor
    // and both shapes when an adapter does not fit the base.
    MergedWeights(const ModelFiles& base, const std::vector<WeightedAdapter>& adapters);
    ~MergedWeights();

    // Whether an adapter changes the tensor of that name.
    bool changes(const std::string& name) const;
    // What is written: the base's tensors without those that the config implies, in their order. A head
    // that the base ties to its embedding follows with the same values where an adapter changes one of the
    // two, and is tied no more.
    const std::vector<StoredTensor>& tensors() const;
    bool is_tied() const;
    // Calls body(row, values) for each row of the tensor, on all cores; values has as many numbers as a
    // row. The second form for rows [first, first + count), which are whole heads where the file has
    // permuted them, takes memory for their elements in fp32 only.
    using Body = std::function<void(std::int64_t row, const double* values)>;
    void for_each_row(const StoredTensor& tensor, const Body& body) const {
        for_each_row(tensor, 0, tensor.shape.rows(), body);
    }
    void for_each_row(const StoredTensor& tensor, std::int64_t first, std::int64_t count,
                      const Body& body) const;

  private:
    struct Impl;
    std::unique_ptr<const Impl> impl_;
};

// A double to float, bfloat16 or float16, rounded once.
template <typename T>
T rounded(double value);

// Throws Error: the tensor's element is not finite as `dtype` has it; `advice` says what to do.
[[noreturn]] void fail_range(const std::string& tensor, std::int64_t element, DType dtype,
                             const char* advice);

struct MergeOptions {
    // f32, f16 or bf16 for every tensor. Unset: a Hugging Face base keeps each tensor's own; a GGUF base
    // that of its matrices; bf16 where these are quantised, in either.
    std::optional<DType> dtype;
    // A file of weights is begun anew before it exceeds this, as Transformers does by default.
    std::int64_t shard_bytes = kShardBytes;
    // Written into config.json where the base's own has none (a GGUF keeps them with its tokenizer).
    std::optional<std::int32_t> bos_id;
    std::optional<std::int32_t> eos_id;
    std::optional<std::int32_t> pad_id;
    // Told before each tensor is written, on the thread that called.
    std::function<void(std::int64_t done, std::int64_t of)> progress;
};

struct MergeReport {
    DType dtype = DType::f32;    // of the matrices
    bool was_quantised = false;  // the base was quantised; the result is not
    std::int64_t merged_tensors = 0;
    std::int64_t tensors = 0;
    std::int64_t bytes = 0;  // of the weights
};

// config.json of the merged model: the base's own keys and field style with the dtype that is written.
// For a GGUF what its keys say; RoPE divisors are turned back into the setting that made them. Throws
// Error when no setting that Transformers can read gives these divisors.
Json merged_config(const ModelFiles& base, DType dtype, bool tied, const MergeOptions& options);

// Writes config.json, model.safetensors (or shards with an index) and a copy of
// generation_config.json into `folder`, which exists. Tied embeddings stay tied unless the
// adapter changes one of them (MergedWeights::tensors). Throws Error naming tensor and both shapes
// when the adapter does not fit the base, or the base its config, and when a weight cannot be
// written in the dtype asked for.
MergeReport write_merged_model(const ModelFiles& base, const std::vector<WeightedAdapter>& adapters,
                               const std::filesystem::path& folder, const MergeOptions& options);
inline MergeReport write_merged_model(const ModelFiles& base, const PeftAdapter& adapter,
                                      const std::string& source,
                                      const std::filesystem::path& folder,
                                      const MergeOptions& options) {
    return write_merged_model(base, {{&adapter, source}}, folder, options);
}

}  // namespace garam
