#include "garam/models/rope.h"

#include <cmath>
#include <numbers>

#include "garam/core/parallel.h"

namespace garam {
namespace {

// In fp32 and in this order, as the reference computes it.
float llama3_scaled(float frequency, const RopeConfig& rope) {
    const auto original = static_cast<float>(rope.original_max_position);
    const auto factor = static_cast<float>(rope.factor);
    const auto low = static_cast<float>(rope.low_freq_factor);
    const auto high = static_cast<float>(rope.high_freq_factor);
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
    if (wavelength > original / low) return frequency / factor;
    if (wavelength < original / high) return frequency;
    const float smooth = (original / wavelength - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, std::int64_t rotary_dim) {
    std::vector<float> frequencies;
    for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
        const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
        const float power = static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)));
        float frequency = 1.0f / power;
        switch (rope.kind) {
            case RopeConfig::Kind::standard:
                break;
            case RopeConfig::Kind::linear:
                frequency /= static_cast<float>(rope.factor);
                break;
            case RopeConfig::Kind::llama3:
                frequency = llama3_scaled(frequency, rope);
                break;
            case RopeConfig::Kind::divisors:
                frequency /= static_cast<float>(rope.divisors[static_cast<std::size_t>(i)]);
                break;
        }
        frequencies.push_back(frequency);
    }
    return frequencies;
}

void fill_rope_tables(const std::vector<float>& inverse_frequencies, const Tensor& cos,
                      const Tensor& sin) {
    const auto columns = static_cast<std::int64_t>(inverse_frequencies.size());
    GARAM_CHECK(cos.columns() == columns && sin.columns() == columns && cos.rows() == sin.rows(),
                "rope tables of another shape");
    float* const cos_data = cos.data<float>();
    float* const sin_data = sin.data<float>();
    parallel_for(cos.rows(), 64, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t position = begin; position < end; ++position) {
            for (std::int64_t i = 0; i < columns; ++i) {
                const float angle =
                    static_cast<float>(position) * inverse_frequencies[static_cast<std::size_t>(i)];
                cos_data[position * columns + i] =
                    static_cast<float>(std::cos(static_cast<double>(angle)));
                sin_data[position * columns + i] =
                    static_cast<float>(std::sin(static_cast<double>(angle)));
            }
        }
    });
}

}  // namespace garam
