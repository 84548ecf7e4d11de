#include "garam/data/inspection/inspection_warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace garam {
namespace {

// Beyond these a warning is given. None is sharp: they are where people have been seen to be surprised.
constexpr std::int64_t kImbalance = 10;        // the commonest answer to the rarest one
constexpr double kByteShare = 0.05;            // of all tokens
constexpr std::int64_t kLongFactor = 4;        // times the 99 % quantile, or
constexpr std::int64_t kLongMedianFactor = 8;  // times the median of few rows
constexpr std::int64_t kLongTokens = 512;      // below that length nothing is long
constexpr std::int64_t kFewRows = 200;         // whose 99 % quantile says little
constexpr std::int64_t kFewSteps = 10;
constexpr std::int64_t kManyEpochs = 10;

const char* were(std::int64_t count) {
    return count == 1 ? "is" : "are";
}

class Warner {
  public:
    explicit Warner(Inspection& inspection)
        : found_(inspection), training_(inspection.training()) {}

    void run() {
        reading();
        truncation();
        answers();
        tokens();
        equal_rows();
        balance();
        lengths();
        schedule();
        notes();
    }

  private:
    void warn(const char* kind, std::string message, std::string advice, Finding finding = {}) {
        found_.warnings.push_back(
            {kind, std::move(message), std::move(advice), std::move(finding)});
    }
    static std::string share(std::int64_t part, std::int64_t all) {
        return percent(all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all));
    }

    void reading() {
        for (const SourceSummary& source : found_.sources) {
            const ReadReport& report = source.report;
            if (report.skipped.count > 0)
                warn("skipped",
                     fmt::format("{} of {} cannot be read and {} left out (data.on_error=skip)",
                                 counted(report.skipped.count, "row"), source.name,
                                 were(report.skipped.count)),
                     "mend them; data.on_error=fail stops at the first one",
                     {report.skipped.count, {}, shortened(report.skipped.first_example, 200)});
            if (const ReadReport::Finding& merged = report.merged_start; merged.count > 0)
                warn("merged_start",
                     fmt::format(
                         "in {} of {} ({}) the answer's first token begins in the prompt: "
                         "asked alone, the prompt ends in other tokens than those trained on",
                         counted(merged.count, "row"), source.name,
                         share(merged.count, report.kept)),
                     "end prompts without white space and begin answers with it, or use a chat "
                     "template that ends the prompt with a special token or a line break",
                     example_of(merged));
            for (std::size_t i = 0; i < kDropReasons; ++i) {
                const ReadReport::Finding& dropped = report.dropped[i];
                if (dropped.count == 0) continue;
                const auto reason = static_cast<DropReason>(i);
                warn("dropped",
                     fmt::format("{} of {} ({}) {} dropped: {}", counted(dropped.count, "row"),
                                 source.name, share(dropped.count, report.rows),
                                 were(dropped.count), explain(reason)),
                     advice_for(reason), example_of(dropped));
            }
        }
    }

    static Finding example_of(const ReadReport::Finding& dropped) {
        return {
            dropped.count,
            {},
            escape_controls(dropped.first_where) + ": " + shortened(dropped.first_example, 160)};
    }

    std::string advice_for(DropReason reason) const {
        switch (reason) {
            case DropReason::empty:
                return "remove them, or see whether data.columns names the right columns";
            case DropReason::no_assistant_turn:
                return "see whether the roles are named as the chat template expects them "
                       "(data.roles); train.assistant_only_loss=false trains on all turns";
            case DropReason::nothing_to_predict:
                return "see whether the answers are empty, or marked train: false";
            case DropReason::beyond_max_length:
                return fmt::format(
                    "raise train.max_length ({} loses nothing), or keep the ends of rows "
                    "(train.truncation_mode=keep_end)",
                    found_.lossless_length);
            case DropReason::count_:
                break;
        }
        return "";
    }

    void truncation() {
        if (found_.truncated.count == 0) return;
        const auto set = std::find_if(found_.limits.begin(), found_.limits.end(),
                                      [](const LengthLimit& limit) { return limit.is_set; });
        if (set == found_.limits.end()) return;
        std::int64_t tokens = training_.tokens + set->tokens_lost;
        std::int64_t targets = training_.target_tokens + set->targets_lost;
        std::string message =
            fmt::format("{} ({}) {} longer than train.max_length={}: {} ({}) and {} ({}) are lost",
                        counted(set->rows_truncated, "row"),
                        share(set->rows_truncated, training_.kept + set->rows_dropped),
                        were(set->rows_truncated), set->max_length,
                        counted(set->tokens_lost, "token"), share(set->tokens_lost, tokens),
                        counted(set->targets_lost, "target"), share(set->targets_lost, targets));
        if (found_.end_cut.count > 0)
            message += fmt::format(
                "; in {} the end of the answer is cut off, which teaches nothing "
                "of stopping",
                counted(found_.end_cut.count, "row"));
        std::string advice =
            fmt::format("train.max_length={} loses nothing", found_.lossless_length);
        if (found_.one_percent_length > set->max_length &&
            found_.one_percent_length < found_.lossless_length)
            advice += fmt::format(", {} at most 1 % of the tokens", found_.one_percent_length);
        if (found_.options.model_positions > 0 &&
            found_.lossless_length > found_.options.model_positions)
            advice += fmt::format("; the model was made for {}",
                                  grouped_digits(found_.options.model_positions));
        warn("truncated", std::move(message), std::move(advice), found_.truncated);
    }

