// The next token from logits: greedy or drawn, with the filters that users of Transformers know,
// applied in its order: repetition penalty, temperature, top-k, top-p, min-p. Pure functions over
// one vector of logits [vocab]; nothing here depends on threads or devices, so a seed fixes the
// text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "garam/core/philox.h"

namespace garam {

struct SamplingOptions {
    double temperature = 0;  // 0: greedy, the likeliest token; else logits are divided by it
    std::int64_t top_k = 0;  // the k likeliest tokens stay (and ties with the last); 0: off
    double top_p = 1;        // the fewest likeliest tokens that hold this probability; 1: off
    double min_p = 0;        // at least this share of the likeliest token's probability; 0: off
    double repetition_penalty = 1;  // over tokens of prompt and answer; 1: off
    std::uint64_t seed = 0;

    // Throws Error naming the option that is out of range.
    void check() const;
};

// The penalty of Keskar et al. (CTRL, 2019) as Transformers computes it: the logit of each id in
// `seen`, once however often it occurs, is divided by the penalty where positive and multiplied
// where negative.
void apply_repetition_penalty(std::span<float> logits, std::span<const std::int32_t> seen,
                              double penalty);

struct Candidate {
    std::int32_t id = 0;
    double probability = 0;
};

// What is left after temperature, top-k, top-p and min-p, with probabilities that sum to 1;
// likeliest first, ties by id. Temperature must be above 0. Throws Error when a logit is NaN or all
// are infinite.
std::vector<Candidate> filtered_distribution(std::span<const float> logits,
                                             const SamplingOptions& options);

// The likeliest id, the lowest one of several. Throws Error as above.
std::int32_t greedy_choice(std::span<const float> logits);

// Draws one token after another; owns the random numbers and the ids seen.
class Sampler {
  public:
    // Throws Error when an option is out of range.
    explicit Sampler(const SamplingOptions& options);

    // Ids that the repetition penalty knows of: the prompt's, then each one chosen.
    void see(std::span<const std::int32_t> ids);
    // Chooses and remembers one id.
    std::int32_t next(std::span<const float> logits);

  private:
    SamplingOptions options_;
    Random random_;
    std::vector<std::int32_t> seen_;  // sorted, each once
    std::vector<float> penalised_;    // logits
};

}  // namespace garam
