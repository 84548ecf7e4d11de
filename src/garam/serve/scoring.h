// How likely a model finds given continuations of a text: the sum of the log-probabilities of their
// tokens, the one that ends an answer included. Not divided by their length: answers are compared
// as whole events of one distribution, of which exactly one would be written.
#pragma once

#include <cstdint>
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

// The index of the highest score, the lowest one of several.
std::int64_t likeliest(const std::vector<double>& scores);

}  // namespace garam
