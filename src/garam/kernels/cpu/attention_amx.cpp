// Attention of bf16 in tiles of kAttentionBlock queries by kAttentionBlock keys (Dao, 2023:
// FlashAttention-2) whose products AMX multiplies. Probabilities, and the gradients of scores, are
// rounded to bf16 on their way to the next product; scores, sums and softmax are fp32.
//
// A query's bits do not depend on the block that it lies in: keys are cut at multiples of
// kAttentionBlock, and keys that it does not see add zeros.
#include "garam/kernels/cpu/amx_tiles.h"
#include "garam/kernels/cpu/attention_rows.h"

GARAM_KERNELS_BEGIN

constexpr int64_t kSteps = kBlock / kTileDepth;  // of a product over a block of keys or queries
constexpr int64_t kSquareRow = kBlock * 2 + 64;  // bytes of a row of packed probabilities

int64_t head_steps(int64_t head_dim) {
    return (head_dim + kTileDepth - 1) / kTileDepth;
}
int64_t row_bytes_of(int64_t head_dim) {  // of packed rows
    return head_steps(head_dim) * 64 + 64;
}
int64_t tiles_of(int64_t count) {
    return (count + kTileSide - 1) / kTileSide;
}

// Rows of a product's left operand.
struct LeftRows {
    const char* data;
    int64_t row_bytes;
};

// c [64, columns] (+)= a [64, k] * packed b: all in whole tiles.
void multiply_square(const LeftRows& a, const char* b, int64_t steps, int64_t row_tiles,
                     int64_t column_tiles, float* c, int64_t c_pitch, bool first) {
    for (int64_t column = 0; column < column_tiles; column += kPanelTiles) {
        const bool two_columns = column + 1 < column_tiles;
        const char* const panel = b + column * steps * kTileBytes;
        for (int64_t row = 0; row < row_tiles; row += 2) {
            const bool two_rows = row + 1 < row_tiles;
            const TileSums sums{c + (row * c_pitch + column) * kTileSide, kTileSide * c_pitch,
                                kTileSide, c_pitch * 4};
            const char* const rows = a.data + row * kTileSide * a.row_bytes;
            if (two_columns)
                (two_rows ? multiply_tiles<2, 2> : multiply_tiles<1, 2>)(rows, a.row_bytes, panel,
                                                                         steps, first, sums);
            else
                (two_rows ? multiply_tiles<2, 1> : multiply_tiles<1, 1>)(rows, a.row_bytes, panel,
                                                                         steps, first, sums);
        }
    }
}

const Bf16* head_of(const Rows& x, int64_t row, int64_t column) {
    return static_cast<const Bf16*>(x.data) + row * x.pitch + column;
}

// x [rows, d] as a left operand: as it lies where whole tiles of it exist, else packed with zeros.
LeftRows take_left(const Bf16* x, int64_t pitch, int64_t rows, int64_t d, char* out) {
    if (rows == kBlock && d % kTileDepth == 0) return {reinterpret_cast<const char*>(x), pitch * 2};
    const int64_t row_bytes = row_bytes_of(d);
    for (int64_t row = 0; row < tiles_of(rows) * kTileSide; ++row)
        for (int64_t step = 0; step < head_steps(d); ++step) {
            const BitVec words =
                row < rows ? PairSteps::along(x + row * pitch, step * kTileDepth, d) : BitVec{};
            __builtin_memcpy(out + row * row_bytes + 64 * step, &words, 64);
        }
    return {out, row_bytes};
}

// x [rows, d] as a right operand of products over d: columns are its rows, all kBlock of them.
void pack_across(const Bf16* x, int64_t pitch, int64_t rows, int64_t d, char* out) {
    const int64_t steps = head_steps(d);
    for (int64_t row = 0; row < kBlock; row += kTileSide)
        for (int64_t step = 0; step < steps; ++step) {
            BitVec words[kLanes];
            take_words(x + row * pitch, pitch, step * kTileDepth, d, rows - row, words);
            transpose_words(words);
            const int64_t tile = row / kTileSide;
            char* const to = out + (tile / 2 * steps * 2 + step * 2 + tile % 2) * kTileBytes;
            __builtin_memcpy(to, words, sizeof(words));
        }
}

// x [rows, d] as a right operand of products over its rows, all kBlock of them.
void pack_along(const Bf16* x, int64_t pitch, int64_t rows, int64_t d, char* out) {
    for (int64_t column = 0; column < d; column += kPanelWidth) {
        const int64_t tiles = d - column > kTileSide ? 2 : 1;
        char* to = out + column / kTileSide * kSteps * kTileBytes;
        for (int64_t step = 0; step < kSteps; ++step, to += tiles * kTileBytes)
            pack_plain(x + column, pitch, step * kTileDepth, rows, d - column, tiles, to);
    }
}

