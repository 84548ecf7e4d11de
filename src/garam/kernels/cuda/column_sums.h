// Sums over the rows of a matrix on a card in a fixed order: pieces of rows give partial sums, f32
// [pieces, columns] and dense, which are then added. Not a function of the card, so that the bits
// are not either.
#pragma once

#include <algorithm>

#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

constexpr std::int64_t rows_in_piece(std::int64_t rows, std::int64_t fewest, std::int64_t pieces) {
    return std::max(fewest, (rows + pieces - 1) / pieces);
}
constexpr std::int64_t pieces_of(std::int64_t rows, std::int64_t rows_a_piece) {
    return (rows + rows_a_piece - 1) / rows_a_piece;
}
// Pieces that scratch is taken for: no fewer than there are, and no fewer for more rows, so that a
// plan for the largest batch covers the others.
constexpr std::int64_t most_pieces_of(std::int64_t rows, std::int64_t fewest, std::int64_t pieces) {
    return std::min(pieces_of(rows, fewest), pieces);
}

// sum[columns] += the rows of partials.
void add_piece_sums(StreamHandle stream, const float* partials, std::int64_t pieces,
                    std::int64_t columns, float* sum);

}  // namespace garam::cuda
