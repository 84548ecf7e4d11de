// The matrix product of bf16 on processors that multiply tiles of it (AMX).
//
// A tile product takes 16 rows of a, 32 steps of k and 16 columns of b. Columns of b are packed as
// gemm_block.h packs them, one word (a pair of bf16) a step and column, in panels of two tiles; rows
// of a are read as they lie. Four tiles of sums stay in registers over a block of k:
//
//   for blocks of k (at most kDepth elements)
//     pack all columns
//     for rows, two tiles at once: their part of a stays in the first-level cache
//       for panels: 2 x 2 tiles of sums over the block
//
// Few rows of an a that lies [m, k] times a b that lies [n, k], as in decoding, exchange the operands
// instead: then the rows of b are read as they lie, once, and the few rows of a are what is packed.
//
// A coded b is decoded for a panel, or for a step of all columns, or for the rows of b that a tile reads, at a time
// into a part of the scratch that stays in the caches; from there it goes the same ways.
//
// An element's value is the chain of tile products in the order of k, 32 elements each, from zero:
// between blocks of k the sums are kept as they are. So it has the same bits wherever the element
// lies, however c is cut into blocks, and with the operands exchanged.
#include "garam/kernels/cpu/amx_tiles.h"

GARAM_KERNELS_BEGIN

constexpr int64_t kBlockDepth = 512;  // a's two tiles of rows take 32 KB
constexpr int64_t kFewRows = 16;      // that exchange the operands
// An odd number of cache lines keeps the packed rows of a apart in the first-level cache.
constexpr int64_t kPackedRow = kBlockDepth * 2 + 64;

// Of a coded b what is decoded at once: a panel's columns over a block of k, or kTileDepth steps of all columns.
// Rows end on an odd number of cache lines.
constexpr int64_t kMostColumns = 576;
constexpr int64_t kDecodedRow = kBlockDepth + 32;
constexpr int64_t kDecodedColumns = kMostColumns + 32;
constexpr int64_t kDecodedBytes =
    2 * (kPanelWidth * kDecodedRow > kTileDepth * kDecodedColumns ? kPanelWidth * kDecodedRow
                                                                  : kTileDepth * kDecodedColumns);

class TiledProduct {
  public:
    TiledProduct(const MatmulBlock& block, void* scratch)
        : block_(block),
          a_(static_cast<const Bf16*>(block.a.data)),
          b_(static_cast<const Bf16*>(block.b.data)),
          decoded_(static_cast<Bf16*>(scratch)),
          scratch_(static_cast<char*>(scratch) + (block.coded != nullptr ? kDecodedBytes : 0)) {
        out_.bf16 = block.c_is_bf16;
        out_.transpose_c = block.transpose_c;
        out_.accumulate = block.accumulate;
        out_.alpha = block.alpha;
        out_.c_pitch = block.c.pitch;
    }

    void run() {
        if (block_.m <= kFewRows && block_.transpose_b && !block_.transpose_a)
            run_exchanged();
        else
            run_blocks();
        _tile_release();
    }

    static constexpr int64_t depth_of(int64_t k) {
        const int64_t blocks = (k + kBlockDepth - 1) / kBlockDepth;
        return multiple((k + blocks - 1) / blocks, kTileDepth);
    }
    static constexpr int64_t packed_columns_bytes(int64_t n, int64_t k) {
        return multiple(n, kPanelWidth) *
               (k < kBlockDepth ? multiple(k, kTileDepth) : kBlockDepth) * 2;
    }
    static constexpr int64_t packed_rows_bytes() { return 2 * kTileSide * kPackedRow; }

  private:
    // --- many rows ---

    void run_blocks() {
        TileShapes shapes;
        for (int tile = 0; tile < 8; ++tile)
            shapes.set(tile, kTileSide, 64);
        shapes.use();
        const int64_t k = block_.k;
        const int64_t depth = depth_of(k);
        packed_columns_ = scratch_;
        packed_rows_ = packed_columns_ + packed_columns_bytes(block_.n, k);
        float* const sums = reinterpret_cast<float*>(packed_rows_ + packed_rows_bytes());
        const int64_t panels = (block_.n + kPanelWidth - 1) / kPanelWidth;
        alignas(64) float here[kPanelWidth * kPanelWidth];
        for (int64_t begin = 0; begin < k; begin += depth) {
            const int64_t end = begin + depth < k ? begin + depth : k;
            const int64_t steps = (end - begin + kTileDepth - 1) / kTileDepth;
            pack_panels(panels, begin, end, steps);
            for (int64_t row = 0; row < block_.m; row += 2 * kTileSide) {
                const int64_t rows =
                    block_.m - row < 2 * kTileSide ? block_.m - row : 2 * kTileSide;
                take_rows(row, rows, begin, end, steps);
                for (int64_t panel = 0; panel < panels; ++panel) {
                    const int64_t columns = block_.n - panel * kPanelWidth;
                    float* const at = depth < k ? sums + (row / kPanelWidth * panels + panel) *
                                                             kPanelWidth * kPanelWidth
                                                : here;
                    multiply(rows, columns, panel, steps, begin == 0, at);
                    if (end == k) finish(row, rows, panel * kPanelWidth, columns, at);
                }
            }
        }
    }

