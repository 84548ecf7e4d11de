// Tiles of bf16 as AMX multiplies them, and packing for them.
#pragma once

#include "garam/kernels/cpu/gemm_tile.h"
#include "garam/kernels/cpu/gemm_words.h"

GARAM_KERNELS_BEGIN

constexpr int64_t kTileSide = 16;   // rows, and columns, of a tile of sums
constexpr int64_t kTileDepth = 32;  // elements of k of one tile product
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kTileFloats = kTileSide * kTileSide;
constexpr int64_t kPanelTiles = 2;
constexpr int64_t kPanelWidth = kPanelTiles * kTileSide;

constexpr int64_t multiple(int64_t count, int64_t of) {
    return (count + of - 1) / of * of;
}

// The assembler of tile loads does not tell the compiler what memory it reads.
inline void memory_is_written() {
    asm volatile("" ::: "memory");
}

struct alignas(64) TileShapes {
    unsigned char palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    unsigned char rows[16] = {};

    void set(int tile, int64_t height, int64_t bytes) {
        rows[tile] = static_cast<unsigned char>(height);
        row_bytes[tile] = static_cast<uint16_t>(bytes);
    }
    void use() const {
        memory_is_written();
        _tile_loadconfig(this);
    }
};

// Where tiles of sums lie: floats from one to the next, bytes from one row of a tile to the next.
struct TileSums {
    float* data;
    int64_t down, across, row_bytes;
};

// Sums of kRows x kColumns tiles over `steps` tile products.
template <int kRows, int kColumns>
void multiply_tiles(const char* a, int64_t a_row, const char* b, int64_t steps, bool first,
                    const TileSums& sums) {
    const auto tile_of = [&](int64_t row, int64_t column) {
        return sums.data + row * sums.down + column * sums.across;
    };
    memory_is_written();
    if (first) {
        _tile_zero(0);
        if constexpr (kColumns > 1) _tile_zero(1);
        if constexpr (kRows > 1) _tile_zero(2);
        if constexpr (kRows > 1 && kColumns > 1) _tile_zero(3);
    } else {
        _tile_loadd(0, tile_of(0, 0), sums.row_bytes);
        if constexpr (kColumns > 1) _tile_loadd(1, tile_of(0, 1), sums.row_bytes);
        if constexpr (kRows > 1) _tile_loadd(2, tile_of(1, 0), sums.row_bytes);
        if constexpr (kRows > 1 && kColumns > 1) _tile_loadd(3, tile_of(1, 1), sums.row_bytes);
    }
    const char* const low = a + kTileSide * a_row;
    for (int64_t step = 0; step < steps; ++step) {
        _tile_loadd(6, b, 64);
        _tile_loadd(4, a + 64 * step, a_row);
        _tile_dpbf16ps(0, 4, 6);
        if constexpr (kColumns > 1) {
            _tile_loadd(7, b + kTileBytes, 64);
            _tile_dpbf16ps(1, 4, 7);
        }
        if constexpr (kRows > 1) {
            _tile_loadd(5, low + 64 * step, a_row);
            _tile_dpbf16ps(2, 5, 6);
            if constexpr (kColumns > 1) _tile_dpbf16ps(3, 5, 7);
        }
        b += kColumns * kTileBytes;
    }
    _tile_stored(0, tile_of(0, 0), sums.row_bytes);
    if constexpr (kColumns > 1) _tile_stored(1, tile_of(0, 1), sums.row_bytes);
    if constexpr (kRows > 1) _tile_stored(2, tile_of(1, 0), sums.row_bytes);
    if constexpr (kRows > 1 && kColumns > 1) _tile_stored(3, tile_of(1, 1), sums.row_bytes);
    memory_is_written();
}

// One tile of packed columns of an op(b) that lies [k, n], 2 * kLanes columns at once where they exist.
inline void pack_plain(const Bf16* b, int64_t pitch, int64_t p, int64_t k, int64_t columns,
                       int64_t tiles, char* out) {
    alignas(64) static constexpr uint16_t kPairs[2][32] = {
        {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
         8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
        {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
         24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
    const __m512i left = _mm512_load_si512(kPairs[0]);
    const __m512i right = _mm512_load_si512(kPairs[1]);
    const __mmask32 mask = columns >= kPanelWidth
                               ? ~__mmask32{0}
                               : static_cast<__mmask32>((uint64_t{1} << columns) - 1);
    for (int64_t row = 0; row < kTileSide; ++row, p += 2) {
        const __mmask32 even_mask = p < k ? mask : 0;
        const __mmask32 odd_mask = p + 1 < k ? mask : 0;
        const __m512i even = _mm512_maskz_loadu_epi16(even_mask, b + p * pitch);
        const __m512i odd = _mm512_maskz_loadu_epi16(odd_mask, b + (p + 1) * pitch);
        _mm512_store_si512(out + 64 * row, _mm512_permutex2var_epi16(even, left, odd));
        if (tiles > 1)
            _mm512_store_si512(out + kTileBytes + 64 * row,
                               _mm512_permutex2var_epi16(even, right, odd));
    }
}

#if defined(__AVX512BF16__)
// `rows` words of 16 rows of x [rows, k] from element p on, or zeros.
inline void take_words(const Bf16* x, int64_t pitch, int64_t p, int64_t k, int64_t rows,
                       BitVec (&words)[kLanes]) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i)
        words[i] = i < rows ? PairSteps::along(x + i * pitch, p, k) : BitVec{};
}
#endif

GARAM_KERNELS_END
