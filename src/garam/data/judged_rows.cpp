#include "garam/data/judged_rows.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "garam/core/error.h"
#include "garam/core/philox.h"

namespace garam {
namespace {

// A sample's question and the answer that is trained on last.
struct Answered {
    std::vector<std::int32_t> question;
    std::vector<std::int32_t> answer;
};

Answered last_answer(const SampleSelection& samples, std::int64_t i) {
    TokenBatch batch;
    samples.append_to(batch, i);
    // targets[t] is the token behind t.
    std::size_t end = batch.targets.size();
    while (end > 0 && batch.targets[end - 1] == kIgnore)
        --end;
    std::size_t begin = end;
    while (begin > 0 && batch.targets[begin - 1] != kIgnore)
        --begin;
    if (begin == end) return {};
    const auto at = [&batch](std::size_t token) {
        return batch.ids.begin() + static_cast<std::ptrdiff_t>(token);
    };
    return {{batch.ids.begin(), at(begin + 1)}, {at(begin + 1), at(end + 1)}};
}

void add_end(std::int32_t id, const Tokenizer& tokenizer, std::vector<std::int32_t>& ends) {
    if (!tokenizer.is_special(id)) return;
    const auto place = std::lower_bound(ends.begin(), ends.end(), id);
    if (place == ends.end() || *place != id) ends.insert(place, id);
}

JudgedSet of_labelled_rows(const SampleSelection& samples, const std::vector<std::int64_t>& drawn,
                           const DataPlaces& places, const DataConfig& config,
                           const EncodingSettings& settings, const Tokenizer& tokenizer,
                           const JudgedRequest& request) {
    RowNumbers numbers(open_sources(places, config).size());
    for (const std::int64_t i : drawn) {
        const SampleSelection::Origin origin = samples.origin(samples.id(i));
        numbers[static_cast<std::size_t>(origin.source)].push_back(origin.row);
    }
    for (std::vector<std::int64_t>& rows : numbers)
        std::sort(rows.begin(), rows.end());
    LabelledSet labelled = read_labelled_rows(places, config, settings, tokenizer,
                                              labels_of_training(config, tokenizer), numbers);
    JudgedSet set;
    set.labels = std::move(labelled.labels);
    set.rows = std::move(labelled.rows);
    set.left_out = static_cast<std::int64_t>(drawn.size() - set.rows.size());
    const RowEncoder encoder(config, settings, tokenizer);
    set.reader = VerdictReader(encoder.answer(set.labels.front()), request.verdict_key);
    for (std::size_t l = 0; l < set.labels.size(); ++l) {
        const std::string answer = encoder.answer(set.labels[l]);
        if (set.reader.label_of(answer, set.labels) == static_cast<std::int64_t>(l)) continue;
        throw Error("eval.metrics: the answer of the label \"" + set.labels[l] + "\" is " +
                    quoted_beginning(answer) +
                    ", from which that label cannot be read: change data.answer or "
                    "data.label_names");
    }
    for (const LabelledRow& row : set.rows) {
        for (const std::vector<std::int32_t>& candidate : row.candidates)
            add_end(candidate.back(), tokenizer, set.end_ids);
        const auto right = static_cast<std::size_t>(row.label);
        set.longest_answer =
            std::max(set.longest_answer, static_cast<std::int64_t>(row.candidates[right].size()));
    }
    return set;
}

JudgedSet of_answers(const SampleSelection& samples, const std::vector<std::int64_t>& drawn,
                     const Tokenizer& tokenizer, const JudgedRequest& request) {
    if (request.candidates)
        throw Error(
            "eval.metrics: ece needs rows of text and label (data.instruction), of which every "
            "label's answer is known; these rows hold one answer each");
    JudgedSet set;
    std::optional<VerdictReader> reader;
    std::set<std::string> labels;
    std::vector<std::pair<std::string, Answered>> rows;
    auto next = drawn.begin();
    for (std::int64_t i = 0; i < samples.size(); ++i) {
        const bool is_drawn = next != drawn.end() && *next == i;
        if (is_drawn) ++next;
        Answered row = last_answer(samples, i);
        const std::string answer = tokenizer.decode(row.answer, true);
        if (!reader && !row.answer.empty()) reader.emplace(answer, request.verdict_key);
        const std::optional<std::string> verdict = reader ? reader->read(answer) : std::nullopt;
        if (!verdict || row.question.size() < 2) {
            set.left_out += is_drawn;
            continue;
        }
        labels.insert(*verdict);
        if (labels.size() > kMaxLabels)
            throw Error("eval.metrics: more than " + std::to_string(kMaxLabels) +
                        " different answers, such as " + quoted_beginning(answer) +
                        ": these are no verdicts");
        if (is_drawn) rows.emplace_back(*verdict, std::move(row));
    }
    if (rows.empty())
        throw Error(
            "eval.metrics: none of the validation rows that were drawn is a question with an "
            "answer "
            "that holds a verdict: metrics need rows of prompt and completion, chats, or texts "
            "with labels");
    if (labels.size() < 2)
        throw Error("eval.metrics: all answers of the validation rows are \"" + *labels.begin() +
                    "\": there is nothing to tell apart");
    set.labels.assign(labels.begin(), labels.end());
    set.reader = *reader;
    for (auto& [verdict, row] : rows) {
        add_end(row.answer.back(), tokenizer, set.end_ids);
        set.longest_answer =
            std::max(set.longest_answer, static_cast<std::int64_t>(row.answer.size()));
        LabelledRow judged;
        judged.prompt_ids = std::move(row.question);
        judged.label =
            std::lower_bound(set.labels.begin(), set.labels.end(), verdict) - set.labels.begin();
        judged.text = tokenizer.decode(judged.prompt_ids, true);
        set.rows.push_back(std::move(judged));
    }
    return set;
}

}  // namespace

std::vector<std::int64_t> draw_numbers(std::int64_t count, std::int64_t wanted,
                                       std::uint64_t seed) {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), 0);
    if (wanted == 0 || wanted >= count) return numbers;
    Random random(seed);
    for (std::int64_t i = 0; i < wanted; ++i) {
        const auto other =
            i + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(count - i)));
        std::swap(numbers[static_cast<std::size_t>(i)], numbers[static_cast<std::size_t>(other)]);
    }
    numbers.resize(static_cast<std::size_t>(wanted));
    std::sort(numbers.begin(), numbers.end());
    return numbers;
}

