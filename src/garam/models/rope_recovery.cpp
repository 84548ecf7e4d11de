#include "garam/models/rope_recovery.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "garam/models/rope.h"

namespace garam {
namespace {

// The divisors were rounded to fp32 once and the frequencies on either way a few times: four roundings
// of 2^-24 relative each.
constexpr double kRounding = 0x1p-22;

bool reproduces(const RopeConfig& candidate, const std::vector<float>& wanted) {
    const std::vector<float> made =
        rope_inverse_frequencies(candidate, 2 * static_cast<std::int64_t>(wanted.size()));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const double difference = static_cast<double>(made[i]) - static_cast<double>(wanted[i]);
        if (std::abs(difference) > kRounding * static_cast<double>(wanted[i])) return false;
    }
    return true;
}

RopeConfig llama3(double theta, double factor, double high, double original) {
    RopeConfig rope;
    rope.kind = RopeConfig::Kind::llama3;
    rope.theta = theta;
    rope.factor = factor;
    rope.low_freq_factor = 1;
    rope.high_freq_factor = high;
    rope.original_max_position = original;
    return rope;
}

}  // namespace

std::optional<RopeConfig> recover_rope(const std::vector<double>& divisors, double theta) {
    RopeConfig plain;
    plain.theta = theta;
    if (std::all_of(divisors.begin(), divisors.end(), [](double d) { return d == 1; }))
        return plain;
    if (std::all_of(divisors.begin(), divisors.end(),
                    [&](double d) { return d == divisors.front(); })) {
        plain.kind = RopeConfig::Kind::linear;
        plain.factor = divisors.front();
        return plain;
    }

    RopeConfig given = plain;
    given.kind = RopeConfig::Kind::divisors;
    given.divisors = divisors;
    const auto rotary_dim = 2 * static_cast<std::int64_t>(divisors.size());
    const std::vector<float> wanted = rope_inverse_frequencies(given, rotary_dim);
    const std::vector<float> unscaled = rope_inverse_frequencies(plain, rotary_dim);
    const double factor = *std::max_element(divisors.begin(), divisors.end());

    // With w = original / wavelength, a blended frequency has 1/d = (1 - s) / factor + s with
    // s = (w - low) / (high - low): linear in the frequency. low = 1 fixes the common factor.
    struct Blended {
        double turns;  // of one position: frequency / 2 pi
        double s;
    };
    std::vector<Blended> blended;
    double slowest_kept = 0;     // turns of the slowest frequency left alone
    double fastest_divided = 0;  // and of the fastest divided by the whole factor
    for (std::size_t i = 0; i < divisors.size(); ++i) {
        const double turns = static_cast<double>(unscaled[i]) / (2 * std::numbers::pi);
        if (divisors[i] == 1) {
            slowest_kept = turns;
        } else if (divisors[i] == factor) {
            fastest_divided = std::max(fastest_divided, turns);
        } else {
            blended.push_back({turns, (1 / divisors[i] - 1 / factor) / (1 - 1 / factor)});
        }
    }

    std::vector<RopeConfig> candidates;
    constexpr double kLlamaHigh = 4;
    if (blended.empty()) {
        // Any original length between the two bands gives the same frequencies.
        for (double original = 1; original <= 0x1p24; original *= 2) {
            if (original * slowest_kept > kLlamaHigh && original * fastest_divided < 1)
                candidates.push_back(llama3(theta, factor, kLlamaHigh, original));
        }
    } else {
        const Blended& first = blended.front();
        const double original = (1 + first.s * (kLlamaHigh - 1)) / first.turns;
        candidates.push_back(llama3(theta, factor, kLlamaHigh, std::round(original)));
    }
    if (blended.size() > 1) {
        const Blended& a = blended.front();
        const Blended& b = blended.back();
        // s = slope * turns - offset, offset = 1 / (high - 1), slope = original / (high - 1).
        const double slope = (a.s - b.s) / (a.turns - b.turns);
        const double offset = slope * a.turns - a.s;
        if (offset > 0 && slope > 0) {
            const double high = 1 + 1 / offset;
            candidates.push_back(llama3(theta, factor, high, slope / offset));
            // Published parameters are round.
            const double round_high = std::round(high * 64) / 64;
            candidates.push_back(
                llama3(theta, factor, round_high, std::round(slope * (round_high - 1))));
            std::swap(candidates[candidates.size() - 1], candidates[candidates.size() - 2]);
        }
    }
    for (const RopeConfig& candidate : candidates) {
        if (candidate.high_freq_factor > candidate.low_freq_factor &&
            candidate.original_max_position > 0 && reproduces(candidate, wanted))
            return candidate;
    }
    return std::nullopt;
}

}  // namespace garam
