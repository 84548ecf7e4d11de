#include "garam/models/rope_recovery.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "garam/models/rope.h"

namespace garam {
namespace {

// The divisors were rounded to fp32 once and the frequencies on either way a few times: four roundings
// of 2^-24 relative each.
constexpr double kRounding = 0x1p-22;

// high_freq_factor over low_freq_factor, where the frequencies leave it open. Llama's own first.
constexpr std::array kHighFactors = {4.0, 2.0, 8.0, 3.0, 1.5, 16.0, 1.25, 1.125};

bool reproduces(const RopeConfig& candidate, const std::vector<float>& wanted) {
    const std::vector<float> made =
        rope_inverse_frequencies(candidate, 2 * static_cast<std::int64_t>(wanted.size()));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const double difference = static_cast<double>(made[i]) - static_cast<double>(wanted[i]);
        // Not "above": NaN is no agreement.
        if (!(std::abs(difference) <= kRounding * static_cast<double>(wanted[i]))) return false;
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

// A frequency between the two bands of a llama3 setting. With w = original / wavelength its divisor d has
// 1/d = (1 - s) / factor + s and s = (w - low) / (high - low): linear in the frequency.
struct Blended {
    double turns = 0;  // of one position: frequency / 2 pi
    double s = 0;
};

struct Bands {
    double factor = 1;
    double slowest_kept = 0;     // turns of the slowest frequency left alone
    double fastest_divided = 0;  // and of the fastest divided by the whole factor
    std::vector<Blended> blended;
};

Bands bands_of(const std::vector<double>& divisors, const std::vector<float>& unscaled) {
    Bands bands;
    bands.factor = *std::max_element(divisors.begin(), divisors.end());
    for (std::size_t i = 0; i < divisors.size(); ++i) {
        const double turns = static_cast<double>(unscaled[i]) / (2 * std::numbers::pi);
        if (divisors[i] == 1) {
            bands.slowest_kept = turns;
        } else if (divisors[i] == bands.factor) {
            bands.fastest_divided = std::max(bands.fastest_divided, turns);
        } else {
            const double s = (1 / divisors[i] - 1 / bands.factor) / (1 - 1 / bands.factor);
            bands.blended.push_back({turns, s});
        }
    }
    return bands;
}

// Settings that may have made these bands, the likeliest first; low = 1 fixes the common factor.
std::vector<RopeConfig> candidates_for(const Bands& bands, double theta) {
    std::vector<RopeConfig> candidates;
    const auto add = [&](double high, double original) {
        candidates.push_back(llama3(theta, bands.factor, high, original));
    };
    if (bands.blended.empty()) {
        // Any original length that separates the two bands gives the same frequencies.
        for (const double high : kHighFactors) {
            const double shortest = high / bands.slowest_kept;
            const double longest =
                bands.fastest_divided > 0 ? 1 / bands.fastest_divided : 2 * shortest;
            add(high, std::exp2(std::floor(std::log2(longest))));
            add(high, std::sqrt(shortest * longest));
        }
        return candidates;
    }
    // One blended frequency leaves a line of settings open: all that keep the other frequencies where
    // they are agree.
    const Blended& a = bands.blended.front();
    const Blended& b = bands.blended.back();
    for (const double high : kHighFactors) {
        const double original = (1 + a.s * (high - 1)) / a.turns;
        add(high, std::round(original));
        add(high, original);
    }
    if (bands.blended.size() == 1) return candidates;
    // s = slope * turns - offset, offset = 1 / (high - 1), slope = original / (high - 1).
    const double slope = (a.s - b.s) / (a.turns - b.turns);
    const double offset = slope * a.turns - a.s;
    if (offset > 0 && slope > 0) {
        const double high = 1 + 1 / offset;
        const double round_high = std::round(high * 64) / 64;  // published ones are round
        add(round_high, std::round(slope * (round_high - 1)));
        add(high, slope / offset);
    }
    return candidates;
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
    for (const RopeConfig& candidate : candidates_for(bands_of(divisors, unscaled), theta)) {
        if (candidate.high_freq_factor > candidate.low_freq_factor &&
            candidate.original_max_position > 0 && reproduces(candidate, wanted))
            return candidate;
    }
    return std::nullopt;
}

}  // namespace garam