JudgedSet judged_rows(const SampleSelection& samples, const DataPlaces& places,
                      const DataConfig& config, const EncodingSettings& settings,
                      const Tokenizer& tokenizer, const JudgedRequest& request) {
    const std::vector<std::int64_t> drawn =
        draw_numbers(samples.size(), request.rows, request.seed);
    const bool labelled = !config.instruction.empty() && !config.label_column.empty();
    JudgedSet set =
        labelled ? of_labelled_rows(samples, drawn, places, config, settings, tokenizer, request)
                 : of_answers(samples, drawn, tokenizer, request);
    for (const LabelledRow& row : set.rows) {
        set.longest_prompt =
            std::max(set.longest_prompt, static_cast<std::int64_t>(row.prompt_ids.size()));
        for (const std::vector<std::int32_t>& candidate : row.candidates)
            set.longest_candidate =
                std::max(set.longest_candidate, static_cast<std::int64_t>(candidate.size()));
    }
    return set;
}

std::vector<std::string> labels_of_training(const DataConfig& config, const Tokenizer& tokenizer) {
    const DataPlaces training = training_places(config);
    if (training.paths.empty()) return {};
    std::vector<OpenSource> sources;
    try {
        sources = open_sources(training, config);
    } catch (const Error&) {
        return {};
    }
    return read_labels(std::move(sources), config, tokenizer);
}

}  // namespace garam