    void answers() {
        if (const Finding& empty = found_.empty_answers; empty.count > 0)
            warn("empty_answers",
                 fmt::format("{} {} an answer of nothing but white space: the model learns to say "
                             "nothing",
                             counted(empty.count, "row"), empty.count == 1 ? "has" : "have"),
                 "fill these answers or remove the rows", empty);
        if (const Finding& no_end = found_.no_end; no_end.count > 0)
            warn("no_end",
                 fmt::format("{} ({}) never {} to stop: no token that ends a turn or text is among "
                             "the targets",
                             counted(no_end.count, "row"), share(no_end.count, all_rows()),
                             no_end.count == 1 ? "learns" : "learn"),
                 "let the chat template close the assistant's turn with the model's end token "
                 "(data.chat_template), or put it into `labels`",
                 no_end);
    }

    std::int64_t all_rows() const {
        std::int64_t rows = 0;
        for (const SourceSummary& source : found_.sources) {
            rows += source.report.kept;
            rows += source.report.dropped[static_cast<std::size_t>(DropReason::beyond_max_length)]
                        .count;
        }
        return rows;
    }

    void tokens() {
        if (const Finding& bos = found_.double_bos; bos.count > 0)
            warn("double_bos",
                 fmt::format("{} {} with two BOS tokens", counted(bos.count, "row"),
                             bos.count == 1 ? "begins" : "begin"),
                 "take BOS out of the chat template or of `input_ids`", bos);
        if (const Finding& outside = found_.outside_vocabulary; outside.count > 0)
            warn("outside_vocabulary",
                 fmt::format("{} {} ids that the model has no embedding for (it has {})",
                             counted(outside.count, "row"), outside.count == 1 ? "holds" : "hold",
                             grouped_digits(found_.options.vocab_size)),
                 "take the tokenizer that belongs to the model, or data.add_special_tokens",
                 outside);
        const std::int64_t all = training_.tokens + found_.validation().tokens;
        if (const Finding& unknown = found_.unknown; unknown.count > 0)
            warn(
                "unknown_tokens",
                fmt::format("{} in {} stand for characters that the vocabulary lacks: what was "
                            "there is lost",
                            counted(found_.unknown_tokens, "token"), counted(unknown.count, "row")),
                "clean the text, or take a model whose tokenizer knows these characters", unknown);
        if (static_cast<double>(found_.byte_tokens) > kByteShare * static_cast<double>(all))
            warn("byte_tokens",
                 fmt::format("{} of the tokens are single bytes of characters that the vocabulary "
                             "lacks: rows get long",
                             share(found_.byte_tokens, all)),
                 "a model whose tokenizer knows this language needs fewer tokens",
                 {found_.byte_tokens, {}, ""});
    }

    void equal_rows() {
        if (const Finding& leakage = found_.leakage; leakage.count > 0)
            warn(
                "leakage",
                fmt::format("{} of {} for validation ({}) {} training rows, too: the evaluation "
                            "will look better than it is",
                            grouped_digits(leakage.count), counted(found_.validation().kept, "row"),
                            share(leakage.count, found_.validation().kept), were(leakage.count)),
                "remove them from data.validation or data.train", leakage);
        if (const Finding& duplicates = found_.duplicates; duplicates.count > 0)
            warn("duplicates",
                 fmt::format("{} for training ({}) {} an earlier one and {} twice or more often",
                             counted(duplicates.count, "row"),
                             share(duplicates.count, training_.kept),
                             duplicates.count == 1 ? "repeats" : "repeat",
                             duplicates.count == 1 ? "counts" : "count"),
                 "remove the copies from data.train; data.weights is the way to weigh a source",
                 duplicates);
        if (const Finding& conflicts = found_.conflicts; conflicts.count > 0)
            warn("conflicting_answers",
                 fmt::format("{} ask what another row asks but answer otherwise",
                             counted(conflicts.count, "row")),
                 found_.answers.empty()
                     ? "see whether that is meant; where one answer is right, remove the others"
                     : "one of the labels is wrong: mend or remove these rows",
                 conflicts);
    }

