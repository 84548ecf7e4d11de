#include "garam/nn/lm_head.h"

#include <algorithm>

#include "garam/ops/elementwise.h"
#include "garam/ops/matmul.h"
#include "garam/ops/row_matmul.h"

namespace garam {

std::int64_t logits_chunk_rows(const DeviceProfile& profile, std::int64_t vocab,
                               std::int64_t rows) {
    constexpr std::int64_t kCardRows = 1024;
    const std::int64_t bytes = profile.is_cuda()    ? 512 << 20
                               : profile.bf16_tiles ? 64 << 20
                                                    : 16 << 20;
    const std::int64_t fitting = std::max<std::int64_t>(bytes / (vocab * 4) / 16 * 16, 64);
    const std::int64_t most = profile.is_cuda() ? std::min(fitting, kCardRows) : fitting;
    if (!profile.is_cuda() || rows <= most) return std::min(rows, most);
    // Chunks of one size leave no small one at the end.
    const std::int64_t chunks = (rows + most - 1) / most;
    return ((rows + chunks - 1) / chunks + 15) / 16 * 16;
}

void lm_head_loss(Stream& stream, const LmHead& head, const Loss& loss, const Tensor& x,
                  const Tensor& target_rows, const Tensor& targets, const Tensor& losses,
                  const Tensor& loss_sum, const Tensor& dx) {
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

    const std::int64_t chunk = logits_chunk_rows(stream.device().profile(), vocab, rows);
    const Tensor logits = arena.scratch(DType::f32, {chunk, vocab}, Purpose::logits);
    // The products of the backward read the gradient in the compute dtype.
    const Tensor narrow = gradient && dtype != DType::f32
                              ? arena.scratch(dtype, {chunk, vocab}, Purpose::logits)
                              : Tensor();
    for (std::int64_t begin = 0; begin < rows; begin += chunk) {
        const std::int64_t end = std::min(rows, begin + chunk);
        const Tensor some = normed.slice_rows(begin, end);
        const Tensor some_logits = logits.slice_rows(0, end - begin);
        matmul(stream, some, head.weight, some_logits, {.transpose_b = true});
        const Tensor dlogits = !gradient ? Tensor()
                               : narrow  ? narrow.slice_rows(0, end - begin)
                                         : some_logits;
        loss.evaluate(stream, some_logits, targets.slice_elements(begin, end),
                      losses.slice_elements(begin, end), dlogits, head.scale);
        if (!gradient) continue;
        if (head.weight_gradient)
            matmul(stream, dlogits, some, head.weight_gradient,
                   {.transpose_a = true, .accumulate = true});
        // The rows' normed values are done with: their gradient takes their place.
        matmul(stream, dlogits, head.weight, some);
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
    if (head.scale.changes()) scale_logits(stream, logits, head.scale);
}

}  // namespace garam
