#include "garam/ops/elementwise.h"

#include <cstring>
#include <vector>

#include "garam/kernels/cuda/elementwise.h"
#include "garam/kernels/cuda/reduce.h"
#include "garam/ops/checks.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {
namespace {

void check_same_shape(const Stream& stream, const char* op, const Tensor& x, const Tensor& like) {
    check_matrix(stream, op, x, like.rows(), like.columns(), x.dtype());
}

bool is_float(DType dtype) {
    return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

// A card's kernel sees a dense matrix as one long row; `extent` is what it is to run over.
struct CardExtent {
    std::int64_t rows, columns;
};
CardExtent card_extent(const Tensor& like, bool dense) {
    if (dense) return {like.elements() > 0 ? 1 : 0, like.elements()};
    return {like.rows(), like.columns()};
}
cuda::Rows in_bytes(const Tensor& x) {
    return {x.raw(), x.pitch() * static_cast<std::int64_t>(size_of(x.dtype()))};
}
cuda::PickedRows picked_rows(const Tensor& x, const Tensor& rows, const Tensor& out) {
    cuda::PickedRows work;
    work.x = x.raw();
    work.x_pitch = in_bytes(x).pitch;
    work.x_rows = x.rows();
    work.rows = rows.data<std::int32_t>();
    work.out = out.raw();
    work.out_pitch = in_bytes(out).pitch;
    work.out_rows = out.rows();
    work.row_bytes = x.columns() * static_cast<std::int64_t>(size_of(x.dtype()));
    return work;
}

// Towards f16 only files and tests ask, so a plain loop serves.
void cast_run_to_f16(const Tensor& x, const Tensor& out, std::int64_t row, std::int64_t column,
                     std::int64_t count) {
    float16* const y = element_at<float16>(out, row, column);
    for (std::int64_t i = 0; i < count; ++i)
        y[i] = float16(x.dtype() == DType::f32
                           ? *element_at<float>(x, row, column + i)
                           : static_cast<float>(*element_at<bfloat16>(x, row, column + i)));
}

// Sum over pieces of x of kernel(piece), added in order: a cut by elements when x is dense, else
// by rows.
void add_reduction(Stream& stream, const char* name, double flops, const Tensor& x,
                   const Tensor& result,
                   double (*cpu::KernelTable::*kernel)(const float*, std::int64_t), bool squares) {
    check_operand(stream, name, x);
    check_matrix(stream, name, x, x.rows(), x.columns(), DType::f32);
    check_vector(stream, name, result, 1, DType::f32);
    const bool dense = x.is_dense();
    const std::int64_t count = dense ? x.elements() : x.rows();
    const std::int64_t grain = dense ? kPieceElements : rows_per_piece(x.columns());
    const CardExtent extent = card_extent(x, dense);
    const std::int64_t pieces = stream.is_for_cuda() ? cuda::sum_blocks(extent.rows, extent.columns)
                                                     : (count + grain - 1) / grain;

    Cost cost;
    cost.flops = flops * static_cast<double>(x.elements());
    cost.bytes_read = bytes_of({&x, &result});
    cost.bytes_written = bytes_of({&result});
    OpScope op(stream, name, cost);
    const ScratchScope scope(stream.arena());
    const Tensor memory =
        stream.arena().scratch(DType::u8, {pieces * static_cast<std::int64_t>(sizeof(double))});
    if (op.dry()) return;
    double* const sums = reinterpret_cast<double*>(memory.raw());
    if (runs_on_cuda(stream)) {
        cuda::reduce_kernels().add_sum(stream.queue(), cuda_rows(x), extent.rows, extent.columns,
                                       squares, sums, result.data<float>());
        return;
    }
    const auto sum_run = kernel_table(stream).*kernel;
    parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
        double sum = 0;
        if (dense) {
            sum = sum_run(x.data<float>() + begin, end - begin);
        } else {
            for (std::int64_t row = begin; row < end; ++row)
                sum += sum_run(element_at<float>(x, row, 0), x.columns());
        }
        sums[begin / grain] = sum;
    });
    double total = 0;
    for (std::int64_t piece = 0; piece < pieces; ++piece)
        total += sums[piece];
    float& out = *result.data<float>();
    out = static_cast<float>(static_cast<double>(out) + total);
}

}  // namespace

