#include "garam/nn/lm_head.h"

#include <algorithm>

#include "garam/ops/dropout.h"
#include "garam/ops/elementwise.h"
#include "garam/ops/embedding.h"
#include "garam/ops/matmul.h"
#include "garam/ops/row_matmul.h"

namespace garam {
namespace {

// The adapter's part of one chunk of rows, whose normed values are `h` [rows, hidden].
class HeadAdapter {
  public:
    // `rows` is the most of a chunk; `target_rows` and `dropout` are of all.
    HeadAdapter(Stream& stream, const LmHead& head, const Tensor& target_rows, const Tensor& h,
                std::int64_t rows, bool gradient, const DropoutContext& dropout)
        : stream_(stream), lora_(*head.lora), drops_(dropout.training && lora_.dropout > 0) {
        Arena& arena = stream.arena();
        u_ = arena.scratch(h.dtype(), {rows, lora_.A.extent(0)});
        if (gradient) du_ = arena.scratch(h.dtype(), u_.shape());
        if (!drops_) return;
        masked_ = arena.scratch(h.dtype(), {rows, h.columns()});
        const std::int64_t all = target_rows.elements();
        const std::int64_t tokens = dropout.positions.elements();
        positions_ = arena.scratch(DType::i32, {all});
        samples_ = arena.scratch(DType::i64, {all});
        gather_rows(stream, dropout.positions.reshape({tokens, 1}), target_rows,
                    positions_.reshape({all, 1}));
        gather_rows(stream, dropout.samples.reshape({tokens, 1}), target_rows,
                    samples_.reshape({all, 1}));
        key_ = {dropout.seed, dropout.step, lora_.module, {}, {}};
    }

    // logits += the adapter's; h are the rows from `begin` on.
    void forward(const Tensor& h, std::int64_t begin, const Tensor& logits) {
        const std::int64_t rows = h.rows();
        const Tensor u = u_.slice_rows(0, rows);
        if (drops_) {
            key_.positions = positions_.slice_elements(begin, begin + rows);
            key_.samples = samples_.slice_elements(begin, begin + rows);
            dropout(stream_, h, lora_.dropout, key_, masked_.slice_rows(0, rows), false);
        }
        matmul(stream_, input(h), lora_.A, u, {.transpose_b = true});
        matmul(stream_, u, lora_.B, logits,
               {.transpose_b = true, .alpha = lora_.scaling, .accumulate = true});
    }

    // Of the same rows: their gradients of A and B. h is not needed any more.
    void backward(const Tensor& h, const Tensor& dlogits) {
        const Tensor u = u_.slice_rows(0, h.rows());
        const Tensor du = du_.slice_rows(0, h.rows());
        matmul(stream_, dlogits, lora_.B, du, {.alpha = lora_.scaling});
        if (!lora_.A_gradient) return;
        matmul(stream_, dlogits, u, lora_.B_gradient,
               {.transpose_a = true, .alpha = lora_.scaling, .accumulate = true});
        matmul(stream_, du, input(h), lora_.A_gradient, {.transpose_a = true, .accumulate = true});
    }

    // dh, which has the gradient through the weight, += the gradient through the adapter.
    void add_input_gradient(const Tensor& dh) {
        const Tensor du = du_.slice_rows(0, dh.rows());
        if (!drops_) {
            matmul(stream_, du, lora_.A, dh, {.accumulate = true});
            return;
        }
        const Tensor through_mask = input(dh);
        matmul(stream_, du, lora_.A, through_mask);
        dropout(stream_, through_mask, lora_.dropout, key_, dh, true);
    }

  private:
    Tensor input(const Tensor& h) const { return drops_ ? masked_.slice_rows(0, h.rows()) : h; }

