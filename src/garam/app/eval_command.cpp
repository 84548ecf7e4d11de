// garam eval CONFIG: how well a model (with its adapter) does on a file of rows.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "garam/app/command.h"
#include "garam/app/command_line.h"
#include "garam/app/labels_report.h"
#include "garam/app/load_job.h"
#include "garam/app/progress_line.h"
#include "garam/app/session_arguments.h"
#include "garam/app/standard_output.h"
#include "garam/core/error.h"
#include "garam/core/json.h"
#include "garam/data/judged_rows.h"
#include "garam/data/loader.h"
#include "garam/data/rows/labelled_rows.h"
#include "garam/data/samples/read_samples.h"
#include "garam/data/samples/sample_selection.h"
#include "garam/serve/classification.h"
#include "garam/serve/judging.h"
#include "garam/serve/scoring.h"
#include "garam/train/prepared_job.h"

namespace garam {
namespace {

// Tokens of an evaluation batch: fills the matrix products, keeps the step memory small.
constexpr std::int64_t kBatchTokens = 1024;

std::string fixed(double value, int digits) {
    char text[64];
    std::snprintf(text, sizeof(text), "%.*f", digits, value);
    return text;
}

class EvalCommand : public Command {
  public:
    std::string name() const override { return "eval"; }
    std::string summary() const override {
        return "Accuracy, F1, confusion and calibration of labelled rows, or perplexity of text";
    }
    std::string details() const override {
        return R"(Takes the config of a training run: model, adapter and data.* count here; the rows are those of
data.validation (or data.validation_split, data.validation_fraction). With data.instruction each
row's label is predicted: the label whose answer the model finds likeliest, the log-probabilities of
the answer's tokens and of the token that ends the turn added up. With eval.metrics the answer itself is
generated and its verdict read, on the rows that training's evaluations take: the same figures. Without
either, or with --perplexity, exp of the mean loss over target tokens.

Examples:
  garam eval spam.yaml adapter=run/adapter
  garam eval spam.yaml adapter=run/adapter --data other.jsonl --show 5
  garam eval spam.yaml adapter=run/adapter eval.metrics=[accuracy,f1,ece] eval.generate_rows=0
  garam eval --model MODEL --data text.jsonl --json)";
    }

    void declare(Arguments& arguments) override {
        arguments.positionals("SETTINGS", settings_, "CONFIG.yaml … key=value …", false);
        session_.declare(arguments, false);
        arguments.option("--data", &data_, "File to evaluate on instead of data.validation");
        arguments.option("--perplexity", &perplexity_, "Perplexity, of labelled rows too");
        arguments.option("--show", &show_, "Print that many classified rows", at_least(0));
        arguments.option("--json", &json_, "Write one JSON object");
    }

    int run() override {
        ConfigTable table = describe(job_);
        read_settings(settings_, table);
        resolve();
        SessionOptions options = session_.options();
        validate(job_.four_bit);
        options.quantize = base_quantization(job_);
        Session session(options);
        print_warnings(session);

        EncodingSettings encoding = encoding_settings(job_, session.decoder().config().vocab_size);
        encoding.max_length = std::min(encoding.max_length, session.context());
        const bool judges = !perplexity_ && job_.eval.judges();
        const bool classify =
            !perplexity_ && !job_.data.instruction.empty() && !job_.data.label_column.empty();
        if (!judges && !classify && show_ > 0)
            throw Error("--show needs labelled rows: set data.instruction, or eval.metrics");
        if (judges) {
            judge_answers(session, encoding);
        } else if (classify) {
            evaluate_labels(session, encoding);
        } else {
            evaluate_text(session, encoding);
        }
        return 0;
    }

  private:
    // Options count more than the config.
    void resolve() {
        if (session_.model.empty()) session_.model = job_.model;
        if (session_.adapter.empty()) session_.adapter = job_.adapter;
        if (session_.device == "auto") session_.device = job_.device;
        if (session_.dtype == "auto" && job_.train.bf16)
            session_.dtype = *job_.train.bf16 ? "bf16" : "f32";
        if (session_.dtype == "auto" && job_.four_bit.compute_dtype != "auto")
            session_.dtype = job_.four_bit.compute_dtype == "bfloat16" ? "bf16" : "f32";
        if (session_.tuned_products.empty()) session_.tuned_products = job_.train.tuned_products;
        if (session_.model.empty()) throw Error("no model: give a config, model=… or --model");
        DataConfig& data = job_.data;
        if (!data_.empty()) {
            places_ = DataPlaces::of(data_);
            data.validation_fraction = 0;
        } else if (data.validation_fraction > 0) {
            places_ = training_places(data);
        } else {
            places_ = validation_places(data);
        }
        if (places_.paths.empty())
            throw Error(
                "nothing to evaluate on: give data.validation in the config or --data FILE");
        if (!data_.empty()) return;
        for (const std::string& path : places_.paths)
            data_ += (data_.empty() ? "" : " + ") + path;
        if (!places_.split.empty()) data_ += " (" + places_.split + ")";
    }

    std::uint64_t seed() const { return static_cast<std::uint64_t>(job_.train.seed); }

    // As training read them where it held some out or drew some: which they are hangs on its settings.
    SampleTables read_tables(EncodingSettings encoding, const Tokenizer& tokenizer) const {
        if (job_.data.validation_fraction > 0 || job_.eval.judges())
            encoding.max_length = job_.train.max_length;
        ProgressLine progress;
        return read_sample_tables(
            open_sources(places_, job_.data), job_.data, encoding, tokenizer,
            [&](const ReadingState& state) { progress.show(state.to_string()); });
    }

