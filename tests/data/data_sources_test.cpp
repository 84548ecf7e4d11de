// From sources to tables of samples: declared rows, broken files, the cache and its key.
#include "garam/data/data_sources.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/byte_tokenizer.h"
#include "data/expect_error.h"
#include "garam/data/rows/labelled_rows.h"
#include "garam/data/samples/read_samples.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

using testing::ByteTokenizer;
using testing::TempDir;

// Rows of JSON in batches of two, as a table holds them.
class FakeRows : public RowSource {
  public:
    struct Content {
        RowSchema schema;
        std::vector<std::string> rows;
        int breaks_at = -1;  // number of a batch
    };
    explicit FakeRows(const Content& content) : content_(content) {}

    std::unique_ptr<RowBatch> next() override {
        if (batch_ == content_.breaks_at) throw Error("t.parquet: page 3 is torn");
        const std::size_t begin = static_cast<std::size_t>(batch_++) * 2;
        if (begin >= content_.rows.size()) return nullptr;
        return std::make_unique<Batch>(content_.rows, begin);
    }
    const RowSchema& schema() const override { return content_.schema; }
    const std::vector<std::filesystem::path>& files() const override { return files_; }

  private:
    class Batch : public RowBatch {
      public:
        Batch(const std::vector<std::string>& rows, std::size_t begin)
            : rows_(rows.begin() + static_cast<std::ptrdiff_t>(begin),
                    rows.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 2, rows.size()))),
              begin_(begin) {}
        std::int64_t size() const override { return static_cast<std::int64_t>(rows_.size()); }
        Json row(std::int64_t i) const override {
            return Json::parse(rows_[static_cast<std::size_t>(i)], where(i));
        }
        std::string where(std::int64_t i) const override {
            return "t.parquet, row " + std::to_string(begin_ + static_cast<std::size_t>(i));
        }

      private:
        std::vector<std::string> rows_;
        std::size_t begin_;
    };

    Content content_;
    std::vector<std::filesystem::path> files_;
    int batch_ = 0;
};

class SavedTokenizer : public ByteTokenizer {
  public:
    explicit SavedTokenizer(std::string content = "a") : content_(std::move(content)) {}
    void save(const std::filesystem::path& folder) const override {
        std::ofstream(folder / "tokenizer.json") << content_;
    }

  private:
    std::string content_;
};

class DataSources : public ::testing::Test {
  protected:
    DataSources() { config_.cache_dir = (dir_ / "cache").string(); }

    ReadReport read(const FakeRows::Content& content) {
        opened_.clear();
        OpenSource source(
            "t",
            [&](const std::vector<std::string>& only) {
                opened_.push_back(only);
                return std::make_unique<FakeRows>(content);
            },
            config_);
        samples_.clear();
        return read_samples(source, config_, settings_, ByteTokenizer(),
                            [this](Sample&& sample, std::int64_t full) {
                                samples_.push_back(std::move(sample));
                                full_.push_back(full);
                            });
    }
    SourceSamples table(const std::string& path, const Tokenizer& tokenizer = SavedTokenizer()) {
        SampleTables tables = read_sample_tables(open_sources(DataPlaces::of(path), config_),
                                                 config_, settings_, tokenizer);
        return tables.sources.at(0);
    }

    TempDir dir_;
    DataConfig config_;
    EncodingSettings settings_;
    std::vector<Sample> samples_;
    std::vector<std::int64_t> full_;
    std::vector<std::vector<std::string>> opened_;  // with these columns alone
};

const RowSchema kPairs = {
    "parquet", {{"prompt", "string", {}}, {"completion", "string", {}}, {"text", "string", {}}}};

TEST_F(DataSources, DeclaredRowsAreHeldToTheirSchema) {
    const std::string good = R"({"prompt": "a", "completion": "b", "text": null})";
    const std::string bad = R"({"prompt": null, "completion": null, "text": "x"})";
    const ReadReport report = read({kPairs, {good, good, good}});
    EXPECT_EQ(report.kept, 3);
    // Then without what is not used.
    EXPECT_EQ(opened_, (std::vector<std::vector<std::string>>{{}, {"prompt", "completion"}}));
    EXPECT_EQ(report.shape, "prompt, completion; 1 column unused: text");
    EXPECT_NE(report.summary().find("t: prompt, completion"), std::string::npos);
    EXPECT_ERROR(read({kPairs, {good, good, good, bad}}),
                 "t.parquet, row 3: \"prompt\" has no value");
    config_.on_error = "skip";
    const ReadReport skipped = read({kPairs, {good, bad, good}});
    EXPECT_EQ(skipped.skipped.count, 1);
    EXPECT_EQ(skipped.skipped.first_where, "t.parquet, row 1");
    EXPECT_EQ(samples_.at(1).row, 2);
}