void use_shapes() {
    TileShapes shapes;
    for (int tile = 0; tile < 8; ++tile)
        shapes.set(tile, kTileSide, 64);
    shapes.use();
}

// Hands out pieces of the scratch, whole cache lines each.
struct Pieces {
    char* next;
    char* bytes(int64_t count) {
        char* const piece = next;
        next += multiple(count, 64);
        return piece;
    }
    float* floats(int64_t count) { return reinterpret_cast<float*>(bytes(count * 4)); }
};

struct ForwardScratch {
    char *queries, *keys, *values, *probabilities;
    float *sums, *maxima, *totals, *scores;
    char* end;

    ForwardScratch(char* begin, int64_t heads, int64_t d) {
        Pieces pieces{begin};
        queries = pieces.bytes(heads * kBlock * row_bytes_of(d));
        keys = pieces.bytes(kBlock * head_steps(d) * 64);
        values = pieces.bytes(kBlock * multiple(d, kPanelWidth) * 2);
        probabilities = pieces.bytes(kBlock * kSquareRow);
        sums = pieces.floats(heads * kBlock * padded(d));
        maxima = pieces.floats(heads * kBlock);
        totals = pieces.floats(heads * kBlock);
        scores = pieces.floats(kBlock * kBlock);
        end = pieces.next;
    }
};

int64_t tiled_forward_scratch(int64_t heads, int64_t head_dim) {
    char* const anywhere = reinterpret_cast<char*>(int64_t{4096});
    return (ForwardScratch(anywhere, heads, head_dim).end - anywhere) / 4;
}

// One row of scores: scaled, capped, masked.
inline void make_scores(float* scores, int64_t keys, int64_t seen, int64_t passed, float scale,
                        float softcap) {
    for (int64_t i = 0; i < padded(keys); i += kLanes)
        store(scores + i, load(scores + i, Full{}) * scale, Full{});
    if (softcap > 0) cap_row(scores, padded(keys), softcap);
    for (int64_t i = seen < 0 ? 0 : seen; i < padded(keys); ++i)
        scores[i] = -__builtin_inff();
    for (int64_t i = 0; i < least(passed, keys); ++i)
        scores[i] = -__builtin_inff();
}

// A row of kBlock floats, of which the first `count` are something, as bf16.
inline void round_row(const float* x, int64_t count, char* out) {
    for (int64_t i = 0; i < kBlock; i += kLanes) {
        const HalfVec h = i < count ? rounded(load(x + i, Full{})) : HalfVec{};
        __builtin_memcpy(out + 2 * i, &h, sizeof(h));
    }
}

void tiled_forward(const AttentionForward& block, float* scratch) {
    const int64_t d = block.head_dim;
    const int64_t width = padded(d);
    const int64_t rows = block.queries;
    const int64_t row_tiles = tiles_of(rows);
    const ForwardScratch own(reinterpret_cast<char*>(scratch), block.heads, d);
    use_shapes();
    for (int64_t i = 0; i < block.heads * kBlock; ++i) {
        own.maxima[i] = -__builtin_inff();
        own.totals[i] = 0;
    }
    LeftRows queries{};
    for (int64_t head = 0; head < block.heads; ++head)  // where they lie is known from the last one
        queries = take_left(head_of(block.q, 0, head * d), block.q.pitch, rows, d,
                            own.queries + head * kBlock * row_bytes_of(d));
    const bool in_place = rows == kBlock && d % kTileDepth == 0;
    const int64_t head_bytes = in_place ? 2 * d : kBlock * row_bytes_of(d);
    queries.data -= (block.heads - 1) * head_bytes;

    const int64_t keys_end = block.visible + rows - 1;
    const int64_t keys_begin = first_tile(block.visible, block.window);
    for (int64_t begin = keys_begin; begin < keys_end; begin += kBlock) {
        const int64_t keys = least(kBlock, keys_end - begin);
        pack_across(head_of(block.k, begin, 0), block.k.pitch, keys, d, own.keys);
        pack_along(head_of(block.v, begin, 0), block.v.pitch, keys, d, own.values);
        const bool first = begin == keys_begin;
        for (int64_t head = 0; head < block.heads; ++head) {
            float* const out = own.sums + head * kBlock * width;
            multiply_square({queries.data + head * head_bytes, queries.row_bytes}, own.keys,
                            head_steps(d), row_tiles, kBlock / kTileSide, own.scores, kBlock, true);
            for (int64_t row = 0; row < rows; ++row) {
                float* const scores = own.scores + row * kBlock;
                const int64_t seen = block.visible - begin + row;
                make_scores(scores, keys, seen, seen - block.window, block.scale, block.softcap);
                const int64_t at = head * kBlock + row;
                soften_row(scores, keys, own.maxima[at], own.totals[at],
                           first ? nullptr : out + row * width, width);
                round_row(scores, padded(keys), own.probabilities + row * kSquareRow);
            }
            multiply_square({own.probabilities, kSquareRow}, own.values, kSteps, row_tiles,
                            width / kTileSide, out, width, first);
        }
    }
    _tile_release();
    for (int64_t head = 0; head < block.heads; ++head) {
        for (int64_t row = 0; row < rows; ++row) {
            const float total = own.totals[head * kBlock + row];
            const float inverse = 1.0f / total;
            const float* const o = own.sums + (head * kBlock + row) * width;
            Bf16* const y = static_cast<Bf16*>(block.out.data) + row * block.out.pitch + head * d;
            for_lanes(
                d, [&](int64_t i, auto part) { store(y + i, load(o + i, part) * inverse, part); });
            block.lse[row * block.lse_pitch + head] =
                own.maxima[head * kBlock + row] + __builtin_logf(total);
        }
    }
}

