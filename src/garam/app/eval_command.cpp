// garam eval CONFIG: how well a model (with its adapter) does on a file of rows.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include "garam/app/command.h"
#include "garam/app/command_line.h"
#include "garam/app/load_job.h"
#include "garam/app/progress_line.h"
#include "garam/app/session_arguments.h"
#include "garam/app/standard_output.h"
#include "garam/core/error.h"
#include "garam/core/json.h"
#include "garam/data/loader.h"
#include "garam/data/rows/labelled_rows.h"
#include "garam/data/samples/read_samples.h"
#include "garam/data/samples/sample_selection.h"
#include "garam/serve/classification.h"
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

std::string padded(std::string text, std::size_t width) {
    if (text.size() < width) text.insert(0, width - text.size(), ' ');
    return text;
}

struct Classified {
    const LabelledRow* row = nullptr;
    std::int64_t predicted = 0;
    double probability = 0;  // of the prediction, among the labels
};

class EvalCommand : public Command {
  public:
    std::string name() const override { return "eval"; }
    std::string summary() const override {
        return "Accuracy, F1 and confusion of labelled rows, or perplexity of text";
    }
    std::string details() const override {
        return R"(Takes the config of a training run: model, adapter and data.* count here; the rows are those of
data.validation (or data.validation_split, data.validation_fraction). With data.instruction each
row's label is predicted: the label whose answer the model finds likeliest, the log-probabilities of
the answer's tokens and of the token that ends the turn added up. Without it, or with --perplexity, exp of the mean loss over target tokens.

Examples:
  garam eval spam.yaml adapter=run/adapter
  garam eval spam.yaml adapter=run/adapter --data other.jsonl --show 5
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
        Session session(session_.options());
        print_warnings(session);

        EncodingSettings encoding = encoding_settings(job_, session.decoder().config().vocab_size);
        encoding.max_length = std::min(encoding.max_length, session.context());
        const bool classify =
            !perplexity_ && !job_.data.instruction.empty() && !job_.data.label_column.empty();
        if (!classify && show_ > 0) throw Error("--show needs labelled rows: set data.instruction");
        if (classify) {
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

    // A label that only the training rows have can still be predicted. They need not be at hand.
    std::vector<std::string> labels_of_training(const Tokenizer& tokenizer) const {
        const DataPlaces training = training_places(job_.data);
        if (training.paths.empty()) return {};
        std::vector<OpenSource> sources;
        try {
            sources = open_sources(training, job_.data);
        } catch (const Error&) {
            return {};
        }
        return read_labels(std::move(sources), job_.data, tokenizer);
    }

    // As training read them where it held some out: which they are hangs on its settings.
    SampleTables read_tables(EncodingSettings encoding, const Tokenizer& tokenizer) const {
        if (job_.data.validation_fraction > 0) encoding.max_length = job_.train.max_length;
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
                                                   labels_of_training(tokenizer), only);
        if (!json_) print(set.report.summary() + "\n");

        const auto start = std::chrono::steady_clock::now();
        Confusion confusion(set.labels);
        std::vector<Classified> classified;
        Sequence sequence(session, std::min(set.report.longest + 1, session.context()));
        {
            ProgressLine progress;
            for (const LabelledRow& row : set.rows) {
                const std::vector<double> scores =
                    score_continuations(sequence, row.prompt_ids, row.candidates);
                const std::int64_t predicted = likeliest(scores);
                confusion.add(row.label, predicted);
                double sum = 0;
                const double best = scores[static_cast<std::size_t>(predicted)];
                for (const double score : scores)
                    sum += std::exp(score - best);
                classified.push_back({&row, predicted, 1 / sum});
                progress.show(std::to_string(classified.size()) + " of " +
                              std::to_string(set.rows.size()) + " rows");
            }
        }
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        classified.resize(std::min(classified.size(),
                                   static_cast<std::size_t>(std::max<std::int64_t>(show_, 0))));
        if (json_) {
            print(labels_json(confusion, classified, seconds).dump(2) + "\n");
        } else {
            print_labels(confusion, classified, seconds);
        }
    }

    static void print_labels(const Confusion& confusion, const std::vector<Classified>& shown,
                             double seconds) {
        // Labels are data: what they hold must not steer the terminal.
        std::vector<std::string> labels;
        for (const std::string& label : confusion.labels())
            labels.push_back(one_line(label));
        const auto count = static_cast<std::int64_t>(labels.size());
        for (const Classified& one : shown) {
            const std::string& truth = labels[static_cast<std::size_t>(one.row->label)];
            const std::string& predicted = labels[static_cast<std::size_t>(one.predicted)];
            print((one.row->label == one.predicted ? "right  " : "wrong  ") + predicted + " " +
                  fixed(one.probability, 3) +
                  (truth == predicted ? std::string() : " (is " + truth + ")") + "  " +
                  quoted_beginning(one.row->text) + "\n");
        }
        print("accuracy  " + fixed(confusion.accuracy(), 4) + "  (" +
              std::to_string(confusion.total()) + " rows, " + fixed(seconds, 1) + " s)\n");
        print("macro F1  " + fixed(confusion.macro_f1(), 4) + "\n\n");
        std::size_t width = 5;
        for (const std::string& label : labels)
            width = std::max(width, label.size());
        print(padded("label", width) + "  precision  recall      F1  rows\n");
        for (std::int64_t l = 0; l < count; ++l) {
            const Confusion::LabelScore score = confusion.score(l);
            print(padded(labels[static_cast<std::size_t>(l)], width) +
                  padded(fixed(score.precision, 4), 11) + padded(fixed(score.recall, 4), 8) +
                  padded(fixed(score.f1, 4), 8) + padded(std::to_string(score.support), 6) + "\n");
        }
        print("\nconfusion (row: true label, column: prediction)\n" + std::string(width, ' '));
        for (const std::string& label : labels)
            print(padded(label, width + 2));
        print("\n");
        for (std::int64_t truth = 0; truth < count; ++truth) {
            print(padded(labels[static_cast<std::size_t>(truth)], width));
            for (std::int64_t predicted = 0; predicted < count; ++predicted)
                print(padded(std::to_string(confusion.count(truth, predicted)), width + 2));
            print("\n");
        }
    }

    Json labels_json(const Confusion& confusion, const std::vector<Classified>& shown,
                     double seconds) const {
        const std::vector<std::string>& labels = confusion.labels();
        Json per_label{Json::Object{}};
        Json::Array counts;
        Json::Array names;
        for (std::size_t l = 0; l < labels.size(); ++l) {
            const auto label = static_cast<std::int64_t>(l);
            const Confusion::LabelScore score = confusion.score(label);
            per_label.set(labels[l], Json(Json::Object{{"precision", score.precision},
                                                       {"recall", score.recall},
                                                       {"f1", score.f1},
                                                       {"support", score.support}}));
            Json::Array row;
            for (std::size_t p = 0; p < labels.size(); ++p)
                row.emplace_back(confusion.count(label, static_cast<std::int64_t>(p)));
            counts.emplace_back(std::move(row));
            names.emplace_back(labels[l]);
        }
        Json json;
        json.set("file", data_);
        json.set("rows", confusion.total());
        json.set("accuracy", confusion.accuracy());
        json.set("macro_f1", confusion.macro_f1());
        json.set("per_label", std::move(per_label));
        json.set("confusion", Json(Json::Object{{"labels", Json(std::move(names))},
                                                {"counts", Json(std::move(counts))}}));
        json.set("seconds", seconds);
        if (!shown.empty()) {
            Json::Array examples;
            for (const Classified& one : shown) {
                examples.emplace_back(
                    Json::Object{{"text", one.row->text},
                                 {"label", labels[static_cast<std::size_t>(one.row->label)]},
                                 {"predicted", labels[static_cast<std::size_t>(one.predicted)]},
                                 {"probability", one.probability}});
            }
            json.set("examples", Json(std::move(examples)));
        }
        return json;
    }

    void evaluate_text(Session& session, const EncodingSettings& encoding) {
        const SampleTables tables = read_tables(encoding, session.tokenizer());
        const double fraction = job_.data.validation_fraction;
        const SampleSelection samples =
            fraction > 0 ? hold_out(weighted(tables, {}), fraction, seed()).held_out
                         : select_samples(weighted(tables, {}), seed());
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
