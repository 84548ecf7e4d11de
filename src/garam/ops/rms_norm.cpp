#include "garam/ops/rms_norm.h"

#include "garam/kernels/cuda/norm.h"
#include "garam/ops/checks.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {

void rms_norm_forward(Stream& stream, const Tensor& x, const Tensor& weight, float eps,
                      const Tensor& y, const Tensor& rstd) {
    constexpr const char* kName = "rms_norm_forward";
    const std::int64_t rows = x.rows();
    const std::int64_t hidden = x.columns();
    check_compute_dtype(kName, x);
    check_operand(stream, kName, x);
    check_vector(stream, kName, weight, hidden, x.dtype());
    check_matrix(stream, kName, y, rows, hidden, x.dtype());
    if (rstd) check_vector(stream, kName, rstd, rows, DType::f32);

    Cost cost;
    cost.flops = 4.0 * static_cast<double>(rows) * static_cast<double>(hidden);
    cost.bytes_read = bytes_of({&x, &weight});
    cost.bytes_written = bytes_of({&y}) + (rstd ? bytes_of({&rstd}) : 0.0);
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        cuda::NormForward work;
        work.dtype = x.dtype();
        work.x = cuda_rows(x);
        work.y = cuda_rows(y);
        work.weight = weight.raw();
        work.eps = eps;
        if (rstd) work.rstd = rstd.data<float>();
        work.rows = rows;
        work.hidden = static_cast<int>(hidden);
        cuda::norm_kernels().forward(stream.queue(), work);
        return;
    }
    const auto kernel = element_kernels(stream, x.dtype()).rms_norm;
    parallel_for(rows, rows_per_piece(hidden), [&](std::int64_t begin, std::int64_t end) {
        kernel(rows_of(x, begin), weight.raw(), eps, rows_of(y, begin),
               rstd ? rstd.data<float>() + begin : nullptr, end - begin, hidden);
    });
}

void rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, const Tensor& dx, bool accumulate_dx,
                       const Tensor& weight_gradient) {
    constexpr const char* kName = "rms_norm_backward";
    const std::int64_t rows = x.rows();
    const std::int64_t hidden = x.columns();
    const bool learns = static_cast<bool>(weight_gradient);
    check_compute_dtype(kName, x);
    check_operand(stream, kName, x);
    check_matrix(stream, kName, dy, rows, hidden, x.dtype());
    check_vector(stream, kName, weight, hidden, x.dtype());
    check_vector(stream, kName, rstd, rows, DType::f32);
    check_matrix(stream, kName, dx, rows, hidden, x.dtype());
    if (learns) check_vector(stream, kName, weight_gradient, hidden, DType::f32);

    Cost cost;
    cost.flops = (6.0 + (accumulate_dx ? 1.0 : 0.0) + (learns ? 3.0 : 0.0)) *
                 static_cast<double>(rows) * static_cast<double>(hidden);
    cost.bytes_read = bytes_of({&dy, &x, &weight, &rstd}) +
                      (accumulate_dx ? bytes_of({&dx}) : 0.0) +
                      (learns ? bytes_of({&weight_gradient}) : 0.0);
    cost.bytes_written = bytes_of({&dx}) + (learns ? bytes_of({&weight_gradient}) : 0.0);
    OpScope op(stream, kName, cost);
    const ScratchScope scope(stream.arena());
    const std::int64_t pieces =
        stream.is_for_cuda() ? cuda::norm_scratch_pieces(rows) : scratch_row_pieces(rows);
    Tensor partials;
    if (learns) partials = stream.arena().scratch(DType::f32, {pieces, hidden});
    if (op.dry() || rows == 0 || hidden == 0) return;
    if (runs_on_cuda(stream)) {
        cuda::NormBackward work;
        work.dtype = x.dtype();
        work.dy = cuda_rows(dy);
        work.x = cuda_rows(x);
        work.dx = cuda_rows(dx);
        work.weight = weight.raw();
        work.rstd = rstd.data<float>();
        work.accumulate = accumulate_dx;
        work.rows = rows;
        work.hidden = static_cast<int>(hidden);
        if (learns) {
            work.partials = partials.data<float>();
            work.weight_gradient = weight_gradient.data<float>();
        }
        cuda::norm_kernels().backward(stream.queue(), work);
        return;
    }

    const cpu::KernelTable& table = kernel_table(stream);
    const auto kernel = element_kernels(stream, x.dtype()).rms_norm_backward;
    const std::int64_t piece = learns ? rows_in_sum_piece(rows) : rows_per_piece(hidden);
    parallel_for(rows, piece, [&](std::int64_t begin, std::int64_t end) {
        float* sums = nullptr;
        if (learns) {
            sums = element_at<float>(partials, begin / piece, 0);
            table.f32.fill(0, sums, hidden);
        }
        kernel(rows_of(dy, begin), rows_of(x, begin), weight.raw(), rstd.data<float>() + begin,
               rows_of(dx, begin), accumulate_dx, sums, end - begin, hidden);
    });
    if (learns) add_partials(table, partials.slice_rows(0, row_pieces(rows)), weight_gradient);
}

}  // namespace garam
