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

void check_id(std::int32_t id, std::int64_t vocab) {
    GARAM_CHECK(id >= 0 && id < vocab, "token id " + std::to_string(id) +
                                           " outside the vocabulary of " + std::to_string(vocab));
}

// Numbers of the tokens by (id, token). Calls body(token) for each in this order, those of one id on one
// thread.
template <typename Body>
void for_sorted_tokens(const Tensor& ids, std::int64_t vocab, std::int64_t width,
                       const Tensor& order, const Body& body) {
    const std::int64_t tokens = ids.elements();
    const std::int32_t* const id = ids.data<std::int32_t>();
    std::int32_t* const sorted = order.data<std::int32_t>();
    for (std::int64_t t = 0; t < tokens; ++t) {
        if (id[t] != -1) check_id(id[t], vocab);
        sorted[t] = static_cast<std::int32_t>(t);
    }
    std::sort(sorted, sorted + tokens, [id](std::int32_t a, std::int32_t b) {
        return id[a] != id[b] ? id[a] < id[b] : a < b;
    });
    parallel_for(tokens, rows_per_piece(width), [&](std::int64_t begin, std::int64_t end) {
        // A run of equal ids belongs to the piece in which it begins.
        const auto continues = [&](std::int64_t i) {
            return i > 0 && i < tokens && id[sorted[i]] == id[sorted[i - 1]];
        };
        std::int64_t first = begin;
        while (first < end && continues(first))
            ++first;
        if (first == end) return;
        std::int64_t last = end;
        while (continues(last))
            ++last;
        for (std::int64_t i = first; i < last; ++i)
            if (id[sorted[i]] >= 0) body(sorted[i]);
    });
}

template <typename T>
void gather_columns(const Tensor& ids, const Tensor& table, const Tensor& out) {
    const std::int32_t* const id = ids.data<std::int32_t>();
    const std::int64_t columns = out.columns();
    parallel_for(out.rows(), rows_per_piece(columns), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
            check_id(id[t], table.columns());
            for (std::int64_t k = 0; k < columns; ++k)
                *element_at<T>(out, t, k) = *element_at<T>(table, k, id[t]);
        }
    });
}

template <typename T>
void add_columns(const Tensor& ids, const Tensor& gradient, const Tensor& table,
                 const Tensor& order) {
    const std::int32_t* const id = ids.data<std::int32_t>();
    const std::int64_t columns = gradient.columns();
    for_sorted_tokens(ids, table.columns(), columns, order, [&](std::int32_t t) {
        for (std::int64_t k = 0; k < columns; ++k)
            *element_at<float>(table, k, id[t]) +=
                static_cast<float>(*element_at<T>(gradient, t, k));
    });
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
            check_id(id[t], vocab);
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
    if (runs_on_cuda(stream)) {
        cuda::embedding_kernels().backward(stream.queue(), id, cuda_rows(out_gradient),
                                           out_gradient.dtype(), factor, cuda_rows(table_gradient),
                                           tokens, vocab, hidden, order.data<std::int32_t>());
        return;
    }
    const auto add_row = element_kernels(stream, out_gradient.dtype()).add_product_to_f32;
    for_sorted_tokens(ids, vocab, hidden, order, [&](std::int32_t t) {
        add_row(element_at(out_gradient, t, 0), factor, element_at<float>(table_gradient, id[t], 0),
                hidden);
    });
}

void embedding_columns_forward(Stream& stream, const Tensor& ids, const Tensor& table,
                               const Tensor& out) {
    constexpr const char* kName = "embedding_columns_forward";
    const std::int64_t tokens = ids.elements();
    check_compute_dtype(kName, table);
    check_operand(stream, kName, table);
    check_vector(stream, kName, ids, tokens, DType::i32);
    check_matrix(stream, kName, out, tokens, table.rows(), table.dtype());
    Cost cost;
    cost.bytes_read = bytes_of({&ids, &out});
    cost.bytes_written = bytes_of({&out});
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        cuda::embedding_kernels().columns_forward(stream.queue(), ids.data<std::int32_t>(),
                                                  cuda_rows(table), cuda_rows(out), table.dtype(),
                                                  tokens, table.columns(), table.rows());
        return;
    }
    if (table.dtype() == DType::bf16)
        gather_columns<bfloat16>(ids, table, out);
    else
        gather_columns<float>(ids, table, out);
}

void embedding_columns_backward(Stream& stream, const Tensor& ids, const Tensor& out_gradient,
                                const Tensor& table_gradient) {
    constexpr const char* kName = "embedding_columns_backward";
    const std::int64_t tokens = ids.elements();
    const std::int64_t rank = table_gradient.rows();
    const std::int64_t vocab = table_gradient.columns();
    check_compute_dtype(kName, out_gradient);
    check_vector(stream, kName, ids, tokens, DType::i32);
    check_matrix(stream, kName, out_gradient, tokens, rank, out_gradient.dtype());
    check_matrix(stream, kName, table_gradient, rank, vocab, DType::f32);
    Cost cost;
    cost.flops = static_cast<double>(out_gradient.elements());
    const double sums = cost.flops * sizeof(float);
    cost.bytes_read = bytes_of({&ids, &out_gradient}) + sums;
    cost.bytes_written = sums;
    OpScope op(stream, kName, cost);
    const ScratchScope scope(stream.arena());
    const Tensor order = stream.arena().scratch(DType::i32, {tokens});
    if (op.dry() || tokens == 0) return;
    if (runs_on_cuda(stream)) {
        cuda::embedding_kernels().columns_backward(
            stream.queue(), ids.data<std::int32_t>(), cuda_rows(out_gradient), out_gradient.dtype(),
            cuda_rows(table_gradient), tokens, vocab, rank, order.data<std::int32_t>());
        return;
    }
    if (out_gradient.dtype() == DType::bf16)
        add_columns<bfloat16>(ids, out_gradient, table_gradient, order);
    else
        add_columns<float>(ids, out_gradient, table_gradient, order);
}

}  // namespace garam