    void evaluate_labels(Session& session, const EncodingSettings& encoding) {
        const Tokenizer& tokenizer = session.tokenizer();
        RowNumbers only;
        if (const double fraction = job_.data.validation_fraction; fraction > 0)
            only = held_out_rows(read_tables(encoding, tokenizer), fraction, seed());
        const LabelledSet set = read_labelled_rows(places_, job_.data, encoding, tokenizer,
                                                   labels_of_training(job_.data, tokenizer), only);
        if (!json_) print(set.report.summary() + "\n");

        const auto start = std::chrono::steady_clock::now();
        Confusion confusion(set.labels);
        Calibration calibration;
        LabelsReport report(confusion);
        Sequence sequence(session, std::min(set.report.longest + 1, session.context()));
        {
            ProgressLine progress;
            for (const LabelledRow& row : set.rows) {
                const std::vector<double> scores =
                    score_continuations(sequence, row.prompt_ids, row.candidates);
                const std::int64_t predicted = likeliest(scores);
                confusion.add(row.label, predicted);
                const double probability = probability_of_likeliest(scores);
                calibration.add(probability, predicted == row.label);
                if (confusion.total() <= show_)
                    report.shown.push_back({row.text, row.label, predicted, probability, {}});
                progress.show(std::to_string(confusion.total()) + " of " +
                              std::to_string(set.rows.size()) + " rows");
            }
        }
        report.ece = calibration.expected_error();
        tell(report, start);
    }

    void judge_answers(Session& session, const EncodingSettings& encoding) {
        const Tokenizer& tokenizer = session.tokenizer();
        const SampleSelection samples = selected(read_tables(encoding, tokenizer));
        validate(job_.eval);
        const JudgedSet set = judged_rows(samples, places_, job_.data, encoding, tokenizer,
                                          job_.eval.request(job_.train.seed));
        check_labels(job_.eval, set.labels);
        if (!json_)
            print(std::to_string(set.rows.size()) + " of " + std::to_string(samples.size()) +
                  " rows are answered" +
                  (set.left_out == 0
                       ? std::string()
                       : "; " + std::to_string(set.left_out) +
                             " more were drawn, but their answer is cut off or empty") +
                  "\n");
        const auto start = std::chrono::steady_clock::now();
        const bool scores = job_.eval.has("ece");
        std::vector<ShownRow> shown;
        const Judgement judgement = [&] {
            ProgressLine progress;
            return judge(
                session, set,
                {.max_new_tokens = job_.eval.max_new_tokens,
                 .eos_ids = session.eos_ids(),
                 .scores = scores},
                [&](std::size_t r, const JudgedAnswer& answer) {
                    const LabelledRow& row = set.rows[r];
                    if (static_cast<std::int64_t>(r) < show_)
                        shown.push_back({row.text, row.label, answer.label,
                                         scores ? std::optional(answer.probability) : std::nullopt,
                                         answer.text});
                    progress.show(std::to_string(r + 1) + " of " + std::to_string(set.rows.size()) +
                                  " rows");
                });
        }();
        LabelsReport report(judgement.confusion);
        report.shown = std::move(shown);
        report.positive_label = job_.eval.positive_label;
        if (scores) report.ece = judgement.calibration.expected_error();
        tell(report, start, &judgement);
    }

    void tell(LabelsReport& report, std::chrono::steady_clock::time_point start,
              const Judgement* judgement = nullptr) const {
        report.seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        if (!json_) return print(report.to_text());
        Json json = report.to_json(data_);
        if (judgement != nullptr) {
            // As in metrics.jsonl.
            Json values{Json::Object{}};
            for (const auto& [name, value] : metric_values(job_.eval, *judgement))
                values.set(name, value);
            json.set("metrics", std::move(values));
        }
        print(json.dump(2) + "\n");
    }

    SampleSelection selected(const SampleTables& tables) const {
        const double fraction = job_.data.validation_fraction;
        return fraction > 0 ? hold_out(weighted(tables, {}), fraction, seed()).held_out
                            : select_samples(weighted(tables, {}), seed());
    }

    void evaluate_text(Session& session, const EncodingSettings& encoding) {
        const SampleTables tables = read_tables(encoding, session.tokenizer());
        const double fraction = job_.data.validation_fraction;
        const SampleSelection samples = selected(tables);
        if (!json_) {
            for (const SourceSamples& source : tables.sources)
                print(source.report.summary() + "\n");
            if (fraction > 0)
                print("of these " + std::to_string(samples.size()) + " samples were held out\n");
        }
        const auto start = std::chrono::steady_clock::now();
        const std::vector<TokenBatch> batches = evaluation_batches(samples, kBatchTokens);
        TokenLoss loss;
        {
            ProgressLine progress;
            loss = evaluate_losses(session, batches, [&](std::int64_t done) {
                progress.show(std::to_string(done) + " of " + std::to_string(batches.size()) +
                              " batches");
            });
        }
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        if (!json_) {
            print("perplexity  " + fixed(loss.perplexity(), 4) + "  (loss " +
                  fixed(loss.mean(), 6) + ", " + std::to_string(loss.targets) + " target tokens, " +
                  fixed(seconds, 1) + " s)\n");
            return;
        }
        Json json;
        json.set("file", data_);
        json.set("rows", samples.size());
        json.set("perplexity", loss.perplexity());
        json.set("loss", loss.mean());
        json.set("target_tokens", loss.targets);
        json.set("seconds", seconds);
        print(json.dump(2) + "\n");
    }

    std::vector<std::string> settings_;
    JobConfig job_;
    SessionArguments session_;
    std::string data_;  // as it is named in results
    DataPlaces places_;
    bool perplexity_ = false;
    bool json_ = false;
    std::int64_t show_ = 0;
};

}  // namespace

std::unique_ptr<Command> make_eval_command() {
    return std::make_unique<EvalCommand>();
}

}  // namespace garam
