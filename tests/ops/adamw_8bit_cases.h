// Cases of adamw_8bit_step, and its reference: the formulas of its header, one rounding an
// operation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "garam/core/dynamic_code_tables.h"
#include "garam/ops/adamw_8bit.h"

namespace garam::testing {

// Tensors of `elements`, each behind `skipped` floats of its memory (which take it from the
// alignment of vectors). `blocks` of them from `first_block` on are updated.
struct AdamW8bitCase {
    std::vector<std::int64_t> elements;
    std::int64_t skipped, first_block, blocks;
    AdamWOptions options;
    float gradient_scale;
    std::int64_t updated;  // elements of those blocks

    Cost cost() const {
        const auto n = static_cast<double>(updated);
        const auto scales = 8.0 * static_cast<double>(blocks);
        return {20 * n, 10 * n + scales, 6 * n + scales};
    }
};

inline const std::vector<AdamW8bitCase>& adamw_8bit_cases() {
    const AdamWOptions first{1e-3, 0.9, 0.999, 1e-8, 0.01, 1};
    const AdamWOptions later{2e-4, 0.9, 0.999, 1e-8, 0.1, 50};
    const AdamWOptions other{1e-2, 0.8, 0.95, 1e-6, 0.0, 7};
    static const std::vector<AdamW8bitCase> kCases = {
        {{256}, 0, 0, 1, first, 1.0f, 256},
        {{1}, 1, 0, 1, later, 0.5f, 1},
        {{4096, 5000}, 0, 0, 36, later, 0.125f, 9096},
        {{300, 7, 0, 513}, 3, 0, 6, other, 2.5f, 820},
        // Some of the blocks, from within one tensor to within another.
        {{1000, 600, 700}, 0, 2, 7, later, 1.0f, 488 + 600 + 512},
        {std::vector<std::int64_t>(150, 260), 0, 0, 300, later, 1.0f, 150 * 260},
        {{200001}, 0, 0, 782, other, 1.0f, 200001},
        {{512}, 0, 1, 0, later, 1.0f, 0},
    };
    return kCases;
}

struct AdamW8bitBlock {
    std::vector<float> weight;
    std::vector<std::uint8_t> m_codes, v_codes;
    float m_absmax, v_absmax;
};

// The code nearest to x; of two, the even one.
inline std::uint8_t nearest_dynamic_code(const DynamicCode& code, float x) {
    int at = 0;
    while (at < 255) {
        const float middle = (code.value[at] + code.value[at + 1]) * 0.5f;
        if (x < middle || (x == middle && at % 2 == 0)) break;
        ++at;
    }
    return static_cast<std::uint8_t>(at);
}

// One block, in place. `guarded` is false to see what the guard is for.
inline void adamw_8bit_reference(const AdamWOptions& o, float gradient_scale,
                                 const std::vector<float>& gradient, AdamW8bitBlock& block,
                                 bool guarded = true) {
    const auto t = static_cast<double>(o.step);
    const double root = std::sqrt(1 - std::pow(o.beta2, t));
    const auto b1 = static_cast<float>(o.beta1);
    const auto b2 = static_cast<float>(o.beta2);
    const auto step_size = static_cast<float>(-o.learning_rate * root / (1 - std::pow(o.beta1, t)));
    const float epsilon = static_cast<float>(root) * static_cast<float>(o.epsilon);
    const auto decay = static_cast<float>(1 - o.learning_rate * o.weight_decay);
    const std::size_t n = block.weight.size();
    std::vector<float> m(n), v(n);
    float m_largest = 0;
    float v_largest = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const float g = gradient[i] * gradient_scale;
        m[i] = kSignedDynamicCode.value[block.m_codes[i]] * block.m_absmax * b1 + g * (1.0f - b1);
        v[i] = kUnsignedDynamicCode.value[block.v_codes[i]] * block.v_absmax * b2 +
               g * (1.0f - b2) * g;
        block.weight[i] += step_size * (m[i] / (std::sqrt(v[i]) + epsilon));
        block.weight[i] *= decay;
        m_largest = std::max(m_largest, std::abs(m[i]));
        v_largest = std::max(v_largest, v[i]);
    }
    for (std::size_t i = 0; i < n; ++i) {
        std::uint8_t& m_code = block.m_codes[i];
        std::uint8_t& v_code = block.v_codes[i];
        m_code = nearest_dynamic_code(kSignedDynamicCode, m_largest > 0 ? m[i] / m_largest : 0);
        v_code = nearest_dynamic_code(kUnsignedDynamicCode, v_largest > 0 ? v[i] / v_largest : 0);
        if (m_code == 127 && m[i] < 0) m_code = 126;
        if (guarded && v_code == 0 && (v[i] > 0 || m_code != 127)) v_code = 1;
    }
    block.m_absmax = m_largest;
    block.v_absmax = v_largest;
}

}  // namespace garam::testing
