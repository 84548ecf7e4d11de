#include "garam/serve/scoring.h"

#include <algorithm>
#include <cmath>

#include "garam/core/error.h"
#include "garam/ops/elementwise.h"

namespace garam {
namespace {

// The losses of one batch's targets.
void evaluate_batch(Decoder& decoder, Stream& stream, const TokenBatch& batch,
                    std::vector<float>& losses) {
    const Arena::Mark start = stream.arena().mark();
    const Tensor sum = stream.arena().push(DType::f32, {1}, Purpose::scratch);
    fill(stream, 0, sum);
    decoder.evaluate(stream, batch, sum, &losses);
    stream.arena().rewind(start);
}

}  // namespace

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
    const std::span<const float> first = sequence.logits();
    const std::vector<float> after_prompt(first.begin(), first.end());  // more calls follow
    std::vector<double> scores;
    for (const std::vector<std::int32_t>& candidate : candidates) {
        GARAM_CHECK(!candidate.empty(), "a candidate without tokens");
        double score = log_probability(after_prompt, candidate.front());
        if (candidate.size() > 1) {
            sequence.rewind(prompt_tokens);
            const std::span<const std::int32_t> fed(candidate.data(), candidate.size() - 1);
            const std::vector<float> logits = sequence.extend_for_logits(fed);
            const std::size_t vocab = logits.size() / fed.size();
            for (std::size_t i = 0; i < fed.size(); ++i)
                score += log_probability({logits.data() + i * vocab, vocab}, candidate[i + 1]);
        }
        scores.push_back(score);
    }
    return scores;
}

double TokenLoss::perplexity() const {
    return std::exp(mean());
}

TokenLoss evaluate_losses(ServedModel& model, const std::vector<TokenBatch>& batches,
                          const std::function<void(std::int64_t done)>& after_batch) {
    std::vector<float> losses;
    model.reserve([&](Decoder& decoder, Stream& stream) {
        for (const TokenBatch& batch : batches)
            evaluate_batch(decoder, stream, batch, losses);
    });
    TokenLoss total;
    std::int64_t done = 0;
    for (const TokenBatch& batch : batches) {
        evaluate_batch(model.decoder(), model.stream(), batch, losses);
        for (const float loss : losses) {
            if (!std::isfinite(loss))
                throw Error(
                    "the model computed a loss that is not finite: its weights or adapter "
                    "are damaged");
            total.sum += static_cast<double>(loss);
        }
        total.targets += static_cast<std::int64_t>(losses.size());
        if (after_batch) after_batch(++done);
    }
    return total;
}

std::int64_t likeliest(const std::vector<double>& scores) {
    GARAM_CHECK(!scores.empty(), "nothing to choose from");
    return std::max_element(scores.begin(), scores.end()) - scores.begin();
}

double probability_of_likeliest(const std::vector<double>& scores) {
    const double best = scores[static_cast<std::size_t>(likeliest(scores))];
    double sum = 0;
    for (const double score : scores)
        sum += std::exp(score - best);
    return 1 / sum;
}

}  // namespace garam
