#include "garam/models/rope.h"

#include <algorithm>
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

// theta of sequences of `longest` tokens.
double stretched_theta(const RopeConfig& rope, std::int64_t rotary_dim, std::int64_t longest) {
    const double length = static_cast<double>(longest) / rope.original_max_position;
    if (rope.kind != RopeConfig::Kind::dynamic || length <= 1) return rope.theta;
    const auto dim = static_cast<double>(rotary_dim);
    return rope.theta * std::pow(rope.factor * length - (rope.factor - 1), dim / (dim - 2));
}

// How much of a frequency yarn keeps: from 1 where a wavelength turns beta_fast times or more within the
// pretraining's length to 0 at beta_slow, linear in the frequency's number.
class YarnRamp {
  public:
    YarnRamp(const RopeConfig& rope, std::int64_t rotary_dim) {
        const auto dim = static_cast<double>(rotary_dim);
        const auto number_of = [&](double turns) {
            return dim * std::log(rope.original_max_position / (turns * 2 * std::numbers::pi)) /
                   (2 * std::log(rope.theta));
        };
        double low = number_of(rope.beta_fast);
        double high = number_of(rope.beta_slow);
        if (rope.truncate) {
            low = std::floor(low);
            high = std::ceil(high);
        }
        low_ = static_cast<float>(std::max(low, 0.0));
        high = std::min(high, dim - 1);
        if (static_cast<double>(low_) == high) high += 0.001;
        width_ = static_cast<float>(high - std::max(low, 0.0));
    }
    float kept(std::int64_t i) const {
        return 1 - std::clamp((static_cast<float>(i) - low_) / width_, 0.0f, 1.0f);
    }

  private:
    float low_ = 0;
    float width_ = 1;
};

float yarn_scaled(float power, const RopeConfig& rope, float kept) {
    const float divided = 1 / (static_cast<float>(rope.factor) * power);
    return divided * (1 - kept) + 1 / power * kept;
}

}  // namespace

std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, std::int64_t rotary_dim,
                                            std::int64_t longest) {
    std::vector<float> frequencies;
    const double theta = stretched_theta(rope, rotary_dim, longest);
    const bool is_long = rope.longest_short() > 0 && longest > rope.longest_short();
    const std::vector<double>& divisors =
        rope.kind == RopeConfig::Kind::longrope && is_long ? rope.long_divisors : rope.divisors;
    for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
        const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
        const float power = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
        float frequency = 1.0f / power;
        switch (rope.kind) {
            case RopeConfig::Kind::standard:
            case RopeConfig::Kind::dynamic:
                break;
            case RopeConfig::Kind::linear:
                frequency /= static_cast<float>(rope.factor);
                break;
            case RopeConfig::Kind::llama3:
                frequency = llama3_scaled(frequency, rope);
                break;
            case RopeConfig::Kind::yarn:
                frequency = yarn_scaled(power, rope, YarnRamp(rope, rotary_dim).kept(i));
                break;
            case RopeConfig::Kind::longrope:
                frequency = 1 / (static_cast<float>(divisors[static_cast<std::size_t>(i)]) * power);
                break;
            case RopeConfig::Kind::divisors:
                frequency /= static_cast<float>(divisors[static_cast<std::size_t>(i)]);
                break;
        }
        frequencies.push_back(frequency);
    }
    return frequencies;
}

void fill_rope_tables(const std::vector<float>& inverse_frequencies, double scaling,
                      const Tensor& cos, const Tensor& sin) {
    const auto columns = static_cast<std::int64_t>(inverse_frequencies.size());
    GARAM_CHECK(cos.columns() == columns && sin.columns() == columns && cos.rows() == sin.rows(),
                "rope tables of another shape");
    const auto factor = static_cast<float>(scaling);
    float* const cos_data = cos.data<float>();
    float* const sin_data = sin.data<float>();
    parallel_for(cos.rows(), 64, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t position = begin; position < end; ++position) {
            for (std::int64_t i = 0; i < columns; ++i) {
                const float angle =
                    static_cast<float>(position) * inverse_frequencies[static_cast<std::size_t>(i)];
                cos_data[position * columns + i] =
                    factor * static_cast<float>(std::cos(static_cast<double>(angle)));
                sin_data[position * columns + i] =
                    factor * static_cast<float>(std::sin(static_cast<double>(angle)));
            }
        }
    });
}

}  // namespace garam
