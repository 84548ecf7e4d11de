// Cases of attention_forward and attention_backward, and their reference in double precision.
#pragma once

#include <cmath>
#include <vector>

#include "garam/ops/attention.h"

namespace garam::testing {

struct AttentionCase {
    DType dtype;
    AttentionShape shape;
    std::vector<std::int32_t> lengths, key_lengths;  // of the segments; no key_lengths: the same
    std::int64_t pad;
    double pairs;            // (query, key) that the mask allows
    std::int64_t spare = 0;  // rows of a cache that is not full
};

inline const std::vector<AttentionCase>& attention_cases() {
    constexpr DType f32 = DType::f32;
    constexpr DType bf16 = DType::bf16;
    static const std::vector<AttentionCase> kCases = {
        {f32, {1, 1, 1, 1.0f}, {1}, {}, 0, 1},
        {f32, {2, 2, 8, 0.35f}, {5, 0, 1, 3}, {}, 0, 15 + 1 + 6},
        {f32, {3, 1, 64, 0.125f}, {64, 65}, {}, 3, 2080 + 2145},
        {f32, {4, 2, 33, 0.2f}, {63, 7, 130}, {}, 1, 2016 + 28 + 8515},
        {f32, {10, 2, 24, 0.2f}, {70}, {}, 0, 2485},
        {bf16, {3, 1, 64, 0.125f}, {65, 10}, {}, 2, 2145 + 55},
        {bf16, {2, 1, 20, 0.25f}, {129}, {}, 0, 8385},
        // A cache of keys: the queries are the last positions.
        {f32, {4, 2, 16, 0.25f}, {1, 3, 70, 0}, {90, 3, 140, 5}, 0, 90 + 6 + 9800 - 2415},
        {bf16, {9, 3, 64, 0.125f}, {1}, {257}, 0, 257},
        // Shapes of models: EXAONE, Llama, Phi, Gemma; rows that allow vectors, and some that do not.
        {bf16, {4, 2, 80, 0.11f}, {130, 0, 0, 70}, {}, 0, 8515 + 2485},
        {bf16, {2, 1, 128, 0.09f}, {150, 3}, {}, 8, 11325 + 6},
        {bf16, {2, 2, 96, 0.1f}, {100}, {}, 0, 5050},
        {bf16, {2, 1, 256, 0.0625f}, {90}, {}, 0, 4095},
        {bf16, {1, 1, 72, 0.12f}, {65}, {}, 0, 2145},
        {bf16, {2, 1, 120, 0.1f}, {70}, {}, 3, 2485},
        {f32, {2, 1, 256, 0.0625f}, {40}, {}, 0, 820},
        // Blocks enough for a card: each sums dk and dv over all query heads of its key/value head.
        {bf16, {264, 132, 8, 0.35f}, {70}, {}, 0, 2485},
        // Segments beyond a warp's lanes, tiles of several lengths on both sides.
        {bf16,
         {2, 1, 64, 0.125f},
         {3, 0,  1, 70, 3, 0,  1, 70, 3, 0,  1, 70, 3, 0,  1,   70, 3, 0,
          1, 70, 3, 0,  1, 70, 3, 0,  1, 70, 3, 0,  1, 70, 130, 2,  65},
         {},
         0,
         8 * (6 + 1 + 2485) + 8515 + 3 + 2145},
        // Windows and caps.
        {f32, {2, 1, 16, 0.25f, 5}, {40, 3}, {}, 0, 40 * 5 - 10 + 6},
        {f32, {2, 2, 24, 0.2f, 0, 2.0f}, {50}, {}, 0, 1275},
        {bf16, {2, 1, 64, 0.125f, 50}, {300}, {}, 0, 300 * 50 - 1225},
        {bf16, {2, 1, 64, 0.125f, 1}, {130}, {}, 0, 130},
        {bf16, {2, 1, 80, 0.125f, 100, 3.0f}, {200}, {}, 0, 200 * 100 - 4950},
        {bf16, {2, 2, 128, 0.1f, 100}, {200}, {333}, 0, 200 * 100},
        // As Gemma 2 has both, over several tiles.
        {f32, {2, 1, 256, 0.0625f, 20, 50.0f}, {40}, {}, 0, 40 * 20 - 190},
        {bf16, {2, 1, 256, 0.0625f, 100, 50.0f}, {150}, {}, 0, 150 * 100 - 4950},
        {bf16, {2, 1, 128, 0.09f, 150, 20.0f}, {400, 3}, {}, 0, 400 * 150 - 11175 + 6},
        {bf16, {2, 1, 96, 0.1f, 0, 20.0f}, {190}, {}, 0, 18145},
        {bf16, {2, 1, 128, 0.09f, 200}, {500}, {}, 0, 500 * 200 - 19900},
        // Few queries against long caches, in pieces on a card.
        {bf16, {8, 2, 80, 0.11f}, {1}, {300}, 0, 300, 100},
        {bf16, {4, 2, 128, 0.09f}, {1, 0, 1}, {100, 5, 700}, 8, 800},
        {bf16, {6, 2, 64, 0.125f}, {3, 4, 0, 1}, {128, 129, 0, 513}, 0, 381 + 510 + 513},
        {bf16, {2, 1, 64, 0.125f, 150, 9.0f}, {2, 4}, {600, 400}, 0, 6 * 150},
        {bf16, {40, 1, 64, 0.125f}, {1}, {200}, 0, 200},
        {f32, {4, 2, 40, 0.15f}, {2, 1}, {300, 40}, 0, 599 + 40, 7},
    };
    return kCases;
}

inline AttentionSegments attention_segments(const AttentionCase& c) {
    AttentionSegments segments{{0}, {0}};
    for (std::size_t s = 0; s < c.lengths.size(); ++s) {
        segments.cu_q.push_back(segments.cu_q.back() + c.lengths[s]);
        segments.cu_k.push_back(segments.cu_k.back() +
                                (c.key_lengths.empty() ? c.lengths[s] : c.key_lengths[s]));
    }
    return segments;
}

// Positions of one query's keys: those that it sees, their scores and the scores' derivatives by q . k.
struct AttentionRow {
    std::int64_t begin, end;
    std::vector<double> probabilities, slopes;
    double lse;
};
inline AttentionRow attention_row(const double* q, const double* k, const AttentionShape& shape,
                                  std::int64_t position) {
    const std::int64_t pitch = shape.num_kv_heads * shape.head_dim;
    AttentionRow row;
    row.begin = shape.window > 0 ? std::max<std::int64_t>(0, position - shape.window + 1) : 0;
    row.end = position + 1;
    double maximum = -HUGE_VAL;
    for (std::int64_t j = row.begin; j < row.end; ++j) {
        double score = 0;
        for (std::int64_t e = 0; e < shape.head_dim; ++e)
            score += q[e] * k[j * pitch + e];
        score *= static_cast<double>(shape.scale);
        double slope = static_cast<double>(shape.scale);
        if (shape.softcap > 0) {
            const double t = std::tanh(score / static_cast<double>(shape.softcap));
            score = static_cast<double>(shape.softcap) * t;
            slope *= 1 - t * t;
        }
        row.probabilities.push_back(score);
        row.slopes.push_back(slope);
        maximum = std::max(maximum, score);
    }
    double sum = 0;
    for (double& score : row.probabilities)
        sum += score = std::exp(score - maximum);
    for (double& score : row.probabilities)
        score /= sum;
    row.lse = maximum + std::log(sum);
    return row;
}

// Calls body(row, head, q, k, v, attention_row): the offsets of the query and of the segment's first key
// and value in `x`, which holds q, k, v end to end.
template <typename Body>
void for_attention_rows(const std::vector<double>& x, const AttentionShape& shape,
                        const AttentionSegments& segments, const Body& body) {
    const std::int64_t heads = shape.num_heads, kv_heads = shape.num_kv_heads, d = shape.head_dim;
    const std::int64_t first_k = segments.cu_q.back() * heads * d;
    const std::int64_t first_v = first_k + segments.cu_k.back() * kv_heads * d;
    for (std::size_t s = 0; s + 1 < segments.cu_q.size(); ++s) {
        const std::int64_t lq = segments.cu_q[s + 1] - segments.cu_q[s];
        const std::int64_t lk = segments.cu_k[s + 1] - segments.cu_k[s];
        for (std::int64_t i = 0; i < lq; ++i) {
            for (std::int64_t h = 0; h < heads; ++h) {
                const std::int64_t row = segments.cu_q[s] + i;
                const std::int64_t at = (segments.cu_k[s] * kv_heads + h / (heads / kv_heads)) * d;
                const std::int64_t q = (row * heads + h) * d;
                body(row, h, q, first_k + at, first_v + at,
                     attention_row(x.data() + q, x.data() + first_k + at, shape, lk - lq + i));
            }
        }
    }
}

// q, k, v end to end; gives out, then lse.
inline std::vector<double> attention_reference(const std::vector<double>& x,
                                               const AttentionShape& shape,
                                               const AttentionSegments& segments) {
    const std::int64_t heads = shape.num_heads, d = shape.head_dim;
    const std::int64_t tq = segments.cu_q.back(), pitch = shape.num_kv_heads * d;
    std::vector<double> out(static_cast<std::size_t>(tq * heads * (d + 1)), 0.0);
    for_attention_rows(
        x, shape, segments,
        [&](std::int64_t row, std::int64_t h, std::int64_t q, std::int64_t /*k*/, std::int64_t v,
            const AttentionRow& seen) {
            for (std::int64_t j = seen.begin; j < seen.end; ++j)
                for (std::int64_t e = 0; e < d; ++e)
                    out[static_cast<std::size_t>(q + e)] +=
                        seen.probabilities[static_cast<std::size_t>(j - seen.begin)] *
                        x[static_cast<std::size_t>(v + j * pitch + e)];
            out[static_cast<std::size_t>(tq * heads * d + row * heads + h)] = seen.lse;
        });
    return out;
}

// The sizes of what is summed: sums of |p v| for out, of |ds k|, |ds q| and |p dout| for dq, dk and dv
// (in the order of x). Rounding p or ds to a type moves a sum by at most the type's unit times that.
struct AttentionSizes {
    std::vector<double> out, gradients;
};
inline AttentionSizes attention_sizes(const std::vector<double>& x, const std::vector<double>& dout,
                                      const AttentionShape& shape,
                                      const AttentionSegments& segments) {
    const std::int64_t d = shape.head_dim, pitch = shape.num_kv_heads * d;
    AttentionSizes sizes{
        std::vector<double>(static_cast<std::size_t>(segments.cu_q.back() * shape.num_heads * d)),
        std::vector<double>(x.size())};
    for_attention_rows(
        x, shape, segments,
        [&](std::int64_t, std::int64_t, std::int64_t q, std::int64_t k, std::int64_t v,
            const AttentionRow& seen) {
            std::vector<double> dp(seen.slopes.size(), 0.0);
            double delta = 0;
            for (std::size_t j = 0; j < dp.size(); ++j) {
                const std::int64_t key = (seen.begin + static_cast<std::int64_t>(j)) * pitch;
                for (std::int64_t e = 0; e < d; ++e)
                    dp[j] += dout[static_cast<std::size_t>(q + e)] *
                             x[static_cast<std::size_t>(v + key + e)];
                delta += seen.probabilities[j] * dp[j];
            }
            for (std::size_t j = 0; j < dp.size(); ++j) {
                const std::int64_t key = (seen.begin + static_cast<std::int64_t>(j)) * pitch;
                const double p = seen.probabilities[j];
                const double ds = std::abs(p * (dp[j] - delta) * seen.slopes[j]);
                for (std::int64_t e = 0; e < d; ++e) {
                    const auto at_q = static_cast<std::size_t>(q + e);
                    const auto at_k = static_cast<std::size_t>(k + key + e);
                    const auto at_v = static_cast<std::size_t>(v + key + e);
                    sizes.out[at_q] += p * std::abs(x[at_v]);
                    sizes.gradients[at_q] += ds * std::abs(x[at_k]);
                    sizes.gradients[at_k] += ds * std::abs(x[at_q]);
                    sizes.gradients[at_v] += p * std::abs(dout[at_q]);
                }
            }
        });
    return sizes;
}

}  // namespace garam::testing