struct BackwardScratch {
    char *keys, *values, *keys_along, *queries_across, *douts_across, *queries_along, *douts_along;
    char *probabilities, *gradients, *gradients_left;  // [keys, queries], …, [queries, keys]
    float *scores, *dscores, *dkeys, *dvalues, *dqueries, *lse, *delta;
    char* end;

    BackwardScratch(char* begin, int64_t d) {
        Pieces pieces{begin};
        const int64_t across = kBlock * head_steps(d) * 64;
        const int64_t along = kBlock * multiple(d, kPanelWidth) * 2;
        keys = pieces.bytes(kBlock * row_bytes_of(d));
        values = pieces.bytes(kBlock * row_bytes_of(d));
        queries_across = pieces.bytes(across);
        douts_across = pieces.bytes(across);
        keys_along = pieces.bytes(along);
        queries_along = pieces.bytes(along);
        douts_along = pieces.bytes(along);
        probabilities = pieces.bytes(kBlock * kSquareRow);
        gradients = pieces.bytes(kBlock * kSquareRow);
        gradients_left = pieces.bytes(kBlock * kSquareRow);
        scores = pieces.floats(kBlock * kBlock);
        dscores = pieces.floats(kBlock * kBlock);
        dkeys = pieces.floats(kBlock * padded(d));
        dvalues = pieces.floats(kBlock * padded(d));
        dqueries = pieces.floats(kBlock * padded(d));
        lse = pieces.floats(kBlock);
        delta = pieces.floats(kBlock);
        end = pieces.next;
    }
};

int64_t tiled_backward_scratch(int64_t head_dim) {
    char* const anywhere = reinterpret_cast<char*>(int64_t{4096});
    return (BackwardScratch(anywhere, head_dim).end - anywhere) / 4;
}

// One key's row of scores and of d(probabilities), both without scale, become probabilities and
// d(scores); queries outside [first, last) do not see the key.
inline void make_gradients(const AttentionBackward& s, const BackwardScratch& own, int64_t key,
                           int64_t first, int64_t last) {
    IntVec lane{};
    for (int i = 0; i < kLanes; ++i)
        lane[i] = i;
    for (int64_t i = 0; i < kBlock; i += kLanes) {
        Vec score = load(own.scores + key * kBlock + i, Full{}) * s.scale;
        Vec slope = splat(s.scale);
        if (s.softcap > 0) {
            const Vec t = tanh_of(score / s.softcap);
            score = t * s.softcap;
            slope = (1.0f - t * t) * s.scale;
        }
        const Vec p = exp_of(score - load(own.lse + i, Full{}));
        const Vec dp = load(own.dscores + key * kBlock + i, Full{});
        const Vec ds = p * (dp - load(own.delta + i, Full{})) * slope;
        const IntVec query = lane + static_cast<int>(i);
        const auto seen = (query >= static_cast<int>(first)) & (query < static_cast<int>(last));
        const HalfVec p_half = rounded(seen ? p : Vec{});
        const HalfVec ds_half = rounded(seen ? ds : Vec{});
        __builtin_memcpy(own.probabilities + key * kSquareRow + 2 * i, &p_half, sizeof(p_half));
        __builtin_memcpy(own.gradients + key * kSquareRow + 2 * i, &ds_half, sizeof(ds_half));
    }
}

// [keys, queries] becomes [queries, keys], a left operand.
void transpose_square(const char* x, char* out) {
    const Bf16* const from = reinterpret_cast<const Bf16*>(x);
    for (int64_t query = 0; query < kBlock; query += kTileSide)
        for (int64_t step = 0; step < kSteps; ++step) {
            BitVec words[kLanes];
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i)
                words[i] = PairSteps::across(from + query, kSquareRow / 2,
                                             step * kTileDepth + 2 * i, kBlock, kLanes);
            transpose_words(words);
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i)
                __builtin_memcpy(out + (query + i) * kSquareRow + 64 * step, &words[i], 64);
        }
}