void cast(Stream& stream, const Tensor& x, const Tensor& out) {
    constexpr const char* kName = "cast";
    check_operand(stream, kName, x);
    check_same_shape(stream, kName, out, x);
    const bool copy = x.dtype() == out.dtype();
    GARAM_CHECK(copy || (is_float(x.dtype()) && is_float(out.dtype())),
                "cast: from " + std::string(name_of(x.dtype())) + " to " +
                    std::string(name_of(out.dtype())));
    Cost cost;
    cost.bytes_read = bytes_of({&x});
    cost.bytes_written = bytes_of({&out});
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        const CardExtent extent = card_extent(x, x.is_dense() && out.is_dense());
        const auto& card = cuda::elementwise_kernels();
        if (copy) {
            card.copy(stream.queue(), in_bytes(x), in_bytes(out), extent.rows,
                      extent.columns * static_cast<std::int64_t>(size_of(x.dtype())));
        } else {
            card.cast(stream.queue(), cuda_rows(x), x.dtype(), cuda_rows(out), out.dtype(),
                      extent.rows, extent.columns);
        }
        return;
    }
    const cpu::ElementKernels& kernels = element_kernels(stream, out.dtype());
    for_runs(x.is_dense() && out.is_dense(), x.rows(), x.columns(),
             [&](std::int64_t row, std::int64_t column, std::int64_t count) {
                 const void* from = element_at(x, row, column);
                 void* to = element_at(out, row, column);
                 if (copy) {
                     std::memcpy(to, from, static_cast<std::size_t>(count) * size_of(x.dtype()));
                 } else if (out.dtype() == DType::f16) {
                     cast_run_to_f16(x, out, row, column, count);
                 } else if (x.dtype() == DType::f32) {
                     kernels.from_f32(static_cast<const float*>(from), to, count);
                 } else if (x.dtype() == DType::bf16) {
                     kernels.from_bf16(static_cast<const std::uint16_t*>(from), to, count);
                 } else {
                     kernels.from_f16(static_cast<const std::uint16_t*>(from), to, count);
                 }
             });
}

void scale(Stream& stream, const Tensor& x, float factor, const Tensor& out) {
    constexpr const char* kName = "scale";
    check_operand(stream, kName, x);
    check_compute_dtype(kName, x);
    check_compute_dtype(kName, out);
    check_same_shape(stream, kName, out, x);
    const bool narrows = x.dtype() != out.dtype();
    GARAM_CHECK(!narrows || x.dtype() == DType::f32, "scale: from bf16 to f32");
    Cost cost;
    cost.flops = static_cast<double>(x.elements());
    cost.bytes_read = bytes_of({&x});
    cost.bytes_written = bytes_of({&out});
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        const CardExtent extent = card_extent(x, x.is_dense() && out.is_dense());
        cuda::elementwise_kernels().scale(stream.queue(), cuda_rows(x), x.dtype(), factor,
                                          cuda_rows(out), out.dtype(), extent.rows, extent.columns);
        return;
    }
    const cpu::ElementKernels& kernels = element_kernels(stream, out.dtype());
    for_runs(x.is_dense() && out.is_dense(), x.rows(), x.columns(),
             [&](std::int64_t row, std::int64_t column, std::int64_t count) {
                 const void* const from = element_at(x, row, column);
                 void* const to = element_at(out, row, column);
                 if (narrows)
                     kernels.scale(static_cast<const float*>(from), factor, to, count);
                 else
                     kernels.multiply(from, factor, to, count);
             });
}

