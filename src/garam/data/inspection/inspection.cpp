#include "garam/data/inspection/inspection.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "garam/core/error.h"
#include "garam/core/token_batch.h"
#include "garam/data/inspection/inspection_lengths.h"
#include "garam/data/inspection/inspection_scan.h"
#include "garam/data/inspection/inspection_warnings.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

constexpr std::size_t kExampleCharacters = 70;

std::int64_t characters_of(const std::string& text) {
    return std::count_if(text.begin(), text.end(), [](char c) { return !is_utf8_continuation(c); });
}

std::string without_outer_space(const std::string& text) {
    std::size_t begin = 0;
    while (begin < text.size() && static_cast<unsigned char>(text[begin]) <= ' ')
        ++begin;
    std::size_t end = text.size();
    while (end > begin && static_cast<unsigned char>(text[end - 1]) <= ' ')
        --end;
    return text.substr(begin, end - begin);
}

class Inspector {
  public:
    Inspector(const std::vector<InspectedSource>& sources, const Tokenizer& tokenizer,
              const InspectionOptions& options, const LoaderMaker& make_loader)
        : sources_(sources),
          tokenizer_(tokenizer),
          options_(options),
          make_loader_(make_loader),
          facts_(tokenizer, options.vocab_size) {
        found_.options = options;
        for (const InspectedSource& source : sources) {
            chosen_.emplace_back(source.samples, source.rows);
            chosen_whole_.emplace_back(source.whole, source.rows);
        }
    }

    Inspection run() {
        measure_lengths();
        scan_sources();
        find_equal_samples();
        cost_batches();
        measure_characters();
        name_answers();
        show_samples();
        note_padding();
        add_warnings(found_);
        for (RowPlace* place : found_.places())
            place->where = sources_[place->source].name + ", row " + std::to_string(place->row);
        return std::move(found_);
    }

  private:
    bool is_training(std::size_t source) const { return !sources_[source].validation; }

    RowPlace place(std::size_t source, std::int64_t index) const {
        return {source, sources_[source].whole.row(index), ""};
    }
    // What a sample says, on a line: its targets alone, or from where it differs from another sample of its
    // source, since all begin with what the template and the instruction say.
    std::string text_of(std::size_t source, std::int64_t index, bool targets_only) const {
        constexpr std::size_t kTokens = 256;
        const SampleTable& table = sources_[source].whole;
        const Sample sample = table.sample(index);
        std::size_t begin = 0;
        if (!targets_only && table.size() > 1) {
            const std::vector<std::int32_t> other = table.sample(index == 0 ? 1 : 0).ids;
            while (begin < sample.ids.size() && sample.labels[begin] == kIgnore &&
                   begin < other.size() && sample.ids[begin] == other[begin])
                ++begin;
        }
        const bool differs = begin < sample.ids.size() && sample.labels[begin] == kIgnore;
        if (!differs) begin = 0;
        std::vector<std::int32_t> ids;
        for (std::size_t t = begin; t < sample.ids.size() && ids.size() < kTokens; ++t)
            if (!targets_only || sample.labels[t] != kIgnore) ids.push_back(sample.ids[t]);
        return (begin > 0 ? "…" : "") +
               shortened(without_outer_space(tokenizer_.decode(ids, true)), kExampleCharacters);
    }

    void measure_lengths() {
        std::vector<std::int64_t> kept;
        for (std::size_t s = 0; s < sources_.size(); ++s) {
            if (!is_training(s)) continue;
            const ChosenSamples& whole = chosen_whole_[s];
            for (std::int64_t k = 0; k < whole.size(); ++k) {
                const std::int64_t i = whole[k];
                const std::int64_t length = whole.table().tokens(i);
                if (whole_.empty() || length > longest_length_) {
                    longest_length_ = length;
                    found_.longest = place(s, i);
                }
                whole_.push_back(length);
                if (length <= options_.loader.max_length) continue;
                if (found_.truncated.count++ > 0) continue;
                found_.truncated.examples = {place(s, i)};
                found_.truncated.text = text_of(s, i, false);
            }
            for (std::int64_t k = 0; k < chosen_[s].size(); ++k)
                kept.push_back(chosen_[s].table().tokens(chosen_[s][k]));
        }
        GARAM_CHECK(!whole_.empty() && !kept.empty(), "no sample to train on");
        std::sort(whole_.begin(), whole_.end());
        std::sort(kept.begin(), kept.end());
        found_.whole = quantiles(whole_);
        found_.kept = quantiles(kept);
        found_.histogram = length_histogram(whole_, kept);
        found_.lossless_length = std::max<std::int64_t>(2, whole_.back());
    }