TEST_F(DataSources, ATornFileIsNoRowToSkip) {
    const std::string row = R"({"prompt": "a", "completion": "b", "text": null})";
    for (const char* mode : {"fail", "skip"}) {
        config_.on_error = mode;
        EXPECT_ERROR(read({kPairs, {row, row, row, row}, 1}), "page 3 is torn",
                     "behind row 2 of t");
        EXPECT_ERROR(read({kPairs, {row, row}, 0}), "page 3 is torn");
        // All rows are there, but whether more came behind them cannot be told.
        EXPECT_ERROR(read({kPairs, {row, row}, 1}), "page 3 is torn");
    }
}

TEST_F(DataSources, OnlyTheFirstRowsAreTaken) {
    const std::string row = R"({"prompt": "a", "completion": "b", "text": null})";
    config_.max_rows = 3;
    EXPECT_EQ(read({kPairs, {row, row, row, row, "{"}}).rows, 3);
    EXPECT_EQ(samples_.size(), 3u);
    config_.max_rows = 0;
    EXPECT_ERROR(read({kPairs, {}}), "t: holds no rows");
}

TEST_F(DataSources, LengthsBeforeTruncationAreHandedOn) {
    settings_.max_length = 3;
    read({{"jsonl", {}}, {R"({"text": "abcdef"})", R"({"text": "a"})"}});
    EXPECT_EQ(full_, (std::vector<std::int64_t>{7, 2}));
    EXPECT_EQ(samples_.at(0).tokens(), 3);
}

TEST_F(DataSources, TablesAreKeptByContent) {
    const std::string rows = "{\"text\": \"ab\"}\n{\"text\": \"cd\"}\n";
    const std::string first = dir_.write("rows.jsonl", rows).string();
    const std::string moved = dir_.write("moved.jsonl", rows).string();
    EXPECT_TRUE(table(first).made);
    EXPECT_FALSE(table(first).made);
    const SourceSamples again = table(moved);
    EXPECT_FALSE(again.made);
    EXPECT_EQ(again.report.file, moved);
    EXPECT_EQ(again.report.kept, 2);
    EXPECT_EQ(again.report.shape, "text");
    EXPECT_EQ(again.table.size(), 2);
    dir_.write("moved.jsonl", rows + "{\"text\": \"ef\"}\n");
    EXPECT_TRUE(table(moved).made);
    EXPECT_EQ(table(moved).table.size(), 3);
    EXPECT_TRUE(table(first, SavedTokenizer("b")).made);
    settings_.max_length = 2;
    EXPECT_TRUE(table(first).made);
    config_.cache_dir = "";
    config_.cache = false;
    EXPECT_TRUE(table(first).made);
    EXPECT_TRUE(table(first).made);
}

TEST_F(DataSources, WhatDecidesTheSamplesIsInTheKey) {
    const std::string file = dir_.write("rows.jsonl", "{\"text\": \"ab\"}\n").string();
    SampleCache cache(config_.cache_dir);
    const auto key = [&](const DataConfig& config, const EncodingSettings& settings) {
        const std::vector<OpenSource> sources = open_sources(DataPlaces::of(file), config);
        return sample_key(sources.at(0), config, settings, ByteTokenizer(), "tokenizer", cache)
            .dump();
    };
    const std::string plain = key(config_, settings_);
    EXPECT_EQ(key(config_, settings_), plain);
    const std::vector<std::function<void(DataConfig&, EncodingSettings&)>> changes = {
        [](DataConfig& c, EncodingSettings&) {
            c.columns = {{"text", "text"}};
        },
        [](DataConfig& c, EncodingSettings&) {
            c.label_names = {{"0", "a"}};
        },
        [](DataConfig& c, EncodingSettings&) {
            c.roles = {{"a", "user"}};
        },
        [](DataConfig& c, EncodingSettings&) { c.text_column = "t"; },
        [](DataConfig& c, EncodingSettings&) { c.label_column = "l"; },
        [](DataConfig& c, EncodingSettings&) { c.instruction = "i"; },
        [](DataConfig& c, EncodingSettings&) { c.system = "s"; },
        [](DataConfig& c, EncodingSettings&) {
            c.chat_template_kwargs = {{"a", "b"}};
        },
        [](DataConfig& c, EncodingSettings&) { c.train_on_turns = "last"; },
        [](DataConfig& c, EncodingSettings&) { c.max_rows = 1; },
        [](DataConfig& c, EncodingSettings&) { c.on_error = "skip"; },
        [](DataConfig& c, EncodingSettings&) { c.text_unit = "document"; },
        [](DataConfig&, EncodingSettings& s) { s.max_length = 7; },
        [](DataConfig&, EncodingSettings& s) { s.truncation = Truncation::keep_end; },
        [](DataConfig&, EncodingSettings& s) { s.assistant_only_loss = false; },
        [](DataConfig&, EncodingSettings& s) { s.completion_only_loss = false; },
        [](DataConfig&, EncodingSettings& s) { s.chat_template = "x"; },
        [](DataConfig&, EncodingSettings& s) { s.vocab_size = 500; }};
    std::vector<std::string> keys = {plain};
    for (const auto& change : changes) {
        DataConfig config = config_;
        EncodingSettings settings = settings_;
        change(config, settings);
        keys.push_back(key(config, settings));
        for (std::size_t i = 0; i + 1 < keys.size(); ++i)
            EXPECT_NE(keys.back(), keys[i]) << i;
    }
    // What changes nothing of a source's samples.
    DataConfig other = config_;
    other.shuffle = false;
    other.weights = {2};
    other.validation_fraction = 0.5;
    EXPECT_EQ(key(other, settings_), plain);
    // A template that writes the date.
    EncodingSettings dated;
    dated.chat_template = "{{ strftime_now('%Y') }}";
    EXPECT_NE(key(config_, dated).find("\"day\""), std::string::npos);
}

