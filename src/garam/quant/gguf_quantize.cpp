#include "garam/quant/gguf_quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "garam/core/dtype.h"
#include "garam/core/error.h"
#include "garam/quant/gguf_blocks.h"

namespace garam {
namespace {

constexpr int kHalf = 16;
constexpr int kGroup = 32;
constexpr int kGroups = 8;
constexpr int kMostCode = 15;
constexpr int kMostScale = 63;

std::int64_t blocks_in(std::int64_t count, std::int64_t block) {
    GARAM_CHECK(count % block == 0, "GGUF blocks hold 32 or 256 elements each");
    return count / block;
}

// The value that is stored; infinite beyond f16's range.
float put_f16(float value, std::byte* place) {
    const float16 half(value);
    std::memcpy(place, &half.bits, sizeof half.bits);
    return static_cast<float>(half);
}

// 0 where the inverse is beyond fp32: d is then far below what f16 holds, and stored as 0.
float inverse_of(float d) {
    const float inverse = 1.0f / d;
    return std::isfinite(inverse) ? inverse : 0.0f;
}

struct Fit {
    float scale = 0;
    float minimum = 0;
    float error = 0;
};

using Codes = std::array<std::int32_t, kGroup>;

// One group of 32 with its weights.
class Group {
  public:
    explicit Group(const float* values) {
        std::copy_n(values, kGroup, x_.begin());
        const auto [low, high] = std::minmax_element(x_.begin(), x_.end());
        low_ = std::min(*low, 0.0f);  // the minimum t is not negative
        high_ = *high;
        const float rms = std::sqrt(sum([&](int i) { return x_[i] * x_[i]; }) / kGroup);
        for (int i = 0; i < kGroup; ++i)
            w_[i] = rms + std::abs(x_[i]);
        weights_ = sum([&](int i) { return w_[i]; });
        weighted_ = sum([&](int i) { return w_[i] * x_[i]; });
    }

    Fit best() const {
        if (high_ <= low_) return {0, -low_, 0};  // all the same and not positive
        const float inverse = inverse_of(high_ - low_);
        Fit best = solve(codes(static_cast<float>(kMostCode) * inverse, low_));
        for (int k = -10; k <= 10; ++k) {
            if (k == 0) continue;
            const float range = static_cast<float>(kMostCode) + 0.1f * static_cast<float>(k);
            take_better(best, solve(codes(range * inverse, low_)));
        }
        take_better(best, solve(nearest(best.scale, best.minimum)));
        return best;
    }

    float error(float scale, float minimum, const Codes& q) const {
        return sum([&](int i) {
            const float off = scale * static_cast<float>(q[i]) - minimum - x_[i];
            return w_[i] * off * off;
        });
    }

    // The nearest codes of scale and minimum as they will be decoded.
    Codes nearest(float scale, float minimum) const { return codes(inverse_of(scale), -minimum); }

  private:
    static void take_better(Fit& best, const Fit& other) {
        if (other.error < best.error) best = other;
    }

    // Four sums side by side, for vector code; the order is fixed.
    template <typename Term>
    static float sum(const Term& term) {
        std::array<float, 4> lanes{};
        for (int i = 0; i < kGroup; i += 4) {
            for (int lane = 0; lane < 4; ++lane)
                lanes[static_cast<std::size_t>(lane)] += term(i + lane);
        }
        return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    }

    Codes codes(float inverse, float low) const {
        Codes q;
        for (int i = 0; i < kGroup; ++i) {
            const float place = std::max((x_[i] - low) * inverse + 0.5f, 0.0f);
            q[i] = static_cast<std::int32_t>(std::min(place, static_cast<float>(kMostCode) + 0.5f));
        }
        return q;
    }

    Fit solve(const Codes& q) const {
        const auto code = [&](int i) { return static_cast<float>(q[i]); };
        const float L = sum([&](int i) { return w_[i] * code(i); });
        const float Q = sum([&](int i) { return w_[i] * code(i) * code(i); });
        const float C = sum([&](int i) { return w_[i] * x_[i] * code(i); });
        const float D = weights_ * Q - L * L;
        Fit fit;
        // Codes that are all the same determine one of the two only.
        if (D > 1e-5f * weights_ * Q) {
            fit.scale = (weights_ * C - weighted_ * L) / D;
            fit.minimum = (L * C - Q * weighted_) / D;
            if (fit.minimum < 0) {
                fit.minimum = 0;
                fit.scale = Q > 0 ? C / Q : 0;
            }
        } else if (weighted_ > 0) {
            fit.scale = Q > 0 ? C / Q : 0;
        } else {
            fit.minimum = -weighted_ / weights_;
        }
        fit.scale = std::max(fit.scale, 0.0f);
        fit.error = error(fit.scale, fit.minimum, q);
        return fit;
    }