    static int64_t tiles_in(int64_t columns) { return columns > kTileSide ? 2 : 1; }

    void pack_panels(int64_t panels, int64_t begin, int64_t end, int64_t steps) {
        if (block_.coded != nullptr && !block_.transpose_b) {
            decode_plain(panels, begin, end, steps);
            return;
        }
        for (int64_t panel = 0; panel < panels; ++panel) {
            const int64_t column = panel * kPanelWidth;
            const int64_t columns = block_.n - column;
            char* const out = packed_columns_ + panel * steps * kPanelTiles * kTileBytes;
            if (!block_.transpose_b) {
                const int64_t tiles = tiles_in(columns);
                for (int64_t step = 0; step < steps; ++step)
                    pack_plain(b_ + column, block_.b.pitch, begin + step * kTileDepth, end, columns,
                               tiles, out + step * tiles * kTileBytes);
            } else if (block_.coded != nullptr) {
                const int64_t rows = columns < kPanelWidth ? columns : kPanelWidth;
                decode_rows(block_, column, rows, begin, end - begin, decoded_, kDecodedRow);
                pack_transposed(decoded_, kDecodedRow, 0, end - begin, columns, steps, out);
            } else {
                pack_transposed(b_ + column * block_.b.pitch, block_.b.pitch, begin, end, columns,
                                steps, out);
            }
        }
    }

    static void pack_transposed(const Bf16* b, int64_t pitch, int64_t begin, int64_t end,
                                int64_t columns, int64_t steps, char* out) {
        const int64_t tiles = tiles_in(columns);
        for (int64_t step = 0; step < steps; ++step, out += tiles * kTileBytes) {
            for (int64_t tile = 0; tile < tiles; ++tile) {
                BitVec words[kLanes];
                load_transposed<PairSteps, 2>(b + tile * kTileSide * pitch, pitch,
                                              begin + step * kTileDepth, end,
                                              columns - tile * kTileSide, words);
#pragma GCC unroll 16
                for (int i = 0; i < kLanes; ++i)
                    __builtin_memcpy(out + tile * kTileBytes + 64 * i, &words[i], 64);
            }
        }
    }

    void decode_plain(int64_t panels, int64_t begin, int64_t end, int64_t steps) {
        for (int64_t step = 0; step < steps; ++step) {
            const int64_t p = begin + step * kTileDepth;
            const int64_t rows = end - p < kTileDepth ? end - p : kTileDepth;
            decode_rows(block_, p, rows, 0, block_.n, decoded_, kDecodedColumns);
            for (int64_t panel = 0; panel < panels; ++panel) {
                const int64_t column = panel * kPanelWidth;
                const int64_t columns = block_.n - column;
                const int64_t tiles = tiles_in(columns);
                pack_plain(decoded_ + column, kDecodedColumns, 0, rows, columns, tiles,
                           packed_columns_ + panel * steps * kPanelTiles * kTileBytes +
                               step * tiles * kTileBytes);
            }
        }
    }

    // Two tiles of rows: as they lie where all of both exists, else packed with zeros around.
    void take_rows(int64_t row, int64_t rows, int64_t begin, int64_t end, int64_t steps) {
        const bool whole = rows == 2 * kTileSide && (end - begin) % kTileDepth == 0;
        // Rows that are apart by such pitches meet in the same sets of the first-level cache.
        const bool apart = block_.a.pitch * 2 % 2048 != 0;
        if (whole && apart && !block_.transpose_a) {
            rows_ = reinterpret_cast<const char*>(a_ + row * block_.a.pitch + begin);
            row_bytes_ = block_.a.pitch * 2;
            return;
        }
        rows_ = packed_rows_;
        row_bytes_ = kPackedRow;
        for (int64_t tile = 0; tile < (rows > kTileSide ? 2 : 1); ++tile) {
            const int64_t left = rows - tile * kTileSide;
            for (int64_t step = 0; step < steps; ++step) {
                const int64_t p = begin + step * kTileDepth;
                BitVec words[kLanes];
                if (block_.transpose_a) {
                    const Bf16* const from = a_ + row + tile * kTileSide;
                    for (int i = 0; i < kLanes; ++i)
                        words[i] = p + 2 * i < end ? PairSteps::across(from, block_.a.pitch,
                                                                       p + 2 * i, end, left)
                                                   : BitVec{};
                    transpose_words(words);
                } else {
                    take_words(a_ + (row + tile * kTileSide) * block_.a.pitch, block_.a.pitch, p,
                               end, left, words);
                }
                char* const out = packed_rows_ + tile * kTileSide * kPackedRow + 64 * step;
#pragma GCC unroll 16
                for (int i = 0; i < kLanes; ++i)
                    __builtin_memcpy(out + i * kPackedRow, &words[i], 64);
            }
        }
    }

