// Attention in tiles of kAttentionBlock queries by kAttentionBlock keys (Dao, 2023:
// FlashAttention-2). Bound by arithmetic: the products run through gemm.h on fp32 copies of the
// tiles that stay in L2.
#include "garam/kernels/cpu/attention_rows.h"
#include "garam/kernels/cpu/gemm.h"

GARAM_KERNELS_BEGIN

// out [rows, padded(columns)] = x * factor
template <class T>
void copy_tile(const T* x, int64_t pitch, int64_t rows, int64_t columns, float factor, float* out) {
    const int64_t width = padded(columns);
    for (int64_t row = 0; row < rows; ++row) {
        float* const y = out + row * width;
        for_lanes(columns, [&](int64_t i, auto part) {
            store(y + i, load(x + row * pitch + i, part) * factor, part);
        });
        for (int64_t i = columns; i < width; ++i)
            y[i] = 0;
    }
}

// Transposes kLanes vectors in place: for each bit of the index, lanes with that bit change places with
// rows that have it.
template <int kBit>
inline void transpose_lanes(Vec (&rows)[kLanes]) {
    IntVec low{}, high{};
    for (int lane = 0; lane < kLanes; ++lane) {
        low[lane] = (lane & kBit) == 0 ? lane : kLanes + lane - kBit;
        high[lane] = (lane & kBit) == 0 ? lane + kBit : kLanes + lane;
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
        if ((i & kBit) != 0) continue;
        const Vec a = rows[i];
        const Vec b = rows[i + kBit];
        rows[i] = __builtin_shuffle(a, b, low);
        rows[i + kBit] = __builtin_shuffle(a, b, high);
    }
    if constexpr (kBit > 1) transpose_lanes<kBit / 2>(rows);
}

// out [columns, kBlock] = transpose of x [rows, columns]; columns of out beyond rows become zero up to
// a whole vector of every instruction set.
template <class T>
void transpose_tile(const T* x, int64_t pitch, int64_t rows, int64_t columns, float* out) {
    for (int64_t row = 0; row < padded(rows); row += kLanes) {
        for_lanes(columns, [&](int64_t i, auto part) {
            Vec lines[kLanes];
#pragma GCC unroll 16
            for (int j = 0; j < kLanes; ++j)
                lines[j] = row + j < rows ? load(x + (row + j) * pitch + i, part) : Vec{};
            transpose_lanes<kLanes / 2>(lines);
            const int64_t count = least(kLanes, columns - i);
#pragma GCC unroll 16
            for (int j = 0; j < kLanes; ++j)
                if (j < count) store(out + (i + j) * kBlock + row, lines[j], Full{});
        });
    }
}

int64_t forward_scratch(int64_t heads, int64_t head_dim) {
    const int64_t width = padded(head_dim);
    return heads * kBlock * (2 * width + 2) + head_dim * kBlock + kBlock * width + kBlock * kBlock;
}

int64_t backward_scratch(int64_t head_dim) {
    const int64_t width = padded(head_dim);
    return 2 * head_dim * kBlock + 6 * kBlock * width + 2 * kBlock * kBlock;
}

// Rows of a tile that are worked on together: all of them where each sees every key, strips of
// kStrip where the causal mask cuts through, so that at most kStrip - 1 masked keys are computed.
constexpr int64_t kStrip = 32;

struct Strip {
    int64_t begin, rows;
    int64_t keys;  // that the last of these rows sees of the tile, >= 0
};

// Row i of a tile sees its first `visible + i` of `keys` columns.
Strip strip_at(int64_t begin, int64_t rows, int64_t keys, int64_t visible) {
    const int64_t left = rows - begin;
    Strip strip{begin, visible >= keys ? left : least(kStrip, left), 0};
    const int64_t seen = visible + begin + strip.rows - 1;
    strip.keys = seen < 0 ? 0 : least(keys, seen);
    return strip;
}

// The columns that a row does not see become -inf up to the padded width, so that their exponential
// is zero.
void mask_scores(float* scores, const Strip& strip, int64_t visible, int64_t window) {
    for (int64_t row = strip.begin; row < strip.begin + strip.rows; ++row) {
        int64_t seen = least(strip.keys, visible + row);
        if (seen < 0) seen = 0;
        for (int64_t i = seen; i < padded(strip.keys); ++i)
            scores[row * kBlock + i] = -__builtin_inff();
        const int64_t passed = least(strip.keys, visible + row - window);
        for (int64_t i = 0; i < passed; ++i)
            scores[row * kBlock + i] = -__builtin_inff();
    }
}

// As cap_row of scores / scale; gradients - delta are multiplied by the derivative.
inline void cap_row(float* scores, float* gradients, int64_t columns, float scale, float softcap,
                    float delta) {
    for (int64_t i = 0; i < columns; i += kLanes) {
        const Vec t = tanh_of(load(scores + i, Full{}) * (scale / softcap));
        store(scores + i, t * (softcap / scale), Full{});
        const Vec slope = 1.0f - t * t;
        store(gradients + i, (load(gradients + i, Full{}) - delta) * slope + delta, Full{});
    }
}

