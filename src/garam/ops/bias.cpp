#include "garam/ops/bias.h"

#include "garam/kernels/cuda/bias.h"
#include "garam/ops/checks.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {

void bias_add(Stream& stream, const Tensor& bias, const Tensor& y) {
    constexpr const char* kName = "bias_add";
    const std::int64_t columns = y.columns();
    check_compute_dtype(kName, y);
    check_operand(stream, kName, y);
    check_vector(stream, kName, bias, columns, y.dtype());

    Cost cost;
    cost.flops = static_cast<double>(y.elements());
    cost.bytes_read = bytes_of({&bias, &y});
    cost.bytes_written = bytes_of({&y});
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        cuda::bias_kernels().add(stream.queue(), bias.raw(), cuda_rows(y), y.dtype(), y.rows(),
                                 columns);
        return;
    }
    const auto kernel = element_kernels(stream, y.dtype()).add;
    parallel_for(y.rows(), rows_per_piece(columns), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
            kernel(element_at(y, row, 0), bias.raw(), element_at(y, row, 0), columns);
    });
}

void bias_backward(Stream& stream, const Tensor& dy, const Tensor& bias_gradient) {
    constexpr const char* kName = "bias_backward";
    const std::int64_t rows = dy.rows();
    const std::int64_t columns = dy.columns();
    check_compute_dtype(kName, dy);
    check_operand(stream, kName, dy);
    check_vector(stream, kName, bias_gradient, columns, DType::f32);

    Cost cost;
    cost.flops = static_cast<double>(dy.elements());
    cost.bytes_read = bytes_of({&dy, &bias_gradient});
    cost.bytes_written = bytes_of({&bias_gradient});
    OpScope op(stream, kName, cost);
    const ScratchScope scope(stream.arena());
    const std::int64_t pieces =
        stream.is_for_cuda() ? cuda::bias_scratch_pieces(rows) : scratch_row_pieces(rows);
    const Tensor partials = stream.arena().scratch(DType::f32, {pieces, columns});
    if (op.dry() || rows == 0 || columns == 0) return;
    if (runs_on_cuda(stream)) {
        cuda::bias_kernels().backward(stream.queue(), cuda_rows(dy), dy.dtype(), rows, columns,
                                      partials.data<float>(), bias_gradient.data<float>());
        return;
    }
    const cpu::KernelTable& table = kernel_table(stream);
    const auto add_row = element_kernels(stream, dy.dtype()).add_to_f32;
    const std::int64_t piece = rows_in_sum_piece(rows);
    parallel_for(rows, piece, [&](std::int64_t begin, std::int64_t end) {
        float* const sums = element_at<float>(partials, begin / piece, 0);
        table.f32.fill(0, sums, columns);
        for (std::int64_t row = begin; row < end; ++row)
            add_row(element_at(dy, row, 0), sums, columns);
    });
    add_partials(table, partials.slice_rows(0, row_pieces(rows)), bias_gradient);
}

}  // namespace garam