void add(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& out) {
    constexpr const char* kName = "add";
    check_operand(stream, kName, a);
    check_compute_dtype(kName, a);
    check_matrix(stream, kName, b, a.rows(), a.columns(), a.dtype());
    check_matrix(stream, kName, out, a.rows(), a.columns(), a.dtype());
    Cost cost;
    cost.flops = static_cast<double>(a.elements());
    cost.bytes_read = bytes_of({&a, &b});
    cost.bytes_written = bytes_of({&out});
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        const CardExtent extent = card_extent(a, a.is_dense() && b.is_dense() && out.is_dense());
        cuda::elementwise_kernels().add(stream.queue(), cuda_rows(a), cuda_rows(b), cuda_rows(out),
                                        a.dtype(), extent.rows, extent.columns);
        return;
    }
    const auto kernel = element_kernels(stream, a.dtype()).add;
    for_runs(a.is_dense() && b.is_dense() && out.is_dense(), a.rows(), a.columns(),
             [&](std::int64_t row, std::int64_t column, std::int64_t count) {
                 kernel(element_at(a, row, column), element_at(b, row, column),
                        element_at(out, row, column), count);
             });
}

void cast_many(Stream& stream, std::span<const CastItem> items) {
    constexpr const char* kName = "cast_many";
    Cost cost;
    for (const CastItem& item : items) {
        check_vector(stream, kName, item.from, item.from.elements(), DType::f32);
        check_compute_dtype(kName, item.to);
        check_same_shape(stream, kName, item.to, item.from);
        cost.flops += static_cast<double>(item.from.elements());
        cost.bytes_read += bytes_of({&item.from});
        cost.bytes_written += bytes_of({&item.to});
    }
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        std::vector<cuda::CastMatrix> matrices;
        matrices.reserve(items.size());
        for (const CastItem& item : items) {
            cuda::CastMatrix& matrix = matrices.emplace_back();
            matrix.from = item.from.data<float>();
            matrix.to = item.to.raw();
            matrix.rows = item.from.rows();
            matrix.columns = item.from.columns();
            matrix.to_pitch = item.to.pitch();
            matrix.to_dtype = item.to.dtype();
            matrix.factor = item.factor;
        }
        cuda::elementwise_kernels().cast_many(stream.queue(), matrices.data(),
                                              static_cast<std::int64_t>(matrices.size()));
        return;
    }
    for (const CastItem& item : items) {
        const auto kernel = element_kernels(stream, item.to.dtype()).scale;
        for_runs(item.to.is_dense(), item.from.rows(), item.from.columns(),
                 [&](std::int64_t row, std::int64_t column, std::int64_t count) {
                     kernel(element_at<float>(item.from, row, column), item.factor,
                            element_at(item.to, row, column), count);
                 });
    }
}

void fill(Stream& stream, float value, const Tensor& out) {
    constexpr const char* kName = "fill";
    check_operand(stream, kName, out);
    check_compute_dtype(kName, out);
    Cost cost;
    cost.bytes_written = bytes_of({&out});
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        const CardExtent extent = card_extent(out, out.is_dense());
        cuda::elementwise_kernels().fill(stream.queue(), value, cuda_rows(out), out.dtype(),
                                         extent.rows, extent.columns);
        return;
    }
    const auto kernel = element_kernels(stream, out.dtype()).fill;
    for_runs(out.is_dense(), out.rows(), out.columns(),
             [&](std::int64_t row, std::int64_t column, std::int64_t count) {
                 kernel(value, element_at(out, row, column), count);
             });
}