    std::array<float, kGroup> x_{};
    std::array<float, kGroup> w_{};
    float low_ = 0;
    float high_ = 0;
    float weights_ = 0;   // sum of w
    float weighted_ = 0;  // sum of w x
};

// 6 bits of `step` that are nearest to `value`.
int scale_code(float value, float step) {
    if (!(step > 0)) return 0;
    return std::clamp(static_cast<int>(std::lround(value / step)), 0, kMostScale);
}

bool quantize_block(const float* values, std::byte* block) {
    // No scale of f16 reaches these, nor do their squares stay within fp32.
    constexpr float kLargest = 1e9f;
    for (std::int64_t i = 0; i < kGgufSuperBlock; ++i) {
        if (!(std::abs(values[i]) < kLargest)) return false;
    }
    std::array<Fit, kGroups> fits;
    float largest_scale = 0;
    float largest_minimum = 0;
    for (std::size_t g = 0; g < kGroups; ++g) {
        fits[g] = Group(values + g * kGroup).best();
        largest_scale = std::max(largest_scale, fits[g].scale);
        largest_minimum = std::max(largest_minimum, fits[g].minimum);
    }
    const float d = put_f16(largest_scale / kMostScale, block);
    const float m = put_f16(largest_minimum / kMostScale, block + 2);
    if (!std::isfinite(d) || !std::isfinite(m)) return false;

    GroupScales scales;
    std::array<Codes, kGroups> codes;
    for (std::size_t g = 0; g < kGroups; ++g) {
        const Group group(values + g * kGroup);
        const int near_scale = scale_code(fits[g].scale, d);
        const int near_minimum = scale_code(fits[g].minimum, m);
        float least = INFINITY;
        for (int s = std::max(near_scale - 1, 0); s <= std::min(near_scale + 1, kMostScale); ++s) {
            for (int t = std::max(near_minimum - 1, 0); t <= std::min(near_minimum + 1, kMostScale);
                 ++t) {
                const float scale = d * static_cast<float>(s);
                const float minimum = m * static_cast<float>(t);
                const Codes q = group.nearest(scale, minimum);
                const float error = group.error(scale, minimum, q);
                if (!(error < least)) continue;
                least = error;
                scales.scale[g] = static_cast<std::uint8_t>(s);
                scales.minimum[g] = static_cast<std::uint8_t>(t);
                codes[g] = q;
            }
        }
    }
    pack_group_scales(scales, block + 4);
    for (std::size_t pair = 0; pair < kGroups / 2; ++pair) {
        for (std::size_t i = 0; i < kGroup; ++i)
            block[16 + pair * kGroup + i] =
                static_cast<std::byte>(codes[2 * pair][i] | codes[2 * pair + 1][i] << 4);
    }
    return true;
}

}  // namespace

bool quantize_q8_0(const float* values, std::int64_t count, std::byte* blocks) {
    const std::int64_t num_blocks = blocks_in(count, kGgufBlock);
    for (std::int64_t b = 0; b < num_blocks; ++b, values += kGgufBlock, blocks += kQ8_0Bytes) {
        float largest = 0;
        for (int i = 0; i < kGgufBlock; ++i)
            largest = std::max(largest, std::abs(values[i]));
        const float d = largest / 127.0f;
        const float inverse = inverse_of(d);
        if (!std::isfinite(put_f16(d, blocks))) return false;
        for (int i = 0; i < kGgufBlock; ++i) {
            const float q = std::clamp(std::round(values[i] * inverse), -127.0f, 127.0f);
            blocks[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(q));
        }
    }
    return true;
}

bool quantize_q4_0(const float* values, std::int64_t count, std::byte* blocks) {
    const std::int64_t num_blocks = blocks_in(count, kGgufBlock);
    for (std::int64_t b = 0; b < num_blocks; ++b, values += kGgufBlock, blocks += kQ4_0Bytes) {
        float extreme = 0;
        for (int i = 0; i < kGgufBlock; ++i) {
            if (std::abs(values[i]) > std::abs(extreme)) extreme = values[i];
        }
        const float d = extreme / -8.0f;
        const float inverse = inverse_of(d);
        if (!std::isfinite(put_f16(d, blocks))) return false;
        const auto code = [&](float x) {
            return static_cast<int>(std::clamp(x * inverse + 8.5f, 0.0f, 15.0f));
        };
        for (int i = 0; i < kHalf; ++i)
            blocks[2 + i] = static_cast<std::byte>(code(values[i]) | code(values[i + kHalf]) << 4);
    }
    return true;
}

bool quantize_q4_k(const float* values, std::int64_t count, std::byte* blocks) {
    const std::int64_t num_blocks = blocks_in(count, kGgufSuperBlock);
    for (std::int64_t b = 0; b < num_blocks; ++b) {
        if (!quantize_block(values + b * kGgufSuperBlock,
                            blocks + static_cast<std::size_t>(b) * kQ4KBytes))
            return false;
    }
    return true;
}

}  // namespace garam
