// Between the ops and the CPU's kernels: which table, which pointers, which cut of the work.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "garam/core/parallel.h"
#include "garam/kernels/cpu/kernel_table.h"
#include "garam/runtime/stream.h"

namespace garam {

// The kernels for the instruction set that the stream's device stands for.
const cpu::KernelTable& kernel_table(const Stream& stream);
const cpu::ElementKernels& element_kernels(const Stream& stream, DType dtype);

inline cpu::Rows rows_of(const Tensor& x, std::int64_t row = 0, std::int64_t column = 0) {
    return {static_cast<char*>(x.raw()) +
                (row * x.pitch() + column) * static_cast<std::int64_t>(size_of(x.dtype())),
            x.pitch()};
}
inline void* element_at(const Tensor& x, std::int64_t row, std::int64_t column) {
    return rows_of(x, row, column).data;
}
template <typename T>
T* element_at(const Tensor& x, std::int64_t row, std::int64_t column) {
    return x.data<T>() + row * x.pitch() + column;
}

// Elements in a piece of memory-bound work: long enough to outweigh waking a thread, short enough
// to share out evenly.
constexpr std::int64_t kPieceElements = 32768;

inline std::int64_t rows_per_piece(std::int64_t columns) {
    return std::max<std::int64_t>(1, kPieceElements / std::max<std::int64_t>(columns, 1));
}

// Calls body(row, column, count) for contiguous runs that cover [rows, columns]; dense operands
// count as one long row.
template <typename Body>
void for_runs(bool dense, std::int64_t rows, std::int64_t columns, const Body& body) {
    if (dense) {
        parallel_for(rows * columns, kPieceElements, [&](std::int64_t begin, std::int64_t end) {
            body(std::int64_t{0}, begin, end - begin);
        });
        return;
    }
    if (columns == 0) return;
    parallel_for(rows, rows_per_piece(columns), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
            body(row, std::int64_t{0}, columns);
    });
}

// Column sums over rows in a fixed order: pieces of rows each sum into a vector of their own
// (`partials` f32 [row_pieces(rows), columns]), which are added in the order of the rows. The cut
// depends on the number of rows only.
constexpr std::int64_t kFewestRowsInPiece = 16;
constexpr std::int64_t kMostRowPieces = 64;
inline std::int64_t rows_in_sum_piece(std::int64_t rows) {
    return std::max(kFewestRowsInPiece, (rows + kMostRowPieces - 1) / kMostRowPieces);
}
inline std::int64_t row_pieces(std::int64_t rows) {
    const std::int64_t piece = rows_in_sum_piece(rows);
    return (rows + piece - 1) / piece;
}
// Pieces that scratch is taken for: no fewer than there are, and no fewer for more rows, so that a
// plan for the largest batch covers the others.
inline std::int64_t scratch_row_pieces(std::int64_t rows) {
    return std::min((rows + kFewestRowsInPiece - 1) / kFewestRowsInPiece, kMostRowPieces);
}
// sum += partials, row after row.
void add_partials(const cpu::KernelTable& kernels, const Tensor& partials, const Tensor& sum);

// Shares `items` among `workers` that each own scratch: body(worker, item). Which worker gets which
// item varies; the items must not depend on it.
void for_items(std::int64_t workers, std::int64_t items,
               const std::function<void(std::int64_t worker, std::int64_t item)>& body);
// Workers for so many items on this device (also of a dry one, whose plan counts their scratch).
inline std::int64_t workers_for(const Stream& stream, std::int64_t items) {
    return std::min<std::int64_t>(items, std::max(stream.device().profile().threads, 1));
}

}  // namespace garam