    void multiply(int64_t rows, int64_t columns, int64_t panel, int64_t steps, bool first,
                  float* sums) const {
        const char* const b = packed_columns_ + panel * steps * kPanelTiles * kTileBytes;
        const bool two_rows = rows > kTileSide;
        const TileSums tiles{sums, kPanelTiles * kTileFloats, kTileFloats, 64};
        if (tiles_in(columns) == 2)
            (two_rows ? multiply_tiles<2, 2> : multiply_tiles<1, 2>)(rows_, row_bytes_, b, steps,
                                                                     first, tiles);
        else
            (two_rows ? multiply_tiles<2, 1> : multiply_tiles<1, 1>)(rows_, row_bytes_, b, steps,
                                                                     first, tiles);
    }

    void finish(int64_t row, int64_t rows, int64_t column, int64_t columns, const float* sums) {
        for (int64_t r = 0; r < rows; r += kTileSide)
            for (int64_t c = 0; c < kPanelWidth && c < columns; c += kTileSide)
                finish_tile_of(row + r, rows - r, column + c, columns - c,
                               sums + (r / kTileSide * kPanelTiles + c / kTileSide) * kTileFloats);
    }

    // One tile of sums into c, of which `rows` and `columns` are left.
    void finish_tile_of(int64_t row, int64_t rows, int64_t column, int64_t columns,
                        const float* sums) {
        if (block_.transpose_c) {
            BitVec x[kLanes];
            __builtin_memcpy(x, sums, sizeof(x));
            transpose_words(x);
            for (int64_t i = 0; i < kTileSide && i < columns; ++i)
                put(column + i, row, bits_of<Vec>(x[i]), rows);
            return;
        }
        for (int64_t i = 0; i < kTileSide && i < rows; ++i)
            put(row + i, column, load(sums + i * kTileSide, Full{}), columns);
    }

    // `count` sums that lie in c from [row, column] on.
    void put(int64_t row, int64_t column, Vec sums, int64_t count) {
        const auto mask = static_cast<__mmask16>(count >= kLanes ? 0xffffu : (1u << count) - 1u);
        const int64_t at = row * out_.c_pitch + column;
        if (out_.bf16) {
            Bf16* const c = static_cast<Bf16*>(block_.c.data) + at;
            const Vec before =
                out_.accumulate ? widen((HalfVec)_mm256_maskz_loadu_epi16(mask, c)) : Vec{};
            _mm256_mask_storeu_epi16(c, mask, (__m256i)rounded(result(out_, sums, before)));
        } else {
            float* const c = static_cast<float*>(block_.c.data) + at;
            const Vec before = out_.accumulate ? (Vec)_mm512_maskz_loadu_ps(mask, c) : Vec{};
            _mm512_mask_storeu_ps(c, mask, (__m512)result(out_, sums, before));
        }
    }

    // --- few rows ---

    void run_exchanged() {
        const int64_t m = block_.m;
        const int64_t k = block_.k;
        const int64_t steps = (k + kTileDepth - 1) / kTileDepth;
        TileShapes shapes;
        shapes.set(0, kTileSide, 4 * m);  // sums: rows of b by rows of a
        shapes.set(4, kTileSide, 64);
        shapes.set(7, kTileSide, 4 * m);
        shapes.use();
        // Words of a, [step of k][row].
        const char* words = reinterpret_cast<const char*>(a_);
        packed_rows_ = scratch_ + kTileBytes;
        if (m > 1 || k % kTileDepth != 0) {
            for (int64_t step = 0; step < steps; ++step) {
                BitVec x[kLanes];
                take_words(a_, block_.a.pitch, step * kTileDepth, k, m, x);
                transpose_words(x);
                const auto mask = static_cast<__mmask16>((1u << m) - 1u);
                for (int i = 0; i < kLanes; ++i)
                    _mm512_mask_storeu_epi32(packed_rows_ + (step * kTileSide + i) * 4 * m, mask,
                                             (__m512i)x[i]);
            }
            words = packed_rows_;
        }
        for (int64_t column = 0; column < block_.n; column += kTileSide) {
            const int64_t left = block_.n - column;
            exchanged_tile(words, column, left < kTileSide ? left : kTileSide);
        }
    }