template <class T>
void attention_forward(const AttentionForward& block, float* scratch) {
    const int64_t d = block.head_dim;
    const int64_t width = padded(d);
    const int64_t rows = block.queries;
    float* const queries = scratch;
    float* const sums = queries + block.heads * kBlock * width;
    float* const maxima = sums + block.heads * kBlock * width;
    float* const totals = maxima + block.heads * kBlock;
    float* const keys_transposed = totals + block.heads * kBlock;
    float* const values = keys_transposed + d * kBlock;
    float* const scores = values + kBlock * width;

    for (int64_t head = 0; head < block.heads; ++head) {
        copy_tile(static_cast<const T*>(block.q.data) + head * d, block.q.pitch, rows, d,
                  block.scale, queries + head * kBlock * width);
        for (int64_t i = 0; i < rows; ++i) {
            maxima[head * kBlock + i] = -__builtin_inff();
            totals[head * kBlock + i] = 0;
        }
    }
    const int64_t keys_end = block.visible + rows - 1;
    const int64_t keys_begin = first_tile(block.visible, block.window);
    for (int64_t begin = keys_begin; begin < keys_end; begin += kBlock) {
        const int64_t keys = least(kBlock, keys_end - begin);
        transpose_tile(static_cast<const T*>(block.k.data) + begin * block.k.pitch, block.k.pitch,
                       keys, d, keys_transposed);
        copy_tile(static_cast<const T*>(block.v.data) + begin * block.v.pitch, block.v.pitch, keys,
                  d, 1.0f, values);
        for (int64_t head = 0; head < block.heads; ++head) {
            float* const out = sums + head * kBlock * width;
            const int64_t visible = block.visible - begin;
            Strip strip;
            for (int64_t row = 0; row < rows; row += strip.rows) {
                strip = strip_at(row, rows, keys, visible);
                if (strip.keys == 0) continue;
                float* const s = scores + row * kBlock;
                gemm_strided({queries + (head * kBlock + row) * width, width, 1, keys_transposed,
                              kBlock, s, kBlock},
                             strip.rows, padded(strip.keys), d, false);
                for (int64_t i = 0; block.softcap > 0 && i < strip.rows; ++i)
                    cap_row(s + i * kBlock, padded(strip.keys), block.softcap);
                mask_scores(scores, strip, visible, block.window);
                for (int64_t i = 0; i < strip.rows; ++i) {
                    const int64_t at = head * kBlock + row + i;
                    soften_row(s + i * kBlock, strip.keys, maxima[at], totals[at],
                               begin > keys_begin ? out + (row + i) * width : nullptr, width);
                }
                gemm_strided({s, kBlock, 1, values, width, out + row * width, width}, strip.rows,
                             width, strip.keys, begin > keys_begin);
            }
        }
    }
    for (int64_t head = 0; head < block.heads; ++head) {
        for (int64_t row = 0; row < rows; ++row) {
            const float total = totals[head * kBlock + row];
            const float inverse = 1.0f / total;
            const float* const o = sums + (head * kBlock + row) * width;
            T* const y = static_cast<T*>(block.out.data) + row * block.out.pitch + head * d;
            for_lanes(
                d, [&](int64_t i, auto part) { store(y + i, load(o + i, part) * inverse, part); });
            block.lse[row * block.lse_pitch + head] =
                maxima[head * kBlock + row] + __builtin_logf(total);
        }
    }
}

template <class T>
void attention_delta(const void* dout, const void* out, int64_t heads, int64_t head_dim,
                     float* delta) {
    for (int64_t head = 0; head < heads; ++head) {
        const T* const a = static_cast<const T*>(dout) + head * head_dim;
        const T* const b = static_cast<const T*>(out) + head * head_dim;
        Vec sum{};
        for_lanes(head_dim,
                  [&](int64_t i, auto part) { sum += load(a + i, part) * load(b + i, part); });
        delta[head] = sum_of(sum);
    }
}

// Scores of one row become probabilities, and d(probabilities) become d(scores / scale).
inline void score_gradients(float* scores, float* gradients, int64_t columns, float scale,
                            float lse, float delta) {
    for (int64_t i = 0; i < columns; i += kLanes) {
        const Vec probability = exp_of(load(scores + i, Full{}) * scale - lse);
        store(scores + i, probability, Full{});
        store(gradients + i, probability * (load(gradients + i, Full{}) - delta) * scale, Full{});
    }
}

