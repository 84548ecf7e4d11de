#include "garam/data/rows/labelled_rows.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/byte_tokenizer.h"
#include "data/expect_error.h"
#include "garam/data/samples/read_samples.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

using testing::ByteTokenizer;
using testing::TempDir;

class LabelledRows : public ::testing::Test {
  protected:
    LabelledRows() { config_.instruction = "Spam? {text}"; }
    LabelledSet read(const std::string& content, const std::vector<std::string>& more = {}) {
        const ByteTokenizer tokenizer(setup_);
        return read_labelled_rows(DataPlaces::of(dir_.write("rows.jsonl", content).string()),
                                  config_, settings_, tokenizer, more);
    }
    std::string decoded(const std::vector<std::int32_t>& ids) {
        return ByteTokenizer(setup_).decode(ids, false);
    }
    // Prompt and right candidate are what training sees, up to the last target.
    void expect_as_trained(const std::string& content) {
        const LabelledSet set = read(content);
        const ByteTokenizer tokenizer(setup_);
        const SampleSet samples = read_samples(dir_ / "rows.jsonl", config_, settings_, tokenizer);
        ASSERT_EQ(samples.samples.size(), set.rows.size());
        for (std::size_t i = 0; i < set.rows.size(); ++i) {
            const LabelledRow& row = set.rows[i];
            std::vector<std::int32_t> whole = row.prompt_ids;
            const auto& answer = row.candidates[static_cast<std::size_t>(row.label)];
            whole.insert(whole.end(), answer.begin(), answer.end());
            const Sample& sample = samples.samples[i];
            std::size_t end = sample.labels.size();
            while (sample.labels[end - 1] == -100)
                --end;
            EXPECT_EQ(whole, std::vector<std::int32_t>(
                                 sample.ids.begin(),
                                 sample.ids.begin() + static_cast<std::ptrdiff_t>(end)));
        }
    }

    TempDir dir_;
    ByteTokenizer::Setup setup_;
    DataConfig config_;
    EncodingSettings settings_;
};

constexpr const char* kRows =
    "{\"text\": \"hi\", \"label\": \"spam\"}\n{\"text\": \"yo\", \"label\": \"ham\"}\n";

TEST_F(LabelledRows, AnswersStandOnALineOfTheirOwnWhateverTheTextEndsWith) {
    const std::string row =
        "{\"text\": \"hi \", \"label\": \"spam\"}\n"
        "{\"text\": \"yo\", \"label\": \"ham\"}\n";
    LabelledSet set = read(row);
    EXPECT_EQ(decoded(set.rows.at(0).prompt_ids), "Spam? hi \n");
    EXPECT_EQ(decoded(set.rows.at(1).prompt_ids), "Spam? yo\n");
    expect_as_trained(row);
    config_.instruction = "{text} Spam? ";  // a space of the instruction's own stays
    set = read(row);
    EXPECT_EQ(decoded(set.rows.at(0).prompt_ids), "hi  Spam? ");
}

TEST_F(LabelledRows, PromptsAndCandidates) {
    const LabelledSet set = read(kRows);
    EXPECT_EQ(set.labels, (std::vector<std::string>{"ham", "spam"}));
    ASSERT_EQ(set.rows.size(), 2u);
    EXPECT_EQ(decoded(set.rows[0].prompt_ids), "Spam? hi\n");
    ASSERT_EQ(set.rows[0].candidates.size(), 2u);
    EXPECT_EQ(decoded(set.rows[0].candidates[0]), "ham<eos>");
    EXPECT_EQ(decoded(set.rows[0].candidates[1]), "spam<eos>");
    EXPECT_EQ(set.rows[0].label, 1);
    EXPECT_EQ(set.rows[0].text, "hi");
    EXPECT_EQ(set.rows[1].label, 0);
    EXPECT_EQ(set.rows[1].row, 1);
    EXPECT_EQ(set.report.kept, 2);
    EXPECT_EQ(set.report.target_tokens, 5 + 4);
    expect_as_trained(kRows);
}