    Stream& stream_;
    const LoraAdapter& lora_;
    bool drops_;
    Tensor u_, du_, masked_, positions_, samples_;
    DropoutKey key_;
};

}  // namespace

std::int64_t logits_chunk_rows(const DeviceProfile& profile, std::int64_t vocab, std::int64_t rows,
                               std::int64_t tile) {
    constexpr std::int64_t kCardRows = 512;
    const std::int64_t bytes = profile.is_cuda()    ? 512 << 20
                               : profile.bf16_tiles ? 64 << 20
                                                    : 16 << 20;
    const std::int64_t fitting = std::max<std::int64_t>(bytes / (vocab * 4) / 16 * 16, 64);
    std::int64_t most = profile.is_cuda() ? std::min(fitting, kCardRows) : fitting;
    if (tile > 0) most = std::min(most, tile);
    if (!profile.is_cuda() || rows <= most) return std::min(rows, most);
    // Chunks of one size leave no small one at the end.
    const std::int64_t chunks = (rows + most - 1) / most;
    return ((rows + chunks - 1) / chunks + 15) / 16 * 16;
}

void lm_head_loss(Stream& stream, const LmHead& head, const Loss& loss, const Tensor& x,
                  const Tensor& target_rows, const Tensor& targets, const Tensor& losses,
                  const Tensor& loss_sum, const Tensor& dx, const DropoutContext& dropout,
                  std::int64_t tile) {
    Arena& arena = stream.arena();
    const ScratchScope scope(arena);
    const std::int64_t rows = target_rows.elements();
    const std::int64_t hidden = x.columns();
    const std::int64_t vocab = head.weight.extent(0);
    const DType dtype = x.dtype();
    const bool gradient = static_cast<bool>(dx);

    const Tensor picked = arena.scratch(dtype, {rows, hidden});
    const Tensor normed = arena.scratch(dtype, {rows, hidden});
    const Tensor rstd = arena.scratch(DType::f32, {rows});
    gather_rows(stream, x, target_rows, picked);
    norm_forward(stream, head.norm, picked, normed, rstd);

    const std::int64_t chunk = logits_chunk_rows(stream.device().profile(), vocab, rows, tile);
    const Tensor logits = arena.scratch(DType::f32, {chunk, vocab}, Purpose::logits);
    // The products of the backward read the gradient in the compute dtype.
    const Tensor narrow = gradient && dtype != DType::f32
                              ? arena.scratch(dtype, {chunk, vocab}, Purpose::logits)
                              : Tensor();
    // Those of the trained tokens, a row a token.
    const Tensor picked_gradient = gradient && head.token_gradient
                                       ? arena.scratch(dtype, {head.token_ids.elements(), chunk})
                                       : Tensor();
    std::optional<HeadAdapter> adapter;
    if (head.lora) adapter.emplace(stream, head, target_rows, normed, chunk, gradient, dropout);
    for (std::int64_t begin = 0; begin < rows; begin += chunk) {
        const std::int64_t end = std::min(rows, begin + chunk);
        const Tensor some = normed.slice_rows(begin, end);
        const Tensor some_logits = logits.slice_rows(0, end - begin);
        matmul(stream, some, head.weight, some_logits, {.transpose_b = true});
        if (adapter) adapter->forward(some, begin, some_logits);
        const Tensor dlogits = !gradient ? Tensor()
                               : narrow  ? narrow.slice_rows(0, end - begin)
                                         : some_logits;
        loss.evaluate(stream, some_logits, targets.slice_elements(begin, end),
                      losses.slice_elements(begin, end), dlogits, head.scale);
        if (!gradient) continue;
        if (head.weight_gradient)
            matmul(stream, dlogits, some, head.weight_gradient,
                   {.transpose_a = true, .accumulate = true});
        if (picked_gradient) {
            const Tensor of_tokens = picked_gradient.slice_columns(0, end - begin);
            embedding_columns_forward(stream, head.token_ids, dlogits, of_tokens);
            matmul(stream, of_tokens, some, head.token_gradient, {.accumulate = true});
        }
        if (adapter) adapter->backward(some, dlogits);
        // The rows' normed values are done with: their gradient takes their place.
        matmul(stream, dlogits, head.weight, some);
        if (adapter) adapter->add_input_gradient(some);
    }
    add_sum(stream, losses, loss_sum);
    if (!gradient) return;
    const Tensor dpicked = arena.scratch(dtype, {rows, hidden});
    norm_backward(stream, head.norm, normed, picked, rstd, dpicked, false);
    scatter_rows(stream, dpicked, target_rows, dx);
}

void lm_head_logits(Stream& stream, const LmHead& head, const Tensor& x, const Tensor& rows,
                    const Tensor& logits) {
    Arena& arena = stream.arena();
    const ScratchScope scope(arena);
    const bool all = rows.elements() == 1 && x.rows() == 1;  // one token, as in decoding
    const Tensor picked = all ? x : arena.scratch(x.dtype(), {rows.elements(), x.columns()});
    if (!all) gather_rows(stream, x, rows, picked);
    rms_norm_matmul(stream, picked, head.norm.weight, head.norm.eps, head.weight, logits, {},
                    head.norm.options);
    if (head.lora) {
        const LoraAdapter& lora = *head.lora;
        const Tensor u = arena.scratch(x.dtype(), {picked.rows(), lora.A.extent(0)});
        rms_norm_matmul(stream, picked, head.norm.weight, head.norm.eps, lora.A, u, {},
                        head.norm.options);
        matmul(
            stream, u, lora.B, logits,
            {.transpose_b = true, .alpha = lora.scaling, .accumulate = true, .b_is_settled = true});
    }
    if (head.scale.changes()) scale_logits(stream, logits, head.scale);
}

}  // namespace garam