TEST_F(DataSources, ProgressIsTold) {
    std::string rows;
    for (int i = 0; i < 5000; ++i)
        rows += "{\"text\": \"abc\"}\n";
    const std::string file = dir_.write("rows.jsonl", rows).string();
    std::vector<OpenSource> sources = open_sources(DataPlaces::of(file), config_);
    std::vector<ReadingState> states;
    read_samples(
        sources.at(0), config_, settings_, ByteTokenizer(), [](Sample&&, std::int64_t) {},
        [&](const ReadingState& state) { states.push_back(state); });
    ASSERT_FALSE(states.empty());
    EXPECT_EQ(states.back().rows, 5000);
    EXPECT_EQ(states.back().tokens, 20000);
    EXPECT_EQ((ReadingState{"f", 1200, 30000, 2, 0.425}.to_string()),
              "tokenising f: 42 %, 1,200 rows, 15,000 tokens/s");
    EXPECT_EQ((ReadingState{"f", 3, 0, 0, -1}.to_string()), "tokenising f: 3 rows");
}

TEST_F(DataSources, HeldOutRowsAreThoseThatTrainingLeavesOut) {
    std::string rows;
    for (int i = 0; i < 40; ++i)
        rows += "{\"text\": \"t" + std::to_string(i) + "\", \"label\": " + std::to_string(i % 2) +
                "}\n";
    const DataPlaces places = DataPlaces::of(dir_.write("rows.jsonl", rows).string());
    config_.instruction = "Which?";
    config_.label_names = {{"1", "odd"}, {"0", "even"}};
    const SampleTables tables =
        read_sample_tables(open_sources(places, config_), config_, settings_, SavedTokenizer());
    const RowNumbers out = held_out_rows(tables, 0.25, 7);
    ASSERT_EQ(out.size(), 1u);
    EXPECT_EQ(out[0].size(), 10u);
    EXPECT_EQ(held_out_rows(tables, 0.25, 7), out);
    EXPECT_NE(held_out_rows(tables, 0.25, 8), out);
    const SampleSelection training = hold_out(weighted(tables, {}), 0.25, 7).training;
    for (std::int64_t i = 0; i < training.size(); ++i)
        EXPECT_FALSE(
            std::binary_search(out[0].begin(), out[0].end(), training.origin(training.id(i)).row));
    const LabelledSet set =
        read_labelled_rows(places, config_, settings_, ByteTokenizer(), {}, out);
    EXPECT_EQ(set.labels, (std::vector<std::string>{"odd", "even"}));  // as the config orders them
    ASSERT_EQ(set.rows.size(), 10u);
    EXPECT_EQ(set.report.rows, 10);
    for (std::size_t i = 0; i < 10; ++i) {
        EXPECT_EQ(set.rows[i].row, out[0][i]);
        EXPECT_EQ(set.rows[i].label, set.rows[i].row % 2 == 1 ? 0 : 1);
    }
}

TEST_F(DataSources, PlacesOfTrainingAndEvaluation) {
    config_.train = {"a", "b"};
    config_.train_split = "train[:90%]";
    EXPECT_EQ(training_places(config_).paths, (std::vector<std::string>{"a", "b"}));
    EXPECT_TRUE(validation_places(config_).paths.empty());
    config_.validation_split = "test";
    EXPECT_EQ(validation_places(config_).paths, (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(validation_places(config_).split, "test");
    config_.validation = {"c"};
    EXPECT_EQ(validation_places(config_).paths, std::vector<std::string>{"c"});
    config_.csv_delimiter = "tab";
    config_.csv_quote = "";
    const RowSourceOptions options = source_options(config_, "x");
    EXPECT_EQ(options.csv_delimiter, '\t');
    EXPECT_EQ(options.csv_quote, '\0');
    EXPECT_EQ(options.split, "x");
    EXPECT_EQ(options.format, "");
}

}  // namespace
}  // namespace garam
