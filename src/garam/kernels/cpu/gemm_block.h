// The matrix product of one block of c, for every element type and instruction set.
//
// Both operands are packed into 32-bit words, one word a step of k: an fp32 value, or a pair of bf16
// where the processor multiplies pairs. The layout follows Goto and van de Geijn (Anatomy of
// High-Performance Matrix Multiplication, 2008), with a standing in the first-level cache and b
// streaming from the second:
//
//   for blocks of k (at most kDepth steps)
//     pack all columns: panels of 2 * kLanes columns, in each one row of words a step
//     for tiles of at most kTileRows rows
//       pack the rows of a, unless they serve as they lie
//       for panels: the tile's sums in registers over the block
//
// Few rows of an a that lies [m, k] times a b that lies [n, k] pack no columns (gemm_stream.h).
//
// A coded b is decoded for a panel, or for some steps of all columns, at a time into a part of the scratch that
// stays in the caches; from there it goes the same ways.
//
// An element's value is ((s1 + s2) + s3) …, s_i being the i-th block's sum in the order of k, each
// from zero; the blocks' limits depend on k only. So it has the same bits wherever the element lies
// in its block and however c is cut into blocks. What pads a panel never meets a stored element.
#pragma once

#include "garam/kernels/cpu/gemm_stream.h"

GARAM_KERNELS_BEGIN

constexpr int64_t steps_in_block(int64_t steps) {
    const int64_t blocks = (steps + kDepth - 1) / kDepth;
    return (steps + blocks - 1) / blocks;
}
constexpr int64_t padded(int64_t columns) {
    return (columns + kLanes - 1) / kLanes * kLanes;
}
constexpr int64_t aligned(int64_t words) {
    return (words + 15) / 16 * 16;
}
constexpr int64_t packed_tiles(int64_t m) {
    const int64_t tiles = (m + kTileRows - 1) / kTileRows;
    return tiles < kTilesAtOnce ? tiles : kTilesAtOnce;
}

// Of a coded b what is decoded at once: the columns of a panel over a block of k where b lies [n, k], else all
// columns over so many steps. Rows end on an odd number of cache lines.
constexpr int64_t kMostColumns = 288;
constexpr int64_t kDecodedSteps = 16;
template <class Steps>
constexpr int64_t decoded_pitch(int64_t elements) {
    constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(typename Steps::Element));
    const int64_t lines = (elements + kLine - 1) / kLine;
    return (lines + 1 - lines % 2) * kLine;
}
template <class Steps>
constexpr int64_t decoded_bytes() {
    constexpr int64_t kPanelElements = kPanel * decoded_pitch<Steps>(kDepth * Steps::kElements);
    constexpr int64_t kStepElements =
        kDecodedSteps * Steps::kElements * decoded_pitch<Steps>(kMostColumns);
    return (kPanelElements > kStepElements ? kPanelElements : kStepElements) *
           static_cast<int64_t>(sizeof(typename Steps::Element));
}

template <class Steps>
int64_t matmul_scratch(int64_t m, int64_t n, int64_t elements, int64_t k) {
    const int64_t steps = (k + Steps::kElements - 1) / Steps::kElements;
    const int64_t depth = steps < kDepth ? steps : kDepth;
    const int64_t sums = steps > kDepth ? elements : 0;
    return 4 * (aligned(depth * padded(n)) + packed_tiles(m) * kTileWords + sums);
}