    // Whether rows of a source that is trained on are held out.
    bool is_split() const {
        const RowPlace& row = found_.leakage.examples.front();
        const std::string& name = found_.sources[row.source].name;
        return std::any_of(
            found_.sources.begin(), found_.sources.end(),
            [&](const SourceSummary& source) { return !source.validation && source.name == name; });
    }

    void balance() {
        if (found_.answers.empty()) return;
        const AnswerCount& most = found_.answers.front();
        const AnswerCount& least = found_.answers.back();
        std::int64_t rows = 0;
        for (const AnswerCount& answer : found_.answers)
            rows += answer.count;
        if (found_.answers.size() == 1) {
            warn("imbalance", fmt::format("every row has the same answer, \"{}\"", most.text),
                 "see whether data.columns (label) names the right column", {most.count, {}, ""});
            return;
        }
        if (most.count <= kImbalance * least.count) return;
        warn("imbalance",
             fmt::format("the answers are uneven: \"{}\" {}, \"{}\" {} ({})", most.text,
                         share(most.count, rows), least.text, share(least.count, rows),
                         counted(least.count, "row")),
             "add rows of the rare answer, or put them into a file of their own with a higher "
             "data.weights",
             {least.count, {}, ""});
    }

    void lengths() {
        const InspectionOptions& options = found_.options;
        const std::int64_t longest = found_.kept.at.back();
        if (options.model_positions > 0 && longest > options.model_positions)
            warn("beyond_positions",
                 fmt::format("the longest row has {} tokens, but the model was made for {}",
                             grouped_digits(longest), grouped_digits(options.model_positions)),
                 fmt::format("train.max_length={}", options.model_positions), longest_row());
        // By quantiles 50 and 99; see LengthQuantiles::kPercent.
        const std::int64_t median = found_.kept.at[3];
        const std::int64_t most = found_.kept.at[7];
        const std::int64_t border =
            training_.kept < kFewRows ? kLongMedianFactor * median : kLongFactor * most;
        if (longest < kLongTokens || longest <= border) return;
        std::string step;
        if (found_.longest_step > 0)
            step = fmt::format("; it comes in step {} of the first epoch",
                               grouped_digits(found_.longest_step));
        warn("long_sample",
             fmt::format("one row has {} tokens, half of all have at most {}{}. Memory is planned "
                         "for it from the start (garam plan)",
                         grouped_digits(longest), grouped_digits(median), step),
             fmt::format("train.max_length={} takes the 1 % of longest rows down to the others",
                         std::max<std::int64_t>(2, most)),
             longest_row());
    }

    // Of those that are cut to one length none is the longest.
    Finding longest_row() const {
        Finding finding{1, {}, ""};
        if (found_.truncated.count == 0) finding.examples = {found_.longest};
        return finding;
    }

    void schedule() {
        if (found_.options.template_writes_date)
            warn("template_date",
                 "the chat template writes the day's date into every row: rows read on another day "
                 "differ",
                 "set it: data.chat_template_kwargs.date_string=\"26 Jul 2024\"");
        if (found_.steps > 0 && found_.steps < kFewSteps)
            warn("few_steps",
                 fmt::format("the whole run is {} of the optimiser: too few to learn much, and for "
                             "a schedule to matter",
                             counted(found_.steps, "step")),
                 found_.options.max_steps >= 0
                     ? "raise train.max_steps, or let train.num_train_epochs decide"
                     : "lower train.gradient_accumulation_steps or "
                       "train.per_device_train_batch_size, or raise train.num_train_epochs",
                 {found_.steps, {}, ""});
        if (found_.epochs > kManyEpochs)
            warn("many_epochs",
                 fmt::format("each of the {} comes {} times: they will be known by heart",
                             counted(training_.kept, "row"), grouped_digits(found_.epochs)),
                 "lower train.num_train_epochs (train.max_steps), or keep the best state "
                 "(train.load_best_model_at_end)",
                 {found_.epochs, {}, ""});
    }

    void notes() {
        for (const BatchingCost& cost : found_.batchings)
            if (cost.is_set && cost.name == "packed")
                found_.notes.push_back(fmt::format(
                    "Packing lays {} into {}. Rows of a bin do not see each other, and each counts "
                    "its positions from 0.",
                    counted(training_.kept, "row"), counted(cost.units, "bin")));
        for (const std::string& line : found_.options.cache)
            found_.notes.push_back(line);
    }

    Inspection& found_;
    ReadReport training_;
};

}  // namespace

void add_warnings(Inspection& inspection) {
    Warner(inspection).run();
}

}  // namespace garam
