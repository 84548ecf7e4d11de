#include "garam/data/judged_rows.h"

#include <gtest/gtest.h>

#include <set>

#include "data/byte_tokenizer.h"
#include "data/expect_error.h"
#include "garam/data/samples/read_samples.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

using testing::ByteTokenizer;
using testing::TempDir;

class JudgedRows : public ::testing::Test {
  protected:
    JudgedRows() {
        request_.verdict_key = "verdict";
        config_.cache = false;
    }
    JudgedSet read(const std::string& content) {
        const ByteTokenizer tokenizer(setup_);
        const DataPlaces places = DataPlaces::of(dir_.write("rows.jsonl", content).string());
        const SampleTables tables =
            read_sample_tables(open_sources(places, config_), config_, settings_, tokenizer);
        return judged_rows(select_samples(weighted(tables, {}), 1), places, config_, settings_,
                           tokenizer, request_);
    }
    std::string decoded(const std::vector<std::int32_t>& ids) {
        return ByteTokenizer(setup_).decode(ids, false);
    }

    TempDir dir_;
    ByteTokenizer::Setup setup_;
    DataConfig config_;
    EncodingSettings settings_;
    JudgedRequest request_;
};

constexpr const char* kLabelled =
    "{\"text\": \"hi\", \"label\": \"spam\"}\n{\"text\": \"yo\", \"label\": \"ham\"}\n"
    "{\"text\": \"hey\", \"label\": \"ham\"}\n";

TEST_F(JudgedRows, LabelsWithinAnAnswer) {
    config_.instruction = "Spam? {text}";
    config_.answer = R"({"verdict": "{label}"})";
    request_.candidates = true;
    const JudgedSet set = read(kLabelled);
    EXPECT_EQ(set.labels, (std::vector<std::string>{"ham", "spam"}));
    EXPECT_TRUE(set.reader.is_json());
    ASSERT_EQ(set.rows.size(), 3u);
    EXPECT_EQ(decoded(set.rows[0].prompt_ids), "Spam? hi\n");
    EXPECT_EQ(decoded(set.rows[0].candidates[1]), R"({"verdict": "spam"}<eos>)");
    EXPECT_EQ(set.rows[0].label, 1);
    EXPECT_EQ(set.longest_prompt, 10);
    EXPECT_EQ(set.longest_candidate, 19 + 1);
    EXPECT_EQ(set.end_ids.size(), 1u);
    EXPECT_EQ(decoded(set.end_ids), "<eos>");
}

TEST_F(JudgedRows, TheSameRowsAreDrawnWhateverTheyHold) {
    config_.instruction = "Spam? {text}";
    request_.rows = 2;
    for (const std::uint64_t seed : {1, 2, 3, 4}) {
        request_.seed = seed;
        const JudgedSet set = read(kLabelled);
        ASSERT_EQ(set.rows.size(), 2u);
        const std::vector<std::int64_t> numbers = draw_numbers(3, 2, seed);
        EXPECT_EQ(set.rows[0].row, numbers[0]);
        EXPECT_EQ(set.rows[1].row, numbers[1]);
        // A label that no drawn row has can still be answered.
        EXPECT_EQ(set.labels.size(), 2u);
    }
}

TEST_F(JudgedRows, OfAnswersThatHoldAVerdict) {
    const JudgedSet set =
        read(R"({"prompt": "Win!", "completion": "{\"verdict\": \"spam\", \"why\": \"x\"}"})"
             "\n"
             R"({"prompt": "Hi", "completion": "{\"verdict\": \"ham\"}"})"
             "\n"
             R"({"prompt": "So", "completion": "no JSON"})"
             "\n");
    EXPECT_EQ(set.labels, (std::vector<std::string>{"ham", "spam"}));
    ASSERT_EQ(set.rows.size(), 2u);
    EXPECT_EQ(set.left_out, 1);
    EXPECT_EQ(decoded(set.rows[0].prompt_ids), "Win!");
    EXPECT_EQ(set.rows[0].label, 1);
    EXPECT_EQ(set.rows[1].label, 0);
    EXPECT_TRUE(set.rows[0].candidates.empty());
    EXPECT_EQ(decoded(set.end_ids), "<eos>");
}

TEST_F(JudgedRows, WhatHasNoVerdictIsRefused) {
    const std::string answers = R"({"prompt": "is a", "completion": "{\"verdict\": \"x\"}"})"
                                "\n"
                                R"({"prompt": "is b", "completion": "{\"verdict\": \"y\"}"})"
                                "\n";
    request_.candidates = true;
    EXPECT_ERROR(read(answers), "ece", "data.instruction");
    request_.candidates = false;
    EXPECT_EQ(read(answers).labels.size(), 2u);
    request_.verdict_key = "label";
    EXPECT_ERROR(read(answers), "eval.verdict_key", "there are: verdict");
    request_.verdict_key = "verdict";
    EXPECT_ERROR(read("{\"text\": \"only text\"}\n"), "question");
    EXPECT_ERROR(read(R"({"prompt": "is a", "completion": "yes"})"), "\"yes\"", "tell apart");
    std::string many;
    for (int i = 0; i < 300; ++i)
        many += R"({"prompt": "is a", "completion": ")" + std::to_string(i) + "\"}\n";
    EXPECT_ERROR(read(many), "256");
    // An answer from which its own label cannot be read.
    config_.instruction = "Spam? {text}";
    config_.answer = R"({"verdict": "{label})";
    EXPECT_ERROR(read(kLabelled), "data.answer", "ham");
}

TEST(DrawNumbers, DifferentAscendingAndBySeed) {
    EXPECT_EQ(draw_numbers(3, 0, 1), (std::vector<std::int64_t>{0, 1, 2}));
    EXPECT_EQ(draw_numbers(3, 5, 1), (std::vector<std::int64_t>{0, 1, 2}));
    EXPECT_TRUE(draw_numbers(0, 5, 1).empty());
    std::set<std::vector<std::int64_t>> draws;
    std::vector<int> counts(20);
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
        const std::vector<std::int64_t> drawn = draw_numbers(20, 5, seed);
        ASSERT_EQ(drawn.size(), 5u);
        for (std::size_t i = 0; i < 5; ++i) {
            ASSERT_TRUE(i == 0 || drawn[i] > drawn[i - 1]);
            ++counts[static_cast<std::size_t>(drawn[i])];
        }
        EXPECT_EQ(drawn, draw_numbers(20, 5, seed));
        draws.insert(drawn);
    }
    EXPECT_GT(draws.size(), 300u);
    // Each number in a quarter of 400 draws: a binomial's deviation is 8.7, six of them are 52.
    for (const int count : counts)
        EXPECT_NEAR(count, 100, 52);
}

}  // namespace
}  // namespace garam