TEST_F(LabelledRows, ChatsEndWithTheTurnsTerminator) {
    setup_.chat_template = testing::kChatMl;
    config_.system = "Be terse.";
    const LabelledSet set = read(kRows);
    EXPECT_EQ(decoded(set.rows[0].prompt_ids),
              "<|im_start|>system\nBe terse.<|im_end|>\n<|im_start|>user\nSpam? hi<|im_end|>\n"
              "<|im_start|>assistant\n");
    EXPECT_EQ(decoded(set.rows[0].candidates[0]), "ham<|im_end|>");
    EXPECT_EQ(decoded(set.rows[0].candidates[1]), "spam<|im_end|>");
    expect_as_trained(kRows);
}

TEST_F(LabelledRows, MergesAcrossTheBorderMoveItForAllCandidates) {
    setup_.merges = {"\nsp"};
    const LabelledSet set = read(kRows);
    EXPECT_EQ(decoded(set.rows[0].prompt_ids), "Spam? hi");
    EXPECT_EQ(decoded(set.rows[0].candidates[0]), "\nham<eos>");
    EXPECT_EQ(decoded(set.rows[0].candidates[1]), "\nspam<eos>");
    expect_as_trained(kRows);
}

TEST_F(LabelledRows, LabelsOfTheTrainingFileAreCandidatesToo) {
    const LabelledSet set = read("{\"text\": \"hi\", \"label\": 1}\n", {"0", "1", "2"});
    EXPECT_EQ(set.labels, (std::vector<std::string>{"0", "1", "2"}));
    EXPECT_EQ(set.rows[0].candidates.size(), 3u);
    EXPECT_EQ(set.rows[0].label, 1);
    EXPECT_ERROR(read("{\"text\": \"hi\", \"label\": 1}\n"), "all rows have the label \"1\"");
    const ByteTokenizer tokenizer(setup_);
    const DataPlaces places = DataPlaces::of(dir_.write("more.jsonl", kRows).string());
    EXPECT_EQ(read_labels(open_sources(places, config_), config_, tokenizer),
              (std::vector<std::string>{"ham", "spam"}));
}

TEST_F(LabelledRows, LongRowsAreDroppedNotTruncated) {
    settings_.max_length = 14;  // "Spam? hi\n" and "spam<eos>" are 9 + 5
    LabelledSet set = read(std::string(kRows) + "{\"text\": \"long\", \"label\": \"ham\"}\n");
    EXPECT_EQ(set.rows.size(), 2u);
    EXPECT_EQ(set.report.dropped_rows(), 1);
    EXPECT_EQ(set.report.longest, 14);
    settings_.max_length = 13;
    EXPECT_ERROR(read(kRows), "none of its 2 rows fits max_length = 13");
}

TEST_F(LabelledRows, BadRows) {
    EXPECT_ERROR(read("{\"text\": \"hi\"}\n"), "rows.jsonl:1", "\"label\"", "data.label_column",
                 "The column is \"text\"");
    config_.on_error = "skip";
    const LabelledSet set = read(std::string("{\"text\": \"hi\"}\n{\n") + kRows);
    EXPECT_EQ(set.report.skipped.count, 2);
    ASSERT_EQ(set.rows.size(), 2u);
    EXPECT_EQ(set.rows[0].row, 2);
    std::string many;
    for (int i = 0; i < 300; ++i)
        many += "{\"text\": \"hi\", \"label\": " + std::to_string(i) + "}\n";
    EXPECT_ERROR(read(many), "rows.jsonl:257", "more than 256 different labels");
    settings_.vocab_size = 301;
    EXPECT_ERROR(read(kRows), "\"<eos>\" the id 301");
    settings_.vocab_size = 0;
    config_.instruction = "";
    config_.on_error = "fail";
    EXPECT_ERROR(read(kRows), "data.instruction");
}

}  // namespace
}  // namespace garam
