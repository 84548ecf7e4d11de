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
    double pairs;  // (query, key) that the mask allows
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

// q, k, v end to end; gives out, then lse.
inline std::vector<double> attention_reference(const std::vector<double>& x,
                                               const AttentionShape& shape,
                                               const AttentionSegments& segments) {
    const std::int64_t heads = shape.num_heads, kv_heads = shape.num_kv_heads, d = shape.head_dim;
    const std::int64_t tq = segments.cu_q.back(), tk = segments.cu_k.back();
    const double* const q = x.data();
    const double* const k = q + tq * heads * d;
    const double* const v = k + tk * kv_heads * d;
    std::vector<double> out(static_cast<std::size_t>(tq * heads * (d + 1)), 0.0);
    for (std::size_t s = 0; s + 1 < segments.cu_q.size(); ++s) {
        const std::int64_t lq = segments.cu_q[s + 1] - segments.cu_q[s];
        const std::int64_t lk = segments.cu_k[s + 1] - segments.cu_k[s];
        for (std::int64_t i = 0; i < lq; ++i) {
            for (std::int64_t h = 0; h < heads; ++h) {
                const std::int64_t row = segments.cu_q[s] + i;
                const std::int64_t kv = h / (heads / kv_heads);
                std::vector<double> scores;
                double maximum = -HUGE_VAL;
                for (std::int64_t j = 0; j <= lk - lq + i; ++j) {
                    double dot = 0;
                    for (std::int64_t e = 0; e < d; ++e)
                        dot += q[(row * heads + h) * d + e] *
                               k[((segments.cu_k[s] + j) * kv_heads + kv) * d + e];
                    scores.push_back(static_cast<double>(shape.scale) * dot);
                    maximum = std::max(maximum, scores.back());
                }
                double sum = 0;
                for (double& score : scores)
                    sum += score = std::exp(score - maximum);
                double* const y = out.data() + (row * heads + h) * d;
                for (std::size_t j = 0; j < scores.size(); ++j)
                    for (std::int64_t e = 0; e < d; ++e)
                        y[e] +=
                            scores[j] / sum *
                            v[((segments.cu_k[s] + static_cast<std::int64_t>(j)) * kv_heads + kv) *
                                  d +
                              e];
                out[static_cast<std::size_t>(tq * heads * d + row * heads + h)] =
                    maximum + std::log(sum);
            }
        }
    }
    return out;
}

}  // namespace garam::testing
