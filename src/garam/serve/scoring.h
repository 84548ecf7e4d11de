// How likely a model finds given continuations of a text: the sum of the log-probabilities of their
// tokens, the one that ends an answer included. Not divided by their length: answers are compared
// as whole events of one distribution, of which exactly one would be written.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "garam/serve/sequence.h"

namespace garam {

// log softmax(logits)[id], in double precision.
double log_probability(std::span<const float> logits, std::int32_t id);

// One sum (natural logarithm, at most 0) a candidate, none of which is empty. The prompt is
// computed once, and not even once where it begins as the sequence did before.
std::vector<double> score_continuations(Sequence& sequence, std::span<const std::int32_t> prompt,
                                        const std::vector<std::vector<std::int32_t>>& candidates);

// Sum of the losses (negative natural log-probabilities) of a set's targets, and their number.
struct TokenLoss {
    double sum = 0;
    std::int64_t targets = 0;

    double mean() const { return targets == 0 ? 0 : sum / static_cast<double>(targets); }
    // exp(mean loss over target tokens), however they were cut into batches.
    double perplexity() const;
};

// Reserves the step memory that the batches need. `after_batch` hears how many are done.
TokenLoss evaluate_losses(ServedModel& model, const std::vector<TokenBatch>& batches,
                          const std::function<void(std::int64_t done)>& after_batch = {});

// The index of the highest score, the lowest one of several; and its probability among the candidates.
std::int64_t likeliest(const std::vector<double>& scores);
double probability_of_likeliest(const std::vector<double>& scores);

}  // namespace garam