template <class Steps>
class BlockProduct {
  public:
    BlockProduct(const MatmulBlock& block, void* scratch)
        : block_(block),
          steps_((block.k + Steps::kElements - 1) / Steps::kElements),
          depth_(steps_in_block(steps_)),
          tiles_((block.m + kTileRows - 1) / kTileRows),
          decoded_(static_cast<Element*>(scratch)),
          packed_columns_(static_cast<uint32_t*>(scratch) +
                          (block.coded != nullptr ? decoded_bytes<Steps>() / 4 : 0)),
          packed_rows_(packed_columns_ + aligned(depth_ * padded(block.n))),
          sums_(reinterpret_cast<float*>(packed_rows_ + packed_tiles(block.m) * kTileWords)) {
        // An operand serves as it lies where its elements are words and the last word is whole. But
        // rows that are apart by whole pages meet in the same sets of the first-level cache.
        constexpr bool kWords = Steps::kElements * sizeof(Element) == sizeof(uint32_t);
        const auto apart = [](int64_t pitch) {
            return pitch * static_cast<int64_t>(sizeof(Element)) % 4096 != 0;
        };
        rows_in_place_ =
            kWords && !block.transpose_a && block.k % Steps::kElements == 0 && apart(block.a.pitch);
        // Columns read in place lie on many pages: no gain once tiles enough share a packed copy.
        columns_in_place_ = kWords && Steps::kElements == 1 && !block.transpose_b &&
                            block.coded == nullptr && block.n % kPanel == 0 && tiles_ <= 2 &&
                            apart(block.b.pitch);
        out_.sums_pitch = padded(block.n);
        out_.c_pitch = block.c.pitch;
        out_.transpose_c = block.transpose_c;
        out_.bf16 = block.c_is_bf16;
        out_.accumulate = block.accumulate;
        out_.alpha = block.alpha;
    }

    void run() {
        for (int64_t first = 0; first < steps_; first += depth_) {
            part_ = {first, steps_ - first < depth_ ? steps_ - first : depth_, block_.k};
            out_.first = first == 0;
            out_.last = first + part_.steps == steps_;
            if (block_.transpose_b && !block_.transpose_a && block_.m <= kStreamRows) {
                take_rows(0);
                stream_columns();
                continue;
            }
            take_columns();
            for (int64_t tile = 0; tile < tiles_; ++tile) {
                take_rows(tile);
                multiply_row_of_tiles(first_row(tile), first_row(tile + 1) - first_row(tile));
            }
        }
    }

  private:
    using Element = typename Steps::Element;

    // Tiles of nearly the same height: one of few rows would leave the multipliers waiting.
    int64_t first_row(int64_t tile) const { return block_.m * tile / tiles_; }

    void take_columns() {
        columns_ = packed_columns_;
        in_.b_step = kPanel;
        in_.b_panel = kPanel * part_.steps;
        if (columns_in_place_) {
            columns_ = static_cast<uint32_t*>(block_.b.data) + part_.first * block_.b.pitch;
            in_.b_step = block_.b.pitch;
            in_.b_panel = kPanel;
        } else if (block_.coded != nullptr) {
            block_.transpose_b ? decode_transposed_columns() : decode_columns();
        } else if (block_.transpose_b) {
            pack_transposed_columns<Steps>(block_.b, part_, block_.n, packed_columns_);
        } else {
            pack_columns<Steps>(block_.b, part_, block_.n, 0, part_.steps, packed_columns_);
        }
        in_.steps = part_.steps;
    }

    // The columns of a panel over the block of k in hand, as rows of a matrix of their own.
    Rows decode_panel(int64_t column) {
        const int64_t columns = block_.n - column < kPanel ? block_.n - column : kPanel;
        const int64_t k = decoded_depth();
        const int64_t pitch = decoded_pitch<Steps>(k);
        decode_rows(block_, column, columns, part_.first * Steps::kElements, k, decoded_, pitch);
        return {decoded_, pitch};
    }
    // Elements of the block of k in hand.
    int64_t decoded_depth() const {
        const int64_t first = part_.first * Steps::kElements;
        const int64_t all = part_.steps * Steps::kElements;
        return block_.k - first < all ? block_.k - first : all;
    }

    void decode_transposed_columns() {
        const Depth depth{0, part_.steps, decoded_depth()};
        for (int64_t column = 0; column < block_.n; column += kPanel) {
            const int64_t left = block_.n - column;
            pack_transposed_columns<Steps>(decode_panel(column), depth,
                                           left < kPanel ? left : kPanel,
                                           packed_columns_ + column * part_.steps);
        }
    }

    void decode_columns() {
        const int64_t pitch = decoded_pitch<Steps>(block_.n);
        for (int64_t step = 0; step < part_.steps; step += kDecodedSteps) {
            const int64_t steps =
                part_.steps - step < kDecodedSteps ? part_.steps - step : kDecodedSteps;
            const int64_t row = (part_.first + step) * Steps::kElements;
            const int64_t all = steps * Steps::kElements;
            const int64_t rows = block_.k - row < all ? block_.k - row : all;
            decode_rows(block_, row, rows, 0, block_.n, decoded_, pitch);
            pack_columns<Steps>({decoded_, pitch}, {0, steps, rows}, block_.n, step, part_.steps,
                                packed_columns_);
        }
    }