template <class T>
void attention_backward(const AttentionBackward& s, float* scratch) {
    const int64_t d = s.head_dim;
    const int64_t width = padded(d);
    float* const keys = scratch;
    float* const keys_transposed = keys + kBlock * width;
    float* const values_transposed = keys_transposed + d * kBlock;
    float* const dkeys = values_transposed + d * kBlock;
    float* const dvalues = dkeys + kBlock * width;
    float* const queries = dvalues + kBlock * width;
    float* const douts = queries + kBlock * width;
    float* const dqueries = douts + kBlock * width;
    float* const probabilities = dqueries + kBlock * width;
    float* const dscores = probabilities + kBlock * kBlock;

    for (int64_t k_begin = 0; k_begin < s.length; k_begin += kBlock) {
        const int64_t nk = least(kBlock, s.length - k_begin);
        const T* const k = static_cast<const T*>(s.k.data) + k_begin * s.k.pitch;
        const T* const v = static_cast<const T*>(s.v.data) + k_begin * s.v.pitch;
        copy_tile(k, s.k.pitch, nk, d, 1.0f, keys);
        transpose_tile(k, s.k.pitch, nk, d, keys_transposed);
        transpose_tile(v, s.v.pitch, nk, d, values_transposed);
        for (int64_t i = 0; i < kBlock * width; ++i)
            dkeys[i] = dvalues[i] = 0;
        for (int64_t q_begin = k_begin; q_begin < s.length; q_begin += kBlock) {
            const int64_t nq = least(kBlock, s.length - q_begin);
            const int64_t oldest = first_tile(q_begin + 1, s.window);
            if (k_begin < oldest) break;  // out of the window of these queries and all later ones
            for (int64_t head = 0; head < s.heads; ++head) {
                copy_tile(static_cast<const T*>(s.q.data) + q_begin * s.q.pitch + head * d,
                          s.q.pitch, nq, d, 1.0f, queries);
                copy_tile(static_cast<const T*>(s.dout.data) + q_begin * s.dout.pitch + head * d,
                          s.dout.pitch, nq, d, 1.0f, douts);
                const int64_t visible = q_begin - k_begin + 1;
                Strip strip;
                for (int64_t row = 0; row < nq; row += strip.rows) {
                    strip = strip_at(row, nq, nk, visible);
                    float* const p = probabilities + row * kBlock;
                    float* const ds = dscores + row * kBlock;
                    const float* const query = queries + row * width;
                    const float* const dout = douts + row * width;
                    const int64_t columns = padded(strip.keys);
                    gemm_strided({query, width, 1, keys_transposed, kBlock, p, kBlock}, strip.rows,
                                 columns, d, false);
                    gemm_strided({dout, width, 1, values_transposed, kBlock, ds, kBlock},
                                 strip.rows, columns, d, false);
                    for (int64_t i = 0; s.softcap > 0 && i < strip.rows; ++i)
                        cap_row(p + i * kBlock, ds + i * kBlock, columns, s.scale, s.softcap,
                                s.delta[(q_begin + row + i) * s.lse_pitch + head]);
                    mask_scores(probabilities, strip, visible, s.window);
                    for (int64_t i = 0; i < strip.rows; ++i) {
                        const int64_t at = (q_begin + row + i) * s.lse_pitch + head;
                        score_gradients(p + i * kBlock, ds + i * kBlock, columns, s.scale,
                                        s.lse[at], s.delta[at]);
                    }
                    gemm_strided({p, 1, kBlock, dout, width, dvalues, width}, strip.keys, width,
                                 strip.rows, true);
                    gemm_strided({ds, 1, kBlock, query, width, dkeys, width}, strip.keys, width,
                                 strip.rows, true);
                    gemm_strided({ds, kBlock, 1, keys, width, dqueries + row * width, width},
                                 strip.rows, width, strip.keys, false);
                }
                for (int64_t row = 0; row < nq; ++row) {
                    float* const dq = s.dq + (q_begin + row) * s.dq_pitch + head * d;
                    const float* const part_sum = dqueries + row * width;
                    for_lanes(d, [&](int64_t i, auto part) {
                        Vec sum = load(part_sum + i, part);
                        if (k_begin > oldest) sum += load(dq + i, part);
                        store(dq + i, sum, part);
                    });
                }
            }
        }
        for (int64_t row = 0; row < nk; ++row) {
            T* const dk = static_cast<T*>(s.dk.data) + (k_begin + row) * s.dk.pitch;
            T* const dv = static_cast<T*>(s.dv.data) + (k_begin + row) * s.dv.pitch;
            for_lanes(d, [&](int64_t i, auto part) {
                store(dk + i, load(dkeys + row * width + i, part), part);
                store(dv + i, load(dvalues + row * width + i, part), part);
            });
        }
    }
}

template <class T>
void add_element_kernels(ElementKernels& kernels) {
    kernels.attention_delta = attention_delta<T>;
    kernels.attention = {attention_forward<T>, attention_backward<T>, forward_scratch,
                         backward_scratch};
}

GARAM_KERNELS_END

namespace garam::cpu::GARAM_ISA {

void add_attention(KernelTable& table);
void add_attention(KernelTable& table) {
    add_element_kernels<float>(table.f32);
    add_element_kernels<Bf16>(table.bf16);
}

}  // namespace garam::cpu::GARAM_ISA