    void scan_sources() {
        const std::vector<std::int64_t> lengths =
            interesting_lengths(found_.whole, options_.loader.max_length);
        std::size_t samples = 0;
        double epoch_tokens = 0;
        for (const ChosenSamples& chosen : chosen_whole_)
            samples += static_cast<std::size_t>(chosen.size());
        digests_.resize(samples);
        SampleDigest* next = digests_.data();
        for (std::size_t s = 0; s < sources_.size(); ++s) {
            const InspectedSource& source = sources_[s];
            SourceScan part = scan(chosen_whole_[s], static_cast<std::int32_t>(s), facts_, lengths,
                                   options_, next);
            next += chosen_whole_[s].size();
            SourceSummary summary;
            summary.name = source.name;
            summary.validation = source.validation;
            summary.weight = source.weight;
            summary.report = source.report;
            summary.epoch_share =
                source.validation ? 0 : source.weight * static_cast<double>(summary.report.tokens);
            epoch_tokens += summary.epoch_share;
            for (const LengthLimit& limit : part.limits) {
                if (!limit.is_set) continue;
                summary.tokens_lost = limit.tokens_lost;
                summary.targets_lost = limit.targets_lost;
            }
            found_.sources.push_back(std::move(summary));
            take(part, s);
            if (source.validation) continue;
            if (found_.limits.empty())
                found_.limits = part.limits;
            else
                for (std::size_t i = 0; i < part.limits.size(); ++i)
                    found_.limits[i].add(part.limits[i]);
        }
        for (SourceSummary& summary : found_.sources)
            summary.epoch_share = epoch_tokens > 0 ? summary.epoch_share / epoch_tokens : 0;
        std::vector<CutLength> cuts;
        for (const SampleDigest& digest : digests_) {
            const auto source = static_cast<std::size_t>(digest.source);
            if (is_training(source))
                cuts.push_back({sources_[source].whole.tokens(digest.index), digest.beyond});
        }
        found_.one_percent_length = length_that_loses(cuts, 0.01);
    }

    void take(const SourceScan& part, std::size_t source) {
        const auto add = [&](Finding& finding, const IndexFinding& more) {
            if (finding.count == 0 && more.count > 0) {
                finding.examples = {place(source, more.first)};
                finding.text = text_of(source, more.first, false);
            }
            finding.count += more.count;
        };
        add(found_.empty_answers, part.empty_answers);
        add(found_.no_end, part.no_end);
        if (is_training(source)) add(found_.end_cut, part.end_cut);
        add(found_.double_bos, part.double_bos);
        add(found_.outside_vocabulary, part.outside_vocabulary);
        add(found_.unknown, part.unknown);
        found_.unknown_tokens += part.unknown_tokens;
        found_.byte_tokens += part.byte_tokens;
        if (!is_training(source)) return;
        too_many_answers_ |= part.too_many_answers;
        for (const auto& [digest, answer] : part.answers) {
            const auto [at, is_new] =
                answers_.try_emplace(digest, Answer{0, {source, answer.first}});
            at->second.count += answer.count;
        }
    }

    // Calls group(begin, end) for each run of digests that `key` calls equal, training rows first.
    template <typename Key, typename Group>
    void for_each_group(const Key& key, const Group& group) {
        std::sort(digests_.begin(), digests_.end(),
                  [&](const SampleDigest& a, const SampleDigest& b) {
                      const auto order = [&](const SampleDigest& digest) {
                          return std::tuple(key(digest),
                                            !is_training(static_cast<std::size_t>(digest.source)),
                                            digest.source, digest.index);
                      };
                      return order(a) < order(b);
                  });
        for (std::size_t begin = 0, end = 0; begin < digests_.size(); begin = end) {
            while (end < digests_.size() && key(digests_[end]) == key(digests_[begin]))
                ++end;
            std::size_t training = begin;
            while (training < end &&
                   is_training(static_cast<std::size_t>(digests_[training].source)))
                ++training;
            group(begin, training, end);
        }
    }

