#include "garam/ops/embedding.h"

#include <algorithm>
#include <cstring>

#include "garam/kernels/cuda/embedding.h"
#include "garam/ops/checks.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {
namespace {

float rounded_to(DType dtype, float x) {
    return dtype == DType::bf16 ? static_cast<float>(bfloat16(x)) : x;
}

}  // namespace

void embedding_forward(Stream& stream, const Tensor& ids, const Tensor& table, const Tensor& out,
                       float factor) {
    constexpr const char* kName = "embedding_forward";
    const std::int64_t tokens = ids.elements();
    const std::int64_t vocab = table.rows();
    const std::int64_t hidden = table.columns();
    check_compute_dtype(kName, table);
    check_operand(stream, kName, table);
    check_vector(stream, kName, ids, tokens, DType::i32);
    check_matrix(stream, kName, out, tokens, hidden, table.dtype());

    factor = rounded_to(table.dtype(), factor);

    Cost cost;
    if (factor != 1) cost.flops = static_cast<double>(out.elements());
    cost.bytes_read = bytes_of({&ids, &out});
    cost.bytes_written = bytes_of({&out});
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    const std::int32_t* const id = ids.data<std::int32_t>();
    if (runs_on_cuda(stream)) {
        cuda::embedding_kernels().forward(stream.queue(), id, cuda_rows(table), cuda_rows(out),
                                          factor, table.dtype(), tokens, vocab, hidden);
        return;
    }
    const auto multiply = element_kernels(stream, table.dtype()).multiply;
    const std::size_t row_bytes = static_cast<std::size_t>(hidden) * size_of(table.dtype());
    parallel_for(tokens, rows_per_piece(hidden), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
            GARAM_CHECK(id[t] >= 0 && id[t] < vocab, "token id " + std::to_string(id[t]) +
                                                         " outside the vocabulary of " +
                                                         std::to_string(vocab));
            if (factor == 1)
                std::memcpy(element_at(out, t, 0), element_at(table, id[t], 0), row_bytes);
            else
                multiply(element_at(table, id[t], 0), factor, element_at(out, t, 0), hidden);
        }
    });
}

void embedding_backward(Stream& stream, const Tensor& ids, const Tensor& out_gradient,
                        const Tensor& table_gradient, float factor) {
    constexpr const char* kName = "embedding_backward";
    const std::int64_t tokens = ids.elements();
    const std::int64_t vocab = table_gradient.rows();
    const std::int64_t hidden = table_gradient.columns();
    check_compute_dtype(kName, out_gradient);
    check_vector(stream, kName, ids, tokens, DType::i32);
    check_matrix(stream, kName, out_gradient, tokens, hidden, out_gradient.dtype());
    check_matrix(stream, kName, table_gradient, vocab, hidden, DType::f32);

    factor = rounded_to(out_gradient.dtype(), factor);

    Cost cost;
    const auto elements = static_cast<double>(out_gradient.elements());
    cost.flops = (factor != 1 ? 2.0 : 1.0) * elements;
    const double sums = elements * sizeof(float);
    cost.bytes_read = bytes_of({&ids, &out_gradient}) + sums;
    cost.bytes_written = sums;
    OpScope op(stream, kName, cost);
    const ScratchScope scope(stream.arena());
    const Tensor order = stream.arena().scratch(DType::i32, {tokens});
    if (op.dry() || tokens == 0) return;

    // Tokens sorted by id, in token order within an id: each id's row is one thread's work.
    const std::int32_t* const id = ids.data<std::int32_t>();
    std::int32_t* const sorted = order.data<std::int32_t>();
    if (runs_on_cuda(stream)) {
        cuda::embedding_kernels().backward(stream.queue(), id, cuda_rows(out_gradient),
                                           out_gradient.dtype(), factor, cuda_rows(table_gradient),
                                           tokens, vocab, hidden, sorted);
        return;
    }
    for (std::int64_t t = 0; t < tokens; ++t) {
        GARAM_CHECK(id[t] >= 0 && id[t] < vocab, "token id " + std::to_string(id[t]) +
                                                     " outside the vocabulary of " +
                                                     std::to_string(vocab));
        sorted[t] = static_cast<std::int32_t>(t);
    }
    std::sort(sorted, sorted + tokens, [id](std::int32_t a, std::int32_t b) {
        return id[a] != id[b] ? id[a] < id[b] : a < b;
    });
    const auto add_row = element_kernels(stream, out_gradient.dtype()).add_product_to_f32;
    parallel_for(tokens, rows_per_piece(hidden), [&](std::int64_t begin, std::int64_t end) {
        // A run of equal ids belongs to the piece in which it begins.
        const auto continues = [&](std::int64_t i) {
            return i > 0 && i < tokens && id[sorted[i]] == id[sorted[i - 1]];
        };
        std::int64_t i = begin;
        while (i < end && continues(i))
            ++i;
        if (i == end) return;
        for (; i < end || continues(i); ++i)
            add_row(element_at(out_gradient, sorted[i], 0), factor,
                    element_at<float>(table_gradient, id[sorted[i]], 0), hidden);
    });
}

}  // namespace garam
