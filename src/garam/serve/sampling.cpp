#include "garam/serve/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "garam/core/error.h"

namespace garam {
namespace {

void require(bool allowed, const char* option, double value, const char* range) {
    if (allowed) return;
    throw Error(std::string(option) + " must be " + range + ", not " + std::to_string(value));
}

// Chance has one place in the program's streams of random numbers a purpose; this is sampling's.
constexpr std::uint64_t kSamplingStream = 0x73616d706c65;  // "sample"

}  // namespace

void SamplingOptions::check() const {
    // Negated comparisons would let NaN through.
    require(temperature >= 0 && std::isfinite(temperature), "temperature", temperature, ">= 0");
    require(top_k >= 0, "top-k", static_cast<double>(top_k), ">= 0 (0: off)");
    require(top_p > 0 && top_p <= 1, "top-p", top_p, "in (0, 1] (1: off)");
    require(min_p >= 0 && min_p <= 1, "min-p", min_p, "in [0, 1] (0: off)");
    require(repetition_penalty > 0 && std::isfinite(repetition_penalty), "repetition-penalty",
            repetition_penalty, "> 0 (1: off)");
}

void apply_repetition_penalty(std::span<float> logits, std::span<const std::int32_t> seen,
                              double penalty) {
    std::vector<std::int32_t> ids(seen.begin(), seen.end());
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    const auto factor = static_cast<float>(penalty);
    for (const std::int32_t id : ids) {
        GARAM_CHECK(id >= 0 && static_cast<std::size_t>(id) < logits.size(),
                    "id beyond the logits");
        float& logit = logits[static_cast<std::size_t>(id)];
        logit = logit < 0 ? logit * factor : logit / factor;
    }
}

std::int32_t greedy_choice(std::span<const float> logits) {
    GARAM_CHECK(!logits.empty(), "no logits");
    // The largest first, as integers in the order of the floats they are: loops that become vectors.
    std::int32_t largest = std::numeric_limits<std::int32_t>::min();
    std::int32_t furthest = 0;  // from zero
    for (const float logit : logits) {
        const auto bits = std::bit_cast<std::int32_t>(logit);
        const std::int32_t size = bits & 0x7fffffff;
        largest = std::max(largest, bits < 0 ? bits ^ 0x7fffffff : bits);
        furthest = std::max(furthest, size);
    }
    constexpr std::int32_t kInfinity = 0x7f800000;
    if (furthest > kInfinity)
        throw Error("the model computed NaN: its weights or adapter are damaged");
    const auto top = std::bit_cast<float>(largest < 0 ? largest ^ 0x7fffffff : largest);
    if (!std::isfinite(top))
        throw Error("the model computed infinite logits: its weights or adapter are damaged");
    return static_cast<std::int32_t>(std::find(logits.begin(), logits.end(), top) - logits.begin());
}

std::vector<Candidate> filtered_distribution(std::span<const float> logits,
                                             const SamplingOptions& options) {
    GARAM_CHECK(options.temperature > 0, "greedy choice has no distribution");
    const double top = logits[static_cast<std::size_t>(greedy_choice(logits))];
    std::vector<Candidate> kept;  // with logits in the place of probabilities at first
    kept.reserve(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i)
        kept.push_back({static_cast<std::int32_t>(i), logits[i]});

    const auto likelier = [](const Candidate& a, const Candidate& b) {
        return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
    };
    if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < kept.size()) {
        // Reading each logit as it came keeps ties exact: the division by the temperature is later.
        const auto last = kept.begin() + options.top_k - 1;
        std::nth_element(kept.begin(), last, kept.end(), likelier);
        const double least = last->probability;
        std::erase_if(kept, [least](const Candidate& c) { return c.probability < least; });
    }
    double sum = 0;
    for (Candidate& candidate : kept) {
        candidate.probability = std::exp((candidate.probability - top) / options.temperature);
    }
    std::sort(kept.begin(), kept.end(), likelier);
    for (const Candidate& candidate : kept)
        sum += candidate.probability;
    if (options.top_p < 1) {
        double before = 0;
        std::size_t count = 0;
        while (count < kept.size() && before < options.top_p * sum)
            before += kept[count++].probability;
        kept.resize(std::max<std::size_t>(count, 1));
    }
    if (options.min_p > 0) {
        const double least = options.min_p * kept.front().probability;
        std::erase_if(kept, [least](const Candidate& c) { return c.probability < least; });
    }
    std::erase_if(kept, [](const Candidate& c) { return c.probability == 0; });
    sum = 0;
    for (const Candidate& candidate : kept)
        sum += candidate.probability;
    for (Candidate& candidate : kept)
        candidate.probability /= sum;
    return kept;
}

Sampler::Sampler(const SamplingOptions& options)
    : options_(options), random_(options.seed, kSamplingStream) {
    options_.check();
}

void Sampler::see(std::span<const std::int32_t> ids) {
    seen_.insert(seen_.end(), ids.begin(), ids.end());
    std::sort(seen_.begin(), seen_.end());
    seen_.erase(std::unique(seen_.begin(), seen_.end()), seen_.end());
}

std::int32_t Sampler::next(std::span<const float> logits) {
    if (options_.repetition_penalty != 1) {
        penalised_.assign(logits.begin(), logits.end());
        apply_repetition_penalty(penalised_, seen_, options_.repetition_penalty);
        logits = penalised_;
    }
    std::int32_t chosen = 0;
    if (options_.temperature == 0) {
        chosen = greedy_choice(logits);
    } else {
        const std::vector<Candidate> candidates = filtered_distribution(logits, options_);
        const double mark = random_.uniform();
        double sum = 0;
        // Rounding may leave the sum a little below 1: then the last candidate is meant.
        chosen = candidates.back().id;
        for (const Candidate& candidate : candidates) {
            sum += candidate.probability;
            if (mark < sum) {
                chosen = candidate.id;
                break;
            }
        }
    }
    const auto place = std::lower_bound(seen_.begin(), seen_.end(), chosen);
    if (place == seen_.end() || *place != chosen) seen_.insert(place, chosen);
    return chosen;
}

}  // namespace garam
