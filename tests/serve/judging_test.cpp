#include "garam/serve/judging.h"

#include <gtest/gtest.h>

#include "garam/serve/generation.h"
#include "garam/serve/scoring.h"
#include "garam/serve/session.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::TempDir;
using testing::write_tiny_model;

// What judge() makes of one sequence for all rows is what each row gives alone.
TEST(Judging, EachRowAsIfAlone) {
    const TempDir dir;
    write_tiny_model(dir / "model");
    Session session({.model = dir / "model", .dtype = "f32"});
    JudgedSet set;
    std::vector<std::string> answers;
    GenerationOptions options;
    options.max_new_tokens = 6;
    options.eos_ids = session.eos_ids();
    for (std::int32_t i = 0; i < 5; ++i) {
        LabelledRow row;
        row.prompt_ids = {72, 101, 70 + i, 80, 90 - i};
        row.candidates = {{65, 66, 258}, {67, 258}};
        set.rows.push_back(row);
        Sequence alone(session);
        answers.push_back(generate(alone, row.prompt_ids, options).text);
    }
    set.longest_prompt = 5;
    set.longest_candidate = 3;
    // The truth of the first three is what the model says; what it says of the last has no label.
    set.labels = {answers[0], "never"};
    const auto add = [&](const std::string& answer) {
        if (set.reader.label_of(answer, set.labels)) return;
        set.labels.push_back(answer);
    };
    for (std::size_t r = 0; r + 1 < answers.size(); ++r)
        add(answers[r]);
    for (std::size_t r = 0; r < answers.size(); ++r)
        set.rows[r].label = r < 3 ? set.reader.label_of(answers[r], set.labels).value_or(1) : 1;

    std::vector<JudgedAnswer> heard;
    const Judgement judgement =
        judge(session, set, {.max_new_tokens = 6, .eos_ids = session.eos_ids(), .scores = true},
              [&](std::size_t row, const JudgedAnswer& answer) {
                  EXPECT_EQ(row, heard.size());
                  heard.push_back(answer);
              });
    ASSERT_EQ(heard.size(), answers.size());
    std::int64_t right = 0;
    for (std::size_t r = 0; r < answers.size(); ++r) {
        EXPECT_EQ(heard[r].text, answers[r]);
        EXPECT_EQ(heard[r].label, set.reader.label_of(answers[r], set.labels));
        right += heard[r].label == set.rows[r].label;
        Sequence alone(session);
        const std::vector<double> scores =
            score_continuations(alone, set.rows[r].prompt_ids, set.rows[r].candidates);
        EXPECT_EQ(heard[r].likeliest, likeliest(scores));
        EXPECT_NEAR(heard[r].probability, probability_of_likeliest(scores), 1e-6);
    }
    EXPECT_EQ(judgement.confusion.total(), 5);
    EXPECT_DOUBLE_EQ(judgement.confusion.accuracy(), static_cast<double>(right) / 5);
    EXPECT_EQ(judgement.calibration.total(), 5);
}

TEST(Judging, TheRoomHoldsAnswersAndCandidates) {
    JudgedSet set;
    set.longest_prompt = 100;
    set.longest_candidate = 20;
    EXPECT_EQ(judging_room(set, 5), 120);
    EXPECT_EQ(judging_room(set, 50), 150);
}

}  // namespace
}  // namespace garam