void gather_rows(Stream& stream, const Tensor& x, const Tensor& rows, const Tensor& out) {
    constexpr const char* kName = "gather_rows";
    const std::int64_t count = rows.elements();
    check_operand(stream, kName, x);
    check_vector(stream, kName, rows, count, DType::i32);
    check_matrix(stream, kName, out, count, x.columns(), x.dtype());
    Cost cost;
    cost.bytes_read = bytes_of({&rows, &out});
    cost.bytes_written = bytes_of({&out});
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        cuda::elementwise_kernels().gather_rows(stream.queue(), picked_rows(x, rows, out));
        return;
    }
    const std::int32_t* const row = rows.data<std::int32_t>();
    const std::size_t bytes = static_cast<std::size_t>(x.columns()) * size_of(x.dtype());
    parallel_for(count, rows_per_piece(x.columns()), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            if (row[i] == -1) {
                std::memset(element_at(out, i, 0), 0, bytes);
                continue;
            }
            GARAM_CHECK(row[i] >= 0 && row[i] < x.rows(), "gather_rows: row out of range");
            std::memcpy(element_at(out, i, 0), element_at(x, row[i], 0), bytes);
        }
    });
}

void scatter_rows(Stream& stream, const Tensor& x, const Tensor& rows, const Tensor& out) {
    constexpr const char* kName = "scatter_rows";
    const std::int64_t listed = rows.elements();
    check_operand(stream, kName, out);
    check_vector(stream, kName, rows, listed, DType::i32);
    check_matrix(stream, kName, x, listed, out.columns(), out.dtype());
    Cost cost;
    cost.bytes_read = bytes_of({&rows, &x});
    cost.bytes_written = bytes_of({&out});
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        cuda::elementwise_kernels().scatter_rows(stream.queue(), picked_rows(x, rows, out));
        return;
    }
    const std::int32_t* const row = rows.data<std::int32_t>();
    const std::size_t bytes = static_cast<std::size_t>(out.columns()) * size_of(out.dtype());
    std::int64_t count = listed;
    while (count > 0 && row[count - 1] == -1)
        --count;
    for (std::int64_t i = 0; i < count; ++i)
        GARAM_CHECK(row[i] >= 0 && row[i] < out.rows() && (i == 0 || row[i] > row[i - 1]),
                    "scatter_rows: rows must ascend within the output");
    parallel_for(out.rows(), rows_per_piece(out.columns()),
                 [&](std::int64_t begin, std::int64_t end) {
                     std::int64_t i = std::lower_bound(row, row + count, begin) - row;
                     for (std::int64_t r = begin; r < end; ++r) {
                         if (i < count && row[i] == r) {
                             std::memcpy(element_at(out, r, 0), element_at(x, i, 0), bytes);
                             ++i;
                         } else {
                             std::memset(element_at(out, r, 0), 0, bytes);
                         }
                     }
                 });
}

void store_rows(Stream& stream, const Tensor& x, const Tensor& rows, const Tensor& out) {
    constexpr const char* kName = "store_rows";
    const std::int64_t count = rows.elements();
    check_operand(stream, kName, out);
    check_vector(stream, kName, rows, count, DType::i32);
    check_matrix(stream, kName, x, count, out.columns(), out.dtype());
    Cost cost;
    cost.bytes_read = bytes_of({&rows, &x});
    cost.bytes_written = bytes_of({&x});
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        cuda::elementwise_kernels().store_rows(stream.queue(), picked_rows(x, rows, out));
        return;
    }
    const std::int32_t* const row = rows.data<std::int32_t>();
    const std::size_t bytes = static_cast<std::size_t>(x.columns()) * size_of(x.dtype());
    parallel_for(count, rows_per_piece(x.columns()), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            if (row[i] == -1) continue;
            GARAM_CHECK(row[i] >= 0 && row[i] < out.rows(), "store_rows: row out of range");
            std::memcpy(element_at(out, row[i], 0), element_at(x, i, 0), bytes);
        }
    });
}

void add_sum(Stream& stream, const Tensor& x, const Tensor& result) {
    add_reduction(stream, "add_sum", 1, x, result, &cpu::KernelTable::sum, false);
}

void add_sum_of_squares(Stream& stream, const Tensor& x, const Tensor& result) {
    add_reduction(stream, "add_sum_of_squares", 2, x, result, &cpu::KernelTable::sum_of_squares,
                  true);
}

}  // namespace garam
