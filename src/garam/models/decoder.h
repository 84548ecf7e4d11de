// A decoder-only language model of a family of models/decoder_family.h: weights, adapters, training pass,
// decoding.
//
// Weights of the compute dtype that lie in a mapped file as they are needed are used in place; all others
// are converted once into one allocation. Everything is allocated on `device`; on a dry device nothing is
// read and nothing touched, only counted.
//
// The linears of the layers may be quantised: as the files have them (4 bits of bitsandbytes, GGUF's blocks), or
// while they are loaded (Options::quantize). The CPU computes with codes, in the mapped file where they can
// be used as they lie. A card keeps some projections decoded and decodes the others when a pass needs
// them (nn/weight_stream.h), with the same bits. Weights that are trained, or that PiSSA makes, are not
// quantised.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "garam/core/token_batch.h"
#include "garam/io/model_files.h"
#include "garam/io/peft_adapter.h"
#include "garam/models/adapter_init.h"
#include "garam/models/block_offload.h"
#include "garam/models/decoder_config.h"
#include "garam/models/device_batch.h"
#include "garam/nn/gated_mlp.h"
#include "garam/nn/lm_head.h"
#include "garam/nn/parameter.h"
#include "garam/nn/self_attention.h"
#include "garam/nn/token_embedding.h"
#include "garam/nn/weight_stream.h"
#include "garam/quant/base_quantization.h"

namespace garam {

// What a training pass does besides the arithmetic.
struct TrainingPass {
    std::uint64_t seed = 0;  // of dropout and noise
    std::uint32_t step = 0;  // optimiser steps done
    bool dropout = true;
    double neftune_noise_alpha = 0;  // ops/embedding_noise.h; 0: none
    Recompute recompute = Recompute::nothing;
    BlockOffload* offload = nullptr;  // where inputs of blocks wait, with Recompute::offload
    std::int64_t tile = 0;            // PassContext::tile; where blocks are recomputed
};

// Keys and values of one sequence of up to `capacity` tokens.
struct KvCache {
    Buffer buffer;
    std::vector<AttentionCache> layers;
    std::int64_t capacity = 0;
    std::int64_t length = 0;  // tokens seen; may be lowered to go back

    // A card's work for one more token.
    struct Recording {
        bool was_run = false;
        std::unique_ptr<RecordedWork> work;
        std::int64_t base = 0;         // of the step memory that the work uses
        const void* memory = nullptr;  // its logits
    };
    Recording recording;

    // Where the host reads the last logits: a card's of one row in pinned memory.
    PinnedBuffer row;
    std::vector<float> rows;
};

class Decoder {
  public:
    enum class Trained : std::uint8_t { nothing, adapter, all_weights };
    struct Options {
        DType compute = DType::f32;  // f32 or bf16
        Trained trained = Trained::nothing;
        std::optional<LoraSettings> lora;  // the adapter, trained or only applied
        double b_rate_factor = 1;          // B's learning rate over A's (LoRA+: Hayou et al., 2024)
        LoraInit init;                     // of a new adapter
        std::uint64_t seed = 0;            // of its A
        double label_smoothing = 0;        // of the loss, in training and evaluation
        std::int64_t max_positions = 0;    // rows of the RoPE tables; 0: the config's
        // Frozen weights in the device's memory though a mapped file could serve: its large pages are read
        // half again as fast, which decides about decoding.
        bool own_weights = false;
        // Quantise linears of the layers that the files have in full. Not with all_weights or PiSSA.
        std::optional<BaseQuantization> quantize;
        // On a card: so many of the projections whose base is quantised are kept decoded.
        std::int64_t resident_projections = kAllProjections;
        // A card's trained parameters keep their masters in pinned host memory, which it reads and writes
        // over its bus in each update; their copies, which compute, stay. Elsewhere it means nothing.
        bool masters_on_host = false;
    };
    static constexpr std::int64_t kAllProjections = std::numeric_limits<std::int64_t>::max();

    // Throws Error naming file, tensor and both shapes when weights and config disagree, when a tensor is
    // missing, unknown or not finite, or when the adapter's targets match nothing.
    // The files stay as long as the model: weights are used in place where they can be.
    Decoder(Device& device, const ModelFiles& files, const Options& options);
    Decoder(Device& device, const ModelFiles&& files, const Options& options) = delete;
    ~Decoder();

    Device& device() const { return device_; }
    const DecoderConfig& config() const { return config_; }
    DType compute_dtype() const { return compute_; }
    // The adapter's settings with target modules resolved to what was really adapted; nullptr: none.
    const LoraSettings* lora() const { return lora_ ? &*lora_ : nullptr; }

    // Trained tensors, in the order of the layers. Valid as long as the model.
    std::vector<Parameter>& parameters() { return parameters_; }
    // All gradients as one dense f32 vector (padding between tensors stays zero).
    const Tensor& all_gradients() const { return all_gradients_; }
    std::int64_t trainable_elements() const;
    std::int64_t total_elements() const { return total_elements_; }
    std::int64_t mapped_bytes() const { return mapped_bytes_; }  // used in place in the file
    // Of a card: projections that need not be kept decoded, for this model's files and adapter.
    std::int64_t streamable_projections() const { return streamable_projections_; }
    // What the device held at most while the model was made.
    std::int64_t load_peak_bytes() const { return load_peak_bytes_; }