    void take_rows(int64_t tile) {
        const int64_t row = first_row(tile);
        const Rows rows{static_cast<Element*>(block_.a.data) + row * block_.a.pitch,
                        block_.a.pitch};
        in_.a = reinterpret_cast<const char*>(packed_rows_);
        in_.a_row = 4 * kRowPitch;
        in_.a_step = 4;
        if (rows_in_place_) {
            in_.a = static_cast<const char*>(rows.data) + part_.first * 4;
            in_.a_row = rows.pitch * static_cast<int64_t>(sizeof(Element));
        } else if (block_.transpose_a) {
            const int64_t place = tile % kTilesAtOnce;
            if (place == 0) {
                const int64_t left = tiles_ - tile;
                pack_transposed_rows<Steps>(
                    block_.a, part_, block_.m, left < kTilesAtOnce ? left : kTilesAtOnce,
                    [&](int64_t next) { return first_row(tile + next); }, packed_rows_);
            }
            in_.a += 4 * place * kTileWords;
            in_.a_row = 4;
            in_.a_step = 4 * kLanes;
        } else {
            pack_rows<Steps>(rows, part_, first_row(tile + 1) - row, packed_rows_);
        }
    }

    void stream_columns() {
        for (int64_t column = 0; column < block_.n; column += kPanel) {
            set_output(0, column);
            const int vectors = out_.columns > kLanes ? 2 : 1;
            const StreamFunction multiply = kStreamFunctions<Steps>.of[block_.m][vectors];
            if (block_.coded != nullptr) {
                multiply(in_, decode_panel(column), {0, part_.steps, decoded_depth()}, out_);
                continue;
            }
            const Rows b{static_cast<Element*>(block_.b.data) + column * block_.b.pitch,
                         block_.b.pitch};
            multiply(in_, b, part_, out_);
        }
    }

    void set_output(int64_t row, int64_t column) {
        const int64_t at =
            block_.transpose_c ? column * out_.c_pitch + row : row * out_.c_pitch + column;
        out_.c = static_cast<char*>(block_.c.data) + at * (block_.c_is_bf16 ? 2 : 4);
        out_.sums = sums_ + row * out_.sums_pitch + column;
        out_.columns = block_.n - column;
    }

    void multiply_row_of_tiles(int64_t row, int64_t height) {
        TileInput in = in_;
        int64_t width = 0;
        for (int64_t column = 0; column < block_.n; column += width) {
            set_output(row, column);
            in.b = columns_ + column / kPanel * in.b_panel;
            width = kPanel;
            TileFunction multiply = kTileFunctions<Steps>.of[height][2];
            if (out_.columns <= kLanes) {
                multiply = kTileFunctions<Steps>.of[height][1];
                in.b_step = kLanes;
            } else if (height <= kLowTileRows && out_.columns >= kLowTilePanels * kPanel) {
                multiply = kTileFunctions<Steps>.low[height];
                width = kLowTilePanels * kPanel;
            }
            multiply(in, out_);
        }
    }

    const MatmulBlock& block_;
    const int64_t steps_, depth_;  // of k in all, of a block of k
    const int64_t tiles_;
    Element* const decoded_;
    uint32_t* const packed_columns_;
    uint32_t* const packed_rows_;
    float* const sums_;
    bool rows_in_place_, columns_in_place_;
    Depth part_{};  // the block of k in hand
    const uint32_t* columns_ = nullptr;
    TileInput in_{};
    TileOutput out_{};
};

template <class Steps>
void matmul_block(const MatmulBlock& block, void* scratch) {
    BlockProduct<Steps>(block, scratch).run();
}

template <class Steps>
constexpr MatmulKernel kMatmulKernel{matmul_block<Steps>,
                                     matmul_scratch<Steps>,
                                     decoded_bytes<Steps>(),
                                     {512, kMostColumns, 512 * 144, 10, 0.1, 0.5}};

GARAM_KERNELS_END