    // Rows in groups, with the pair of rows that comes first in the data, whatever the groups' order.
    struct Pairs {
        std::int64_t count = 0;
        SampleDigest row;
        SampleDigest other;

        void add(std::int64_t rows, const SampleDigest& first, const SampleDigest& with) {
            if (count == 0 ||
                std::tie(first.source, first.index) < std::tie(row.source, row.index)) {
                row = first;
                other = with;
            }
            count += rows;
        }
    };
    Finding finding_of(const Pairs& pair, bool answers) const {
        Finding finding;
        finding.count = pair.count;
        if (pair.count == 0) return finding;
        for (const SampleDigest* digest : {&pair.row, &pair.other}) {
            const auto source = static_cast<std::size_t>(digest->source);
            finding.examples.push_back(place(source, digest->index));
            if (!finding.text.empty() && !answers) continue;
            finding.text +=
                (finding.text.empty() ? "" : " / ") + text_of(source, digest->index, answers);
        }
        return finding;
    }

    void find_equal_samples() {
        Pairs duplicates, leakage, repeats, conflicts, shared;
        for_each_group([](const SampleDigest& digest) { return digest.ids; },
                       [&](std::size_t begin, std::size_t training, std::size_t end) {
                           const auto rows = static_cast<std::int64_t>(training - begin);
                           const auto others = static_cast<std::int64_t>(end - training);
                           if (rows > 1)
                               duplicates.add(rows - 1, digests_[begin + 1], digests_[begin]);
                           if (rows > 0 && others > 0)
                               leakage.add(others, digests_[training], digests_[begin]);
                           if (others > 1)
                               repeats.add(others - 1, digests_[training + 1], digests_[training]);
                       });
        for_each_group([](const SampleDigest& digest) { return digest.prompt; },
                       [&](std::size_t begin, std::size_t training, std::size_t end) {
                           if (digests_[begin].prompt == 0) return;
                           if (training > begin && training < end)
                               shared.add(static_cast<std::int64_t>(end - training),
                                          digests_[training], digests_[begin]);
                           for (std::size_t i = begin; i < training; ++i) {
                               if (digests_[i].ids == digests_[begin].ids) continue;
                               conflicts.add(static_cast<std::int64_t>(training - begin),
                                             digests_[i], digests_[begin]);
                               break;
                           }
                       });
        found_.duplicates = finding_of(duplicates, false);
        found_.leakage = finding_of(leakage, false);
        found_.repeats = finding_of(repeats, false);
        found_.conflicts = finding_of(conflicts, true);
        found_.shared_prompts = finding_of(shared, false);
        digests_ = {};
    }

    void cost_batches() {
        BatchingCosts result = batching_costs(make_loader_, options_.loader);
        found_.batchings = std::move(result.costs);
        found_.longest_step = result.longest_step;
        std::int64_t steps_per_epoch = 0;
        for (const BatchingCost& cost : found_.batchings)
            if (cost.is_set) steps_per_epoch = cost.steps;
        if (steps_per_epoch == 0) return;
        found_.steps = options_.max_steps > 0
                           ? options_.max_steps
                           : static_cast<std::int64_t>(
                                 std::ceil(options_.epochs * static_cast<double>(steps_per_epoch)));
        found_.epochs = (found_.steps + steps_per_epoch - 1) / steps_per_epoch;
    }

    void measure_characters() {
        constexpr std::int64_t kRows = 2000;
        const auto all = static_cast<std::int64_t>(whole_.size());
        const std::int64_t every = std::max<std::int64_t>(1, all / kRows);
        std::int64_t characters = 0;
        std::int64_t tokens = 0;
        std::int64_t at = 0;
        for (std::size_t s = 0; s < sources_.size(); ++s) {
            if (!is_training(s)) continue;
            const ChosenSamples& whole = chosen_whole_[s];
            for (std::int64_t k = 0; k < whole.size(); ++k, ++at) {
                if (at % every != 0) continue;
                std::vector<std::int32_t> ids = whole.table().sample(whole[k]).ids;
                std::erase_if(ids, [&](std::int32_t id) {
                    return (facts_[id] & (TokenFacts::kSpecial | TokenFacts::kOutside)) != 0;
                });
                tokens += static_cast<std::int64_t>(ids.size());
                characters += characters_of(tokenizer_.decode(ids, true));
            }
        }
        if (tokens > 0)
            found_.characters_per_token =
                static_cast<double>(characters) / static_cast<double>(tokens);
    }