    // The sums of rows of b over elements [begin, end) of k; words of a from `begin` on.
    void add_exchanged(const Bf16* rows, int64_t pitch, int64_t height, const char* words,
                       int64_t begin, int64_t end, bool fetches) {
        const int64_t m = block_.m;
        const int64_t whole = height == kTileSide ? (end - begin) / kTileDepth : 0;
        int64_t step = 0;
        for (; step < whole; ++step) {
            const char* const at = reinterpret_cast<const char*>(rows + begin) + 64 * step;
            if (fetches) {
#pragma GCC unroll 16
                for (int64_t i = 0; i < kTileSide; ++i)
                    __builtin_prefetch(at + 2 * (kTileSide + i) * pitch);
            }
            _tile_loadd(7, words + step * kTileDepth * 2 * m, 4 * m);
            _tile_loadd(4, at, 2 * pitch);
            _tile_dpbf16ps(0, 4, 7);
        }
        for (; begin + step * kTileDepth < end; ++step) {  // what a tile would read beyond
            BitVec x[kLanes];
            take_words(rows, pitch, begin + step * kTileDepth, end, height, x);
            __builtin_memcpy(scratch_, x, sizeof(x));
            memory_is_written();
            _tile_loadd(7, words + step * kTileDepth * 2 * m, 4 * m);
            _tile_loadd(4, scratch_, 64);
            _tile_dpbf16ps(0, 4, 7);
        }
    }

    // The sums of `height` rows of b from `column` on. One tile at a time, so that memory is read in
    // nearly the order in which it lies: with four, a core read a sixth less of it in a second.
    void exchanged_tile(const char* words, int64_t column, int64_t height) {
        const int64_t m = block_.m;
        const int64_t k = block_.k;
        memory_is_written();
        _tile_zero(0);
        if (block_.coded == nullptr) {
            add_exchanged(b_ + column * block_.b.pitch, block_.b.pitch, height, words, 0, k, true);
        } else {
            for (int64_t p = 0; p < k; p += kBlockDepth) {
                const int64_t depth = k - p < kBlockDepth ? k - p : kBlockDepth;
                decode_rows(block_, column, height, p, depth, decoded_, kDecodedRow);
                memory_is_written();
                add_exchanged(decoded_, kDecodedRow, height, words + p * 2 * m, 0, depth, false);
            }
        }
        alignas(64) float sums[kTileFloats];
        _tile_stored(0, sums, 4 * m);
        memory_is_written();
        for (int64_t row = 0; row < m; ++row) {
            Vec x;
            for (int i = 0; i < kLanes; ++i)
                x[i] = sums[i * m + row];
            if (!block_.transpose_c) {
                put(row, column, x, height);
                continue;
            }
            for (int64_t i = 0; i < height; ++i)
                put(column + i, row, splat(x[i]), 1);
        }
    }

    const MatmulBlock& block_;
    const Bf16* const a_;
    const Bf16* const b_;
    Bf16* const decoded_;
    char* const scratch_;
    TileOutput out_{};
    char* packed_columns_ = nullptr;
    char* packed_rows_ = nullptr;
    const char* rows_ = nullptr;  // of a, of the tiles in hand
    int64_t row_bytes_ = 0;
};

void tiled_block(const MatmulBlock& block, void* scratch) {
    TiledProduct(block, scratch).run();
}

int64_t tiled_scratch(int64_t m, int64_t n, int64_t elements, int64_t k) {
    const int64_t sums = k > kBlockDepth ? elements + 31 * multiple(n, kPanelWidth) : 0;
    const int64_t blocks =
        TiledProduct::packed_columns_bytes(n, k) + TiledProduct::packed_rows_bytes() + 4 * sums;
    const int64_t few = m < kFewRows ? m : kFewRows;
    const int64_t exchanged = kTileBytes + multiple(k, kTileDepth) * 2 * few;
    return blocks > exchanged ? blocks : exchanged;
}

constexpr MatmulKernel kTiledKernel{
    tiled_block, tiled_scratch, kDecodedBytes, {1024, kMostColumns, 1024 * 192, 100, 0.7, 4}};

GARAM_KERNELS_END

namespace garam::cpu::GARAM_ISA {

const MatmulKernel& matmul_in_tiles();
const MatmulKernel& matmul_in_tiles() {
    return kTiledKernel;
}

}  // namespace garam::cpu::GARAM_ISA