void tiled_backward(const AttentionBackward& s, float* scratch) {
    const int64_t d = s.head_dim;
    const int64_t width = padded(d);
    const int64_t width_tiles = width / kTileSide;
    constexpr int64_t kBlockTiles = kBlock / kTileSide;
    const int64_t window = least(s.window, int64_t{1} << 40);
    const BackwardScratch own(reinterpret_cast<char*>(scratch), d);
    use_shapes();
    for (int64_t k_begin = 0; k_begin < s.length; k_begin += kBlock) {
        const int64_t nk = least(kBlock, s.length - k_begin);
        const LeftRows keys = take_left(head_of(s.k, k_begin, 0), s.k.pitch, nk, d, own.keys);
        const LeftRows values = take_left(head_of(s.v, k_begin, 0), s.v.pitch, nk, d, own.values);
        pack_along(head_of(s.k, k_begin, 0), s.k.pitch, nk, d, own.keys_along);
        bool first_queries = true;
        for (int64_t q_begin = k_begin; q_begin < s.length; q_begin += kBlock) {
            const int64_t nq = least(kBlock, s.length - q_begin);
            const int64_t oldest = first_tile(q_begin + 1, s.window);
            if (k_begin < oldest) break;  // out of the window of these queries and all later ones
            const int64_t visible = q_begin - k_begin + 1;
            for (int64_t head = 0; head < s.heads; ++head) {
                const Bf16* const q = head_of(s.q, q_begin, head * d);
                const Bf16* const dout = head_of(s.dout, q_begin, head * d);
                pack_across(q, s.q.pitch, nq, d, own.queries_across);
                pack_across(dout, s.dout.pitch, nq, d, own.douts_across);
                pack_along(q, s.q.pitch, nq, d, own.queries_along);
                pack_along(dout, s.dout.pitch, nq, d, own.douts_along);
                for (int64_t i = 0; i < kBlock; ++i) {
                    const int64_t at = (q_begin + i) * s.lse_pitch + head;
                    own.lse[i] = i < nq ? s.lse[at] : 0;
                    own.delta[i] = i < nq ? s.delta[at] : 0;
                }
                multiply_square(keys, own.queries_across, head_steps(d), tiles_of(nk), kBlockTiles,
                                own.scores, kBlock, true);
                multiply_square(values, own.douts_across, head_steps(d), tiles_of(nk), kBlockTiles,
                                own.dscores, kBlock, true);
                for (int64_t key = 0; key < nk; ++key) {
                    const int64_t first = key - visible + 1;
                    make_gradients(s, own, key, first < 0 ? 0 : first,
                                   least(nq, key - visible + window + 1));
                }
                for (int64_t byte = nk * kSquareRow; byte < kBlock * kSquareRow; ++byte)
                    own.probabilities[byte] = own.gradients[byte] = 0;
                multiply_square({own.probabilities, kSquareRow}, own.douts_along, kSteps,
                                kBlockTiles, width_tiles, own.dvalues, width, first_queries);
                multiply_square({own.gradients, kSquareRow}, own.queries_along, kSteps, kBlockTiles,
                                width_tiles, own.dkeys, width, first_queries);
                transpose_square(own.gradients, own.gradients_left);
                multiply_square({own.gradients_left, kSquareRow}, own.keys_along, kSteps,
                                tiles_of(nq), width_tiles, own.dqueries, width, true);
                first_queries = false;
                for (int64_t row = 0; row < nq; ++row) {
                    float* const dq = s.dq + (q_begin + row) * s.dq_pitch + head * d;
                    const float* const part_sum = own.dqueries + row * width;
                    for_lanes(d, [&](int64_t i, auto part) {
                        Vec sum = load(part_sum + i, part);
                        if (k_begin > oldest) sum += load(dq + i, part);
                        store(dq + i, sum, part);
                    });
                }
            }
        }
        for (int64_t row = 0; row < nk; ++row) {
            Bf16* const dk = static_cast<Bf16*>(s.dk.data) + (k_begin + row) * s.dk.pitch;
            Bf16* const dv = static_cast<Bf16*>(s.dv.data) + (k_begin + row) * s.dv.pitch;
            for_lanes(d, [&](int64_t i, auto part) {
                store(dk + i, load(own.dkeys + row * width + i, part), part);
                store(dv + i, load(own.dvalues + row * width + i, part), part);
            });
        }
    }
    _tile_release();
}

constexpr AttentionKernels kTiledAttention{tiled_forward, tiled_backward, tiled_forward_scratch,
                                           tiled_backward_scratch};

GARAM_KERNELS_END

namespace garam::cpu::GARAM_ISA {

const AttentionKernels& attention_in_tiles();
const AttentionKernels& attention_in_tiles() {
    return kTiledAttention;
}

}  // namespace garam::cpu::GARAM_ISA