    void name_answers() {
        // Answers that hardly repeat are no classes.
        if (too_many_answers_ || answers_.size() > SourceScan::kMaxAnswers ||
            answers_.size() * 2 > whole_.size())
            return;
        std::vector<Answer> sorted;
        for (const auto& [digest, answer] : answers_)
            sorted.push_back(answer);
        std::sort(sorted.begin(), sorted.end(), [](const Answer& a, const Answer& b) {
            return std::tie(b.count, a.first) < std::tie(a.count, b.first);
        });
        for (const Answer& answer : sorted)
            found_.answers.push_back(
                {text_of(answer.first.first, answer.first.second, true), answer.count});
    }

    void show_samples() {
        constexpr std::size_t kCharacters = 900;
        for (std::size_t s = 0; s < sources_.size(); ++s) {
            if (!is_training(s)) continue;
            const SampleTable& table = sources_[s].samples;
            for (std::int64_t k = 0; k < chosen_[s].size(); ++k) {
                const std::int64_t i = chosen_[s][k];
                if (static_cast<std::int64_t>(found_.samples.size()) >= options_.shown_samples)
                    return;
                ShownSample shown;
                shown.place = {s, table.row(i), ""};
                shown.tokens = table.tokens(i);
                shown.targets = table.targets(i);
                shown.full_tokens = table.full_tokens(i);
                shown.pieces = view_sample(table.sample(i), tokenizer_, kCharacters);
                found_.samples.push_back(std::move(shown));
            }
        }
    }

    void note_padding() {
        const std::optional<std::int32_t> pad = tokenizer_.pad_id();
        if (!pad || pad != tokenizer_.eos_id()) return;
        found_.notes.push_back(
            "The pad token is the end token (" + tokenizer_.token_of(*pad) +
            "). That is harmless here: targets go by place, so the end is learnt.");
    }

    struct Answer {
        std::int64_t count = 0;
        std::pair<std::size_t, std::int64_t> first;  // source and index
    };

    const std::vector<InspectedSource>& sources_;
    const Tokenizer& tokenizer_;
    const InspectionOptions& options_;
    const LoaderMaker& make_loader_;
    TokenFacts facts_;
    std::vector<ChosenSamples> chosen_;        // of each source
    std::vector<ChosenSamples> chosen_whole_;  // before truncation
    Inspection found_;
    std::vector<std::int64_t> whole_;
    std::int64_t longest_length_ = 0;
    std::vector<SampleDigest> digests_;
    std::unordered_map<std::uint64_t, Answer> answers_;
    bool too_many_answers_ = false;
};

ReadReport sum_of(const std::vector<SourceSummary>& sources, bool validation) {
    std::vector<ReadReport> reports;
    for (const SourceSummary& source : sources)
        if (source.validation == validation) reports.push_back(source.report);
    return join(reports);
}

}  // namespace

ReadReport Inspection::training() const {
    return sum_of(sources, false);
}

ReadReport Inspection::validation() const {
    return sum_of(sources, true);
}

std::vector<RowPlace*> Inspection::places() {
    std::vector<RowPlace*> all = {&longest};
    const auto add = [&](Finding& finding) {
        for (RowPlace& place : finding.examples)
            all.push_back(&place);
    };
    for (Finding* finding :
         {&duplicates, &conflicts, &leakage, &shared_prompts, &repeats, &empty_answers, &no_end,
          &truncated, &end_cut, &double_bos, &outside_vocabulary, &unknown})
        add(*finding);
    for (ShownSample& sample : samples)
        all.push_back(&sample.place);
    for (InspectionWarning& warning : warnings)
        add(warning.finding);
    return all;
}

Inspection inspect(const std::vector<InspectedSource>& sources, const Tokenizer& tokenizer,
                   const InspectionOptions& options, const LoaderMaker& make_loader) {
    return Inspector(sources, tokenizer, options, make_loader).run();
}

}  // namespace garam