    // Replaces the values of the adapter; names and shapes must match exactly. Throws Error naming the key
    // and both shapes.
    void load_adapter(const PeftAdapter& adapter, const std::string& source);
    // With PiSSA (models/pissa.h), what adapters began with, which their weights are less: each adapter's A is
    // the parameter of that index, its B the next one.
    struct TakenOut {
        std::size_t parameter;
        Tensor A, B;  // f32, of the device
        const StoredTensor* weight;
        Tensor place;  // of the weight
        double scaling;
    };
    const std::vector<TakenOut>& taken_out() const { return taken_out_; }
    // Weights anew as the files' less what the A and B above say now.
    void take_out();
    // Writes masters into the tensors that compute with them; call after masters changed.
    void refresh_copies();

    // Throws Error when a token or target is outside the vocabulary.
    void check_batch(const TokenBatch& batch) const;
    // Forward, loss and backward of a micro-batch. Adds to all gradients; adds the sum of the losses of
    // the targets to loss_sum f32 [1]. Leaves the arena as it was.
    void train_step(Stream& stream, const TokenBatch& batch, const TrainingPass& pass,
                    const Tensor& loss_sum);
    // The same of a batch that was checked and lies on the device (laid out with batch_place()).
    // Recordable: what changes between batches of one shape is read from device memory.
    void train_step(Stream& stream, const DeviceBatch& batch, const TrainingPass& pass,
                    const Tensor& loss_sum);

    BatchPlace batch_place(std::uint32_t steps_done = 0, std::int64_t cached = 0) const;

    // Losses of the targets alone, without dropout; `losses` (may be null) receives them one by one, in
    // the order of the tokens. `tile`: as PassContext's.
    void evaluate(Stream& stream, const TokenBatch& batch, const Tensor& loss_sum,
                  std::vector<float>* losses, std::int64_t tile = 0);

    // logits f32 [rows, vocab] of the tokens numbered in `rows`, in host memory; whole sequences.
    void logits(Stream& stream, const TokenBatch& batch, const std::vector<std::int32_t>& rows,
                std::vector<float>& out);

    // A sequence is turned as one of `capacity` tokens: see cache_capacity().
    KvCache make_cache(std::int64_t capacity);
    // The same on the low end of the stream's arena, until that is rewound.
    KvCache make_cache(Stream& stream, std::int64_t capacity);
    // Of a cache for a sequence that has `tokens`, with room for growth up to `wanted`: not beyond the length
    // where its keys would be turned otherwise. Whether keys of one cache may go on in the other.
    std::int64_t cache_capacity(std::int64_t tokens, std::int64_t wanted) const;
    bool turns_alike(const KvCache& a, const KvCache& b) const;
    // Feeds the next ids of a sequence, appends to its cache, and gives the logits [rows, vocab] after
    // each of the last `rows` ids, in memory of the cache: until its next call.
    std::span<const float> decode(Stream& stream, KvCache& cache, std::span<const std::int32_t> ids,
                                  std::int64_t rows = 1);
    // The same, copied.
    void decode(Stream& stream, KvCache& cache, std::span<const std::int32_t> ids,
                std::vector<float>& logits, std::int64_t rows = 1);

  private:
    struct Block {
        SelfAttention attention;
        GatedMlp mlp;
    };
    struct BlockSaved {
        Tensor x, middle;
        SelfAttentionSaved attention;
        GatedMlpSaved mlp;
    };
    class Loader;

    std::vector<Parameter*> pointers();
    PassContext pass_context(const DeviceBatch& batch, const TrainingPass* pass) const;
    // The first row of the rotary tables for a sequence of so many tokens.
    std::int64_t first_rotary_row(std::int64_t length) const;
    void block_forward(Stream& stream, const Block& block, const PassContext& pass, const Tensor& x,
                       const Tensor& out, BlockSaved& saved, const AttentionCache* cache);
    void check_capacity(std::int64_t capacity) const;
    using TakeTensor = std::function<Tensor(DType, const Shape&)>;
    KvCache cache_in(Stream& stream, std::int64_t capacity, const TakeTensor& take) const;
    static bool is_recordable(const Stream& stream, const DeviceBatch& batch);
    // Last hidden states of a pass without backward.
    Tensor run_blocks(Stream& stream, const DeviceBatch& batch, const PassContext& pass,
                      KvCache* cache);
    // Columns behind the residual stream's gradient that its projections need.
    std::int64_t residual_tail() const;
    // A tensor's values in host memory of the cache.
    std::span<const float> read_logits(Stream& stream, KvCache& cache, const Tensor& logits) const;
    // Logits of the rows of x that are named, to host memory.
    void head_logits(Stream& stream, const Tensor& x, const std::vector<std::int32_t>& rows,
                     std::vector<float>& out);

    Device& device_;
    DecoderConfig config_;
    DType compute_;
    std::optional<LoraSettings> lora_;
    std::vector<Buffer> buffers_;
    PinnedBuffer host_masters_;  // with masters_on_host
    TokenEmbedding embedding_;
    std::vector<Block> blocks_;
    LmHead head_;
    std::int64_t max_positions_ = 0;
    // A row a position; where sequences of more than `longest_short_` tokens turn by other frequencies,
    // as many rows of these follow.
    std::int64_t longest_short_ = 0;
    RotaryTables rotary_;
    RotaryTables local_rotary_;  // of layers with a window, where they have their own
    CrossEntropyLoss loss_;
    std::vector<Parameter> parameters_;
    Tensor all_gradients_;
    std::vector<TakenOut> taken_out_;
    std::vector<std::pair<std::string, Linear*>> linears_;  // by module path, in order
    std::unique_ptr<WeightStream> weight_stream_;
    std::int64_t streamable_projections_ = 0;
    std::int64_t load_peak_bytes_ = 0;
    std::int64_t total_elements_ = 0;
    std::int64_t mapped_bytes_ = 0;
};

}  // namespace garam
