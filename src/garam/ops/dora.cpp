#include "garam/ops/dora.h"

#include <array>
#include <cmath>

#include "garam/kernels/cuda/dora.h"
#include "garam/ops/checks.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {
namespace {

// V's row by pieces on the stack.
void make_scale(const cpu::KernelTable& table, const DoraScale& dora, std::int64_t o) {
    constexpr std::int64_t kPiece = 1024;
    std::array<float, kPiece> row;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const Tensor& W = dora.weight;
    const float* const b = element_at<float>(dora.B, o, 0);
    double squares = 0;
    for (std::int64_t begin = 0; begin < W.columns(); begin += kPiece) {
        const std::int64_t count = std::min(kPiece, W.columns() - begin);
        if (W.dtype() == DType::f32) {
            table.f32.from_f32(element_at<float>(W, o, begin), row.data(), count);
        } else {
            table.f32.from_bf16(static_cast<const std::uint16_t*>(element_at(W, o, begin)),
                                row.data(), count);
        }
        for (std::int64_t k = 0; k < dora.A.rows(); ++k)
            table.f32.add_product_to_f32(element_at(dora.A, k, begin), dora.scaling * b[k],
                                         row.data(), count);
        squares += table.sum_of_squares(row.data(), count);
    }
    const auto norm = static_cast<float>(std::sqrt(squares));
    dora.norm.data<float>()[o] = norm;
    dora.scale.data<float>()[o] = norm == 0 ? 0.0f : dora.magnitude.data<float>()[o] / norm;
}

}  // namespace

void dora_scale(Stream& stream, const DoraScale& dora) {
    constexpr const char* kName = "dora_scale";
    const std::int64_t out = dora.weight.rows();
    const std::int64_t in = dora.weight.columns();
    const std::int64_t r = dora.A.rows();
    check_compute_dtype(kName, dora.weight);
    check_operand(stream, kName, dora.weight);
    check_matrix(stream, kName, dora.A, r, in, DType::f32);
    check_matrix(stream, kName, dora.B, out, r, DType::f32);
    for (const Tensor* vector : {&dora.magnitude, &dora.scale, &dora.norm})
        check_vector(stream, kName, *vector, out, DType::f32);

    Cost cost;
    cost.flops = 2 * static_cast<double>(r + 1) * static_cast<double>(dora.weight.elements());
    cost.bytes_read = bytes_of({&dora.weight, &dora.A, &dora.B, &dora.magnitude});
    cost.bytes_written = bytes_of({&dora.scale, &dora.norm});
    const OpScope op(stream, kName, cost);
    if (op.dry() || out == 0) return;
    if (runs_on_cuda(stream)) {
        cuda::dora_kernels().scale(stream.queue(),
                                   {cuda_rows(dora.weight), cuda_rows(dora.A), cuda_rows(dora.B),
                                    dora.scaling, dora.magnitude.data<float>(),
                                    dora.scale.data<float>(), dora.norm.data<float>(), out, in, r},
                                   dora.weight.dtype());
        return;
    }
    const cpu::KernelTable& table = kernel_table(stream);
    parallel_for(out, rows_per_piece(in * (r + 1)), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t o = begin; o < end; ++o)
            make_scale(table, dora, o);
    });
}

