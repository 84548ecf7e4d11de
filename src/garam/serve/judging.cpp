#include "garam/serve/judging.h"

#include <algorithm>
#include <utility>

#include "garam/serve/generation.h"
#include "garam/serve/scoring.h"
#include "garam/serve/sequence.h"

namespace garam {

std::int64_t judging_room(const JudgedSet& set, std::int64_t max_new_tokens) {
    return set.longest_prompt + std::max(max_new_tokens, set.longest_candidate);
}

Judgement judge(ServedModel& model, const JudgedSet& set, const JudgingOptions& options,
                const std::function<void(std::size_t row, const JudgedAnswer&)>& after_row) {
    Judgement judgement(set.labels);
    GenerationOptions generation;
    generation.max_new_tokens = options.max_new_tokens;
    generation.eos_ids = options.eos_ids;
    generation.eos_ids.insert(generation.eos_ids.end(), set.end_ids.begin(), set.end_ids.end());
    Sequence sequence(model, std::min(judging_room(set, options.max_new_tokens), model.context()));
    for (std::size_t r = 0; r < set.rows.size(); ++r) {
        const LabelledRow& row = set.rows[r];
        JudgedAnswer answer;
        if (options.scores) {
            const std::vector<double> scores =
                score_continuations(sequence, row.prompt_ids, row.candidates);
            answer.likeliest = likeliest(scores);
            answer.probability = probability_of_likeliest(scores);
            judgement.calibration.add(answer.probability, answer.likeliest == row.label);
        }
        answer.text = generate(sequence, row.prompt_ids, generation).text;
        answer.label = set.reader.label_of(answer.text, set.labels);
        if (answer.label)
            judgement.confusion.add(row.label, *answer.label);
        else
            judgement.confusion.add_unparsable(row.label);
        if (after_row) after_row(r, answer);
    }
    return judgement;
}

}  // namespace garam
