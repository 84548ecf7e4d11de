#include "garam/ops/rms_norm.h"

#include "garam/kernels/cuda/norm.h"
#include "garam/ops/checks.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {
namespace {

// What is normalised: of each of `tokens` rows `heads` pieces of `hidden` entries.
struct Pieces {
    std::int64_t tokens, heads, hidden;
    std::int64_t rows() const { return tokens * heads; }
};
Pieces pieces_of(const char* name, const Tensor& x, const RmsNormOptions& options) {
    const std::int64_t width = x.columns();
    const std::int64_t hidden = options.head_dim > 0 ? options.head_dim : width;
    GARAM_CHECK(hidden == width || width % hidden == 0,
                std::string(name) + ": " + std::to_string(width) +
                    " columns are no whole heads of " + std::to_string(hidden));
    return {x.rows(), hidden == width ? 1 : width / hidden, hidden};
}

constexpr std::int64_t kMostRows = 0x7fffffff;  // of a launch

void check_launch_size(const char* name, const Pieces& pieces) {
    GARAM_CHECK(pieces.rows() <= kMostRows,
                std::string(name) + ": more rows than one launch covers");
}

// Calls body(token, count) for the pieces of tokens [begin, end): `count` of them, from the first of
// `token` on; pieces that are rows all at once.
template <typename Body>
void for_pieces(const Pieces& pieces, std::int64_t begin, std::int64_t end, const Body& body) {
    if (pieces.heads == 1) {
        body(begin, end - begin);
        return;
    }
    for (std::int64_t token = begin; token < end; ++token)
        body(token, pieces.heads);
}

cpu::Rows cpu_pieces(const Pieces& pieces, const Tensor& x, std::int64_t token) {
    cpu::Rows rows = rows_of(x, token);
    if (pieces.heads > 1) rows.pitch = pieces.hidden;
    return rows;
}

}  // namespace

void rms_norm_forward(Stream& stream, const Tensor& x, const Tensor& weight, float eps,
                      const Tensor& y, const Tensor& rstd, const RmsNormOptions& options) {
    constexpr const char* kName = "rms_norm_forward";
    const Pieces pieces = pieces_of(kName, x, options);
    const std::int64_t rows = pieces.rows();
    check_compute_dtype(kName, x);
    check_operand(stream, kName, x);
    check_vector(stream, kName, weight, pieces.hidden, x.dtype());
    check_matrix(stream, kName, y, x.rows(), x.columns(), x.dtype());
    if (rstd) check_vector(stream, kName, rstd, rows, DType::f32);

    Cost cost;
    cost.flops = 4.0 * static_cast<double>(x.elements());
    cost.bytes_read = bytes_of({&x, &weight});
    cost.bytes_written = bytes_of({&y}) + (rstd ? bytes_of({&rstd}) : 0.0);
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        check_launch_size(kName, pieces);
        cuda::NormForward work;
        work.dtype = x.dtype();
        work.x = cuda_rows(x);
        work.y = cuda_rows(y);
        work.weight = {weight.raw(), options.weight_offset, options.rounds_once};
        work.eps = eps;
        if (rstd) work.rstd = rstd.data<float>();
        work.rows = rows;
        work.heads = static_cast<int>(pieces.heads);
        work.hidden = static_cast<int>(pieces.hidden);
        cuda::norm_kernels().forward(stream.queue(), work);
        return;
    }
    const auto kernel = element_kernels(stream, x.dtype()).rms_norm;
    const cpu::NormWeight factor{weight.raw(), options.weight_offset, options.rounds_once};
    parallel_for(x.rows(), rows_per_piece(x.columns()), [&](std::int64_t begin, std::int64_t end) {
        for_pieces(pieces, begin, end, [&](std::int64_t token, std::int64_t count) {
            kernel(cpu_pieces(pieces, x, token), factor, eps, cpu_pieces(pieces, y, token),
                   rstd ? rstd.data<float>() + token * pieces.heads : nullptr, count,
                   pieces.hidden);
        });
    });
}

void rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, const Tensor& dx, bool accumulate_dx,
                       const Tensor& weight_gradient, const RmsNormOptions& options) {
    constexpr const char* kName = "rms_norm_backward";
    const Pieces pieces = pieces_of(kName, x, options);
    const std::int64_t rows = pieces.rows();
    const std::int64_t hidden = pieces.hidden;
    const bool learns = static_cast<bool>(weight_gradient);
    check_compute_dtype(kName, x);
    check_operand(stream, kName, x);
    check_matrix(stream, kName, dy, x.rows(), x.columns(), x.dtype());
    check_vector(stream, kName, weight, hidden, x.dtype());
    check_vector(stream, kName, rstd, rows, DType::f32);
    check_matrix(stream, kName, dx, x.rows(), x.columns(), x.dtype());
    if (learns) check_vector(stream, kName, weight_gradient, hidden, DType::f32);

    Cost cost;
    cost.flops = (6.0 + (accumulate_dx ? 1.0 : 0.0) + (learns ? 3.0 : 0.0)) *
                 static_cast<double>(x.elements());
    cost.bytes_read = bytes_of({&dy, &x, &weight, &rstd}) +
                      (accumulate_dx ? bytes_of({&dx}) : 0.0) +
                      (learns ? bytes_of({&weight_gradient}) : 0.0);
    cost.bytes_written = bytes_of({&dx}) + (learns ? bytes_of({&weight_gradient}) : 0.0);
    OpScope op(stream, kName, cost);
    const ScratchScope scope(stream.arena());
    const std::int64_t sums =
        stream.is_for_cuda() ? cuda::norm_scratch_pieces(rows) : scratch_row_pieces(x.rows());
    Tensor partials;
    if (learns) partials = stream.arena().scratch(DType::f32, {sums, hidden});
    if (op.dry() || x.elements() == 0) return;
    if (runs_on_cuda(stream)) {
        check_launch_size(kName, pieces);
        cuda::NormBackward work;
        work.dtype = x.dtype();
        work.dy = cuda_rows(dy);
        work.x = cuda_rows(x);
        work.dx = cuda_rows(dx);
        work.weight = {weight.raw(), options.weight_offset, options.rounds_once};
        work.rstd = rstd.data<float>();
        work.accumulate = accumulate_dx;
        work.rows = rows;
        work.heads = static_cast<int>(pieces.heads);
        work.hidden = static_cast<int>(pieces.hidden);
        if (learns) {
            work.partials = partials.data<float>();
            work.weight_gradient = weight_gradient.data<float>();
        }
        cuda::norm_kernels().backward(stream.queue(), work);
        return;
    }

    const cpu::KernelTable& table = kernel_table(stream);
    const auto kernel = element_kernels(stream, x.dtype()).rms_norm_backward;
    const cpu::NormWeight factor{weight.raw(), options.weight_offset, options.rounds_once};
    const std::int64_t piece = learns ? rows_in_sum_piece(x.rows()) : rows_per_piece(x.columns());
    parallel_for(x.rows(), piece, [&](std::int64_t begin, std::int64_t end) {
        float* sums_of_piece = nullptr;
        if (learns) {
            sums_of_piece = element_at<float>(partials, begin / piece, 0);
            table.f32.fill(0, sums_of_piece, hidden);
        }
        for_pieces(pieces, begin, end, [&](std::int64_t token, std::int64_t count) {
            kernel(cpu_pieces(pieces, dy, token), cpu_pieces(pieces, x, token), factor,
                   rstd.data<float>() + token * pieces.heads, cpu_pieces(pieces, dx, token),
                   accumulate_dx, sums_of_piece, count, hidden);
        });
    });
    if (learns) add_partials(table, partials.slice_rows(0, row_pieces(x.rows())), weight_gradient);
}

}  // namespace garam
