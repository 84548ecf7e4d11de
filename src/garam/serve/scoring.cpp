#include "garam/serve/scoring.h"

#include <algorithm>
#include <cmath>

#include "garam/core/error.h"

namespace garam {

double log_probability(std::span<const float> logits, std::int32_t id) {
    GARAM_CHECK(id >= 0 && static_cast<std::size_t>(id) < logits.size(), "id beyond the logits");
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits)
        sum += std::exp(static_cast<double>(logit) - top);
    const double result =
        static_cast<double>(logits[static_cast<std::size_t>(id)]) - top - std::log(sum);
    if (std::isnan(result))
        throw Error("the model computed NaN: its weights or adapter are damaged");
    return result;
}

std::vector<double> score_continuations(Sequence& sequence, std::span<const std::int32_t> prompt,
                                        const std::vector<std::vector<std::int32_t>>& candidates) {
    sequence.move_to(prompt);
    const auto prompt_tokens = static_cast<std::int64_t>(prompt.size());
    const std::vector<float> after_prompt = sequence.logits();
    std::vector<double> scores;
    for (const std::vector<std::int32_t>& candidate : candidates) {
        GARAM_CHECK(!candidate.empty(), "a candidate without tokens");
        double score = log_probability(after_prompt, candidate.front());
        sequence.rewind(prompt_tokens);
        for (std::size_t i = 1; i < candidate.size(); ++i) {
            sequence.extend({&candidate[i - 1], 1});
            score += log_probability(sequence.logits(), candidate[i]);
        }
        scores.push_back(score);
    }
    return scores;
}

std::int64_t likeliest(const std::vector<double>& scores) {
    GARAM_CHECK(!scores.empty(), "nothing to choose from");
    return std::max_element(scores.begin(), scores.end()) - scores.begin();
}

}  // namespace garam
