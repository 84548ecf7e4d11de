#include "garam/models/decoder.h"

#include <algorithm>
#include <numeric>

#include "garam/core/error.h"
#include "garam/ops/elementwise.h"
#include "garam/ops/embedding_noise.h"
#include "garam/runtime/transfer.h"

namespace garam {
namespace {

// Kinds of passes that use weights in an order of their own, beside those of training (their Recompute).
constexpr int kForwardPass = 5;
constexpr int kOneTokenPass = 6;

// One for each number of tiles, which use the MLP's one after the other.
int kind_of(int kind, const PassContext& pass, std::int64_t tokens) {
    const std::int64_t tiles = pass.tile > 0 ? (tokens + pass.tile - 1) / pass.tile : 1;
    return kind + 8 * static_cast<int>(tiles);
}

std::string layer_name(std::size_t layer) {
    return "layer " + std::to_string(layer);
}

}  // namespace

Decoder::~Decoder() = default;

std::int64_t Decoder::trainable_elements() const {
    std::int64_t count = 0;
    for (const Parameter& parameter : parameters_)
        count += parameter.master.elements();
    return count;
}

void Decoder::check_batch(const TokenBatch& batch) const {
    for (const std::int32_t id : batch.ids) {
        if (id < 0 || id >= config_.vocab_size)
            throw Error(
                "token id " + std::to_string(id) + " is outside the model's vocabulary of " +
                std::to_string(config_.vocab_size) + ": the tokenizer belongs to another model");
    }
    for (const std::int32_t target : batch.targets) {
        if (target != kIgnore && (target < 0 || target >= config_.vocab_size))
            throw Error("target id " + std::to_string(target) +
                        " is outside the model's vocabulary of " +
                        std::to_string(config_.vocab_size));
    }
    for (const std::int32_t position : batch.positions) {
        GARAM_CHECK(position >= 0 && position < max_positions_,
                    "position " + std::to_string(position) + " beyond the RoPE tables");
    }
}

PassContext Decoder::pass_context(const DeviceBatch& batch, const TrainingPass* pass) const {
    PassContext context;
    context.weights = weight_stream_.get();
    context.segments = batch.segments;
    context.positions = batch.positions;
    context.rotary_rows = batch.rotary_rows;
    if (pass != nullptr) {
        context.dropout = {pass->dropout, pass->seed, batch.step, batch.positions, batch.samples};
        context.recompute = pass->recompute;
        context.keep = pass->recompute < Recompute::block;
        context.tile = context.keep ? 0 : pass->tile;
    }
    return context;
}

std::int64_t Decoder::first_rotary_row(std::int64_t length) const {
    return longest_short_ > 0 && length > longest_short_ ? max_positions_ : 0;
}

BatchPlace Decoder::batch_place(std::uint32_t steps_done, std::int64_t cached) const {
    return {.steps_done = steps_done,
            .cached = cached,
            .longest_short = longest_short_,
            .long_rows = max_positions_};
}

void Decoder::block_forward(Stream& stream, const Block& block, const PassContext& pass,
                            const Tensor& x, const Tensor& out, BlockSaved& saved,
                            const AttentionCache* cache) {
    const ScratchScope scope(stream.arena());
    saved.x = x;
    saved.middle = make_activation(stream, pass, x.dtype(), x.shape());
    self_attention_forward(stream, block.attention, pass, x, saved.middle, saved.attention, cache);
    gated_mlp_forward(stream, block.mlp, pass, saved.middle, out, saved.mlp);
}

std::int64_t Decoder::residual_tail() const {
    std::int64_t tail = 0;
    for (const Block& block : blocks_)
        tail = std::max({tail, block.attention.o_proj.tail, block.mlp.down_proj.tail});
    return tail;
}

void Decoder::train_step(Stream& stream, const TokenBatch& batch, const TrainingPass& pass,
                         const Tensor& loss_sum) {
    check_batch(batch);
    if (batch.num_targets() == 0) return;
    Arena& arena = stream.arena();
    const Arena::Mark start = arena.mark();
    train_step(stream, upload(stream, batch, shape_of(batch), batch_place(pass.step)), pass,
               loss_sum);
    arena.rewind(start);
}

void Decoder::train_step(Stream& stream, const DeviceBatch& device, const TrainingPass& pass,
                         const Tensor& loss_sum) {
    Arena& arena = stream.arena();
    const Arena::Mark start = arena.mark();
    PassContext context = pass_context(device, &pass);
    const Shape hidden{device.tokens(), config_.hidden_size};
    std::vector<BlockSaved> saved(blocks_.size());
    const auto last = static_cast<std::int64_t>(blocks_.size());
    BlockOffload* const offload = pass.recompute == Recompute::offload ? pass.offload : nullptr;
    GARAM_CHECK(pass.recompute != Recompute::offload || offload != nullptr,
                "nowhere to offload to");
    if (offload != nullptr) offload->begin(stream, compute_, hidden, last);
    weight_stream_->begin(stream,
                          kind_of(static_cast<int>(pass.recompute), context, device.tokens()));
    // Memory for the input of a block, or the output of the last one.
    const auto input_of = [&](std::int64_t block) {
        return offload != nullptr ? offload->place(stream, block)
                                  : arena.push(compute_, hidden, Purpose::activations);
    };

    Tensor x = input_of(0);
    {
        const PhaseScope phase(stream.meter(), "forward");
        const RangeScope range(stream, "forward");
        token_embedding_forward(stream, embedding_, device.ids, x);
        if (pass.neftune_noise_alpha > 0)
            embedding_noise(stream, x, static_cast<float>(pass.neftune_noise_alpha),
                            {pass.seed, device.step, 0, device.positions, device.samples},
                            device.segments.device_cu_q);
        for (std::size_t l = 0; l < blocks_.size(); ++l) {
            const RangeScope layer(stream, layer_name(l));
            const auto block = static_cast<std::int64_t>(l);
            if (offload != nullptr) offload->written(stream, block);
            const Tensor out = input_of(block + 1);
            block_forward(stream, blocks_[l], context, x, out, saved[l], nullptr);
            x = out;
        }
    }

    const Tensor dx =
        arena.scratch(compute_, {device.tokens(), config_.hidden_size + residual_tail()});
    const Tensor dhidden = features(dx, config_.hidden_size);
    {
        const PhaseScope phase(stream.meter(), "head");
        const RangeScope range(stream, "head");
        const ScratchScope scope(arena);
        const Tensor losses = arena.scratch(DType::f32, device.targets.shape());
        lm_head_loss(stream, head_, loss_, x, device.target_rows, device.targets, losses, loss_sum,
                     dhidden, context.dropout);
    }
    if (offload != nullptr) offload->done(stream, last);
    {
        const PhaseScope phase(stream.meter(), "backward");
        const RangeScope range(stream, "backward");
        for (std::size_t l = blocks_.size(); l-- > 0;) {
            const RangeScope layer(stream, layer_name(l));
            const Block& block = blocks_[l];
            const Arena::Mark before = arena.mark();
            if (offload != nullptr) offload->await(stream, static_cast<std::int64_t>(l));
            if (pass.recompute >= Recompute::block) {
                context.keep = true;
                context.recompute =
                    context.tile > 0 ? Recompute::norms_and_activation : Recompute::nothing;
                const ScratchScope scope(arena);
                const Tensor middle = arena.scratch(compute_, hidden, Purpose::activations);
                {
                    const PhaseScope again(stream.meter(), "recompute");
                    self_attention_forward(stream, block.attention, context, saved[l].x, middle,
                                           saved[l].attention, nullptr);
                }
                gated_mlp_recompute_and_backward(stream, block.mlp, context, middle, dx);
            } else {
                gated_mlp_backward(stream, block.mlp, context, saved[l].middle, saved[l].mlp, dx);
            }
            const bool needs_dx = l > 0 || embedding_.is_trained();
            self_attention_backward(stream, block.attention, context, saved[l].x,
                                    saved[l].attention, dx, needs_dx);
            arena.rewind(before);
            if (offload != nullptr) offload->done(stream, static_cast<std::int64_t>(l));
        }
        token_embedding_backward(stream, embedding_, device.ids, dhidden);
    }
    weight_stream_->end(stream);
    arena.rewind(start);
}

// A card decodes token by token faster than its host could enqueue the ops.
bool Decoder::is_recordable(const Stream& stream, const DeviceBatch& batch) {
    return stream.is_for_cuda() && batch.tokens() == 1;
}

Tensor Decoder::run_blocks(Stream& stream, const DeviceBatch& batch, const PassContext& pass,
                           KvCache* cache) {
    Arena& arena = stream.arena();
    const Shape hidden{batch.tokens(), config_.hidden_size};
    Tensor x = arena.push(compute_, hidden, Purpose::activations);
    Tensor other = arena.push(compute_, hidden, Purpose::activations);
    weight_stream_->begin(
        stream, kind_of(x.rows() == 1 ? kOneTokenPass : kForwardPass, pass, batch.tokens()));
    token_embedding_forward(stream, embedding_, batch.ids, x);
    BlockSaved unused;
    for (std::size_t l = 0; l < blocks_.size(); ++l) {
        AttentionCache seen;
        if (cache != nullptr) {
            // Recorded work must see all of a cache that fills from step to step.
            const std::int64_t length =
                is_recordable(stream, batch) ? cache->capacity : pass.segments.cu_k.back();
            seen = {cache->layers[l].keys_and_values.slice_rows(0, length),
                    cache->layers[l].arrivals};
        }
        block_forward(stream, blocks_[l], pass, x, other, unused,
                      cache == nullptr ? nullptr : &seen);
        std::swap(x, other);
    }
    weight_stream_->end(stream);
    return x;
}

void Decoder::evaluate(Stream& stream, const TokenBatch& batch, const Tensor& loss_sum,
                       std::vector<float>* losses, std::int64_t tile) {
    check_batch(batch);
    if (losses != nullptr) losses->clear();
    if (batch.num_targets() == 0) return;
    const PhaseScope phase(stream.meter(), "evaluate");
    Arena& arena = stream.arena();
    const Arena::Mark start = arena.mark();
    const DeviceBatch device = upload(stream, batch, shape_of(batch), batch_place());
    PassContext context = pass_context(device, nullptr);
    context.tile = tile;
    const Tensor x = run_blocks(stream, device, context, nullptr);
    const Tensor row_losses = arena.scratch(DType::f32, device.targets.shape());
    lm_head_loss(stream, head_, loss_, x, device.target_rows, device.targets, row_losses, loss_sum,
                 Tensor());
    if (losses != nullptr) {
        losses->resize(static_cast<std::size_t>(row_losses.elements()));
        copy_to_host(stream, row_losses, losses->data());
    }
    arena.rewind(start);
}

void Decoder::head_logits(Stream& stream, const Tensor& x, const std::vector<std::int32_t>& rows,
                          std::vector<float>& out) {
    Arena& arena = stream.arena();
    const auto count = static_cast<std::int64_t>(rows.size());
    const Tensor picked = arena.scratch(DType::i32, {count}, Purpose::batch);
    copy_to_device(stream, rows.data(), picked);
    const Tensor result = arena.scratch(DType::f32, {count, config_.vocab_size}, Purpose::logits);
    lm_head_logits(stream, head_, x, picked, result);
    out.resize(static_cast<std::size_t>(result.elements()));
    copy_to_host(stream, result, out.data());
}

void Decoder::logits(Stream& stream, const TokenBatch& batch, const std::vector<std::int32_t>& rows,
                     std::vector<float>& out) {
    check_batch(batch);
    Arena& arena = stream.arena();
    const Arena::Mark start = arena.mark();
    const DeviceBatch device = upload(stream, batch, shape_of(batch), batch_place());
    const Tensor x = run_blocks(stream, device, pass_context(device, nullptr), nullptr);
    head_logits(stream, x, rows, out);
    arena.rewind(start);
}

void Decoder::check_capacity(std::int64_t capacity) const {
    GARAM_CHECK(capacity > 0 && capacity <= max_positions_,
                "KV cache of " + std::to_string(capacity) + " tokens");
}

KvCache Decoder::cache_in(Stream& stream, std::int64_t capacity, const TakeTensor& take) const {
    KvCache cache;
    cache.capacity = capacity;
    const Shape shape{capacity, 2 * config_.num_kv_heads * config_.head_dim};
    for (std::size_t l = 0; l < blocks_.size(); ++l)
        cache.layers.push_back({take(compute_, shape), {}});
    if (!device_.profile().is_cuda()) return cache;
    // Of a card's attention, which leaves it zero: one layer has it after the other.
    const Tensor arrivals = take(DType::i32, {config_.num_heads});
    clear(stream, arrivals);
    for (AttentionCache& layer : cache.layers)
        layer.arrivals = arrivals;
    return cache;
}

KvCache Decoder::make_cache(std::int64_t capacity) {
    check_capacity(capacity);
    std::int64_t bytes = 0;
    const auto size = [&bytes](DType dtype, const Shape& shape) {
        const std::int64_t at = bytes;
        bytes += align_up(shape.elements() * static_cast<std::int64_t>(size_of(dtype)));
        return at;
    };
    const Shape shape{capacity, 2 * config_.num_kv_heads * config_.head_dim};
    for (std::size_t l = 0; l < blocks_.size(); ++l)
        size(compute_, shape);
    if (device_.profile().is_cuda()) size(DType::i32, {config_.num_heads});
    Buffer buffer(device_, std::exchange(bytes, 0), Purpose::kv_cache);
    SetupStream setup(device_);
    KvCache cache = cache_in(setup.stream, capacity, [&](DType dtype, const Shape& of) {
        return buffer.tensor(dtype, of, size(dtype, of));
    });
    setup.stream.synchronize();
    cache.buffer = std::move(buffer);
    return cache;
}

KvCache Decoder::make_cache(Stream& stream, std::int64_t capacity) {
    check_capacity(capacity);
    return cache_in(stream, capacity, [&stream](DType dtype, const Shape& shape) {
        return stream.arena().push(dtype, shape, Purpose::kv_cache);
    });
}

std::int64_t Decoder::cache_capacity(std::int64_t tokens, std::int64_t wanted) const {
    return tokens <= longest_short_ ? std::min(wanted, longest_short_) : wanted;
}

bool Decoder::turns_alike(const KvCache& a, const KvCache& b) const {
    return first_rotary_row(a.capacity) == first_rotary_row(b.capacity);
}

std::span<const float> Decoder::read_logits(Stream& stream, KvCache& cache,
                                            const Tensor& logits) const {
    const auto count = static_cast<std::size_t>(logits.elements());
    if (logits.rows() == 1 && device_.can_record()) {
        if (cache.row.bytes() < logits.bytes()) cache.row = PinnedBuffer(device_, logits.bytes());
        copy_to_host(stream, logits, cache.row.raw());
        return {static_cast<const float*>(cache.row.raw()), count};
    }
    cache.rows.resize(count);
    copy_to_host(stream, logits, cache.rows.data());
    return cache.rows;
}

void Decoder::decode(Stream& stream, KvCache& cache, std::span<const std::int32_t> ids,
                     std::vector<float>& logits, std::int64_t rows) {
    const std::span<const float> values = decode(stream, cache, ids, rows);
    logits.assign(values.begin(), values.end());
}

std::span<const float> Decoder::decode(Stream& stream, KvCache& cache,
                                       std::span<const std::int32_t> ids, std::int64_t rows) {
    const auto count = static_cast<std::int64_t>(ids.size());
    GARAM_CHECK(rows > 0 && rows <= count, "logits of more rows than there are");
    GARAM_CHECK(count > 0 && cache.length + count <= cache.capacity, "KV cache is full");
    TokenBatch batch;
    batch.ids.assign(ids.begin(), ids.end());
    batch.targets.assign(ids.size(), kIgnore);
    batch.positions.resize(ids.size());
    std::iota(batch.positions.begin(), batch.positions.end(),
              static_cast<std::int32_t>(cache.length));
    batch.cu_seqlens = {0, static_cast<std::int32_t>(count)};
    batch.sample_ids = {0};
    check_batch(batch);

    const PhaseScope phase(stream.meter(), count > 1 ? "prefill" : "decode");
    // The tokens whose logits are asked for, as targets of nothing.
    std::fill(batch.targets.end() - rows, batch.targets.end(), 0);
    Arena& arena = stream.arena();
    const Arena::Mark start = arena.mark();
    const DeviceBatch device = upload(stream, batch, shape_of(batch), batch_place(0, cache.length));
    const Tensor result = arena.push(DType::f32, {rows, config_.vocab_size}, Purpose::logits);
    PassContext context = pass_context(device, nullptr);
    context.decoding = true;
    // A cache's keys stay turned as they were: by what its capacity makes of the sequence.
    context.first_rotary_row = first_rotary_row(cache.capacity);
    const auto compute = [&] {
        const Tensor x = run_blocks(stream, device, context, &cache);
        lm_head_logits(stream, head_, x, device.target_rows, result);
    };
    KvCache::Recording& recording = cache.recording;
    if (!is_recordable(stream, device) || !device_.can_record() || rows != 1) {
        compute();
    } else if (recording.work && recording.base == start.low && recording.memory == result.raw()) {
        recording.work->enqueue(stream.queue());
    } else if (recording.was_run) {
        device_.begin_recording(stream.queue());
        compute();
        recording.work = device_.end_recording(stream.queue());
        recording.base = start.low;
        recording.memory = result.raw();
        recording.work->enqueue(stream.queue());
    } else {
        compute();  // also loads kernels, which is not for a recording
        recording.was_run = true;
    }
    const std::span<const float> logits = read_logits(stream, cache, result);
    cache.length += count;
    arena.rewind(start);
    return logits;
}

std::vector<Parameter*> Decoder::pointers() {
    std::vector<Parameter*> pointers;
    for (Parameter& parameter : parameters_)
        pointers.push_back(&parameter);
    return pointers;
}

}  // namespace garam