void scale_columns(Stream& stream, const Tensor& x, const Tensor& factors, float offset,
                   const Tensor& bias, const Tensor& addend, const Tensor& y) {
    constexpr const char* kName = "scale_columns";
    const std::int64_t rows = x.rows();
    const std::int64_t columns = x.columns();
    check_compute_dtype(kName, x);
    check_operand(stream, kName, x);
    check_vector(stream, kName, factors, columns, DType::f32);
    check_matrix(stream, kName, y, rows, columns, x.dtype());
    if (bias) check_vector(stream, kName, bias, columns, x.dtype());
    if (addend) check_matrix(stream, kName, addend, rows, columns, x.dtype());

    Cost cost;
    cost.flops = static_cast<double>(x.elements()) *
                 (1 + (offset != 0 ? 1 : 0) + (bias ? 1 : 0) + (addend ? 1 : 0));
    cost.bytes_read = bytes_of({&x, &factors});
    if (bias) cost.bytes_read += bytes_of({&bias});
    if (addend) cost.bytes_read += bytes_of({&addend});
    cost.bytes_written = bytes_of({&y});
    const OpScope op(stream, kName, cost);
    if (op.dry() || rows == 0 || columns == 0) return;
    if (runs_on_cuda(stream)) {
        cuda::dora_kernels().scale_columns(
            stream.queue(),
            {cuda_rows(x), factors.data<float>(), offset, bias ? bias.raw() : nullptr,
             addend ? cuda_rows(addend) : cuda::Rows{}, cuda_rows(y), rows, columns},
            x.dtype());
        return;
    }
    const auto kernel = element_kernels(stream, x.dtype()).scale_columns;
    parallel_for(rows, rows_per_piece(columns), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
            kernel(element_at(x, row, 0), factors.data<float>(), offset,
                   bias ? bias.raw() : nullptr, addend ? element_at(addend, row, 0) : nullptr,
                   element_at(y, row, 0), columns);
    });
}

void dora_backward(Stream& stream, const Tensor& dy, const Tensor& z, const Tensor& scale,
                   const Tensor& norm, const Tensor& dz, const Tensor& magnitude_gradient) {
    constexpr const char* kName = "dora_backward";
    const std::int64_t rows = dy.rows();
    const std::int64_t columns = dy.columns();
    check_compute_dtype(kName, dy);
    check_operand(stream, kName, dy);
    check_matrix(stream, kName, z, rows, columns, dy.dtype());
    check_matrix(stream, kName, dz, rows, columns, dy.dtype());
    for (const Tensor* vector : {&scale, &norm, &magnitude_gradient})
        check_vector(stream, kName, *vector, columns, DType::f32);

    Cost cost;
    cost.flops = 3 * static_cast<double>(dy.elements());
    cost.bytes_read = bytes_of({&dy, &z, &scale, &norm, &magnitude_gradient});
    cost.bytes_written = bytes_of({&dz, &magnitude_gradient});
    const OpScope op(stream, kName, cost);
    const ScratchScope scope(stream.arena());
    const std::int64_t pieces =
        stream.is_for_cuda() ? cuda::dora_scratch_pieces(rows) : scratch_row_pieces(rows);
    const Tensor partials = stream.arena().scratch(DType::f32, {pieces, columns});
    if (op.dry() || rows == 0 || columns == 0) return;
    if (runs_on_cuda(stream)) {
        cuda::dora_kernels().backward(
            stream.queue(),
            {cuda_rows(dy), cuda_rows(z), scale.data<float>(), norm.data<float>(), cuda_rows(dz),
             partials.data<float>(), magnitude_gradient.data<float>(), rows, columns},
            dy.dtype());
        return;
    }
    const cpu::KernelTable& table = kernel_table(stream);
    const auto row_kernel = element_kernels(stream, dy.dtype()).dora_backward;
    const std::int64_t piece = rows_in_sum_piece(rows);
    parallel_for(rows, piece, [&](std::int64_t begin, std::int64_t end) {
        float* const sums = element_at<float>(partials, begin / piece, 0);
        table.f32.fill(0, sums, columns);
        for (std::int64_t row = begin; row < end; ++row)
            row_kernel(element_at(dy, row, 0), element_at(z, row, 0), scale.data<float>(),
                       element_at(dz, row, 0), sums, columns);
        const float* const n = norm.data<float>();
        for (std::int64_t column = 0; column < columns; ++column)
            sums[column] = n[column] == 0 ? 0.0f : sums[column] / n[column];
    });
    add_partials(table, partials.slice_rows(0, row_pieces(rows)), magnitude_gradient);
}

}  // namespace garam
