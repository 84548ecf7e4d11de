#include "garam/serve/generation.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"
#include "garam/serve/session.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::TempDir;
using testing::TinyModel;
using testing::write_tiny_model;

class GenerationTest : public ::testing::Test {
  protected:
    void SetUp() override {
        model_.max_positions = 64;
        write_tiny_model(dir_ / "model", model_);
        session_ =
            std::make_unique<Session>(SessionOptions{.model = dir_ / "model", .dtype = "f32"});
    }

    Generation run(const GenerationOptions& options,
                   const std::vector<std::int32_t>& prompt = {72, 105, 32}) {
        Sequence sequence(*session_);
        pieces_.clear();
        return generate(sequence, prompt, options,
                        [&](std::string_view piece) { pieces_.emplace_back(piece); });
    }
    std::string heard() const {
        std::string text;
        for (const std::string& piece : pieces_)
            text += piece;
        return text;
    }

    TempDir dir_;
    TinyModel model_;
    std::unique_ptr<Session> session_;
    std::vector<std::string> pieces_;
};

TEST_F(GenerationTest, EndsAtTheLengthAskedFor) {
    const Generation result = run({.max_new_tokens = 20});
    EXPECT_EQ(result.finish_reason, FinishReason::length);
    EXPECT_EQ(result.ids.size(), 20u);
    EXPECT_EQ(result.prompt_tokens, 3);
    EXPECT_EQ(result.reused_tokens, 0);
    EXPECT_EQ(result.text, heard());
    EXPECT_EQ(result.text, session_->tokenizer().decode(result.ids, true));
    EXPECT_GT(result.prefill_tokens_per_second(), 0);
    EXPECT_GT(result.decode_tokens_per_second(), 0);
}

TEST_F(GenerationTest, EndsAtAnEosIdThatIsNoText) {
    const Generation whole = run({.max_new_tokens = 20});
    const std::int32_t eos = whole.ids[7];
    const std::size_t first = static_cast<std::size_t>(
        std::find(whole.ids.begin(), whole.ids.end(), eos) - whole.ids.begin());
    const Generation result = run({.max_new_tokens = 20, .eos_ids = {300, eos}});
    EXPECT_EQ(result.finish_reason, FinishReason::stop);
    EXPECT_EQ(result.ids,
              std::vector<std::int32_t>(whole.ids.begin(), whole.ids.begin() + first + 1));
    EXPECT_EQ(result.text, session_->tokenizer().decode(std::span(result.ids).first(first), true));
}

TEST_F(GenerationTest, EndsAtAStopStringThatIsNoText) {
    const Generation whole = run({.max_new_tokens = 40});
    ASSERT_GE(whole.text.size(), 12u);
    const std::string stop = whole.text.substr(6, 4);
    const Generation result = run({.max_new_tokens = 40, .stop = {"not there", stop}});
    EXPECT_EQ(result.finish_reason, FinishReason::stop);
    EXPECT_EQ(result.text, whole.text.substr(0, whole.text.find(stop)));
    EXPECT_EQ(result.text, heard());
    EXPECT_LT(result.ids.size(), whole.ids.size());
}

TEST_F(GenerationTest, EndsWithTheContext) {
    const Generation result = run({.max_new_tokens = 1000});
    EXPECT_EQ(result.finish_reason, FinishReason::context);
    EXPECT_EQ(result.ids.size(), 61u);
    // The last place of the context can still be filled.
    const Generation last = run({.max_new_tokens = 9}, std::vector<std::int32_t>(63, 65));
    EXPECT_EQ(last.finish_reason, FinishReason::context);
    EXPECT_EQ(last.ids.size(), 1u);
    EXPECT_THROW(run({}, std::vector<std::int32_t>(64, 65)), Error);
    EXPECT_THROW(run({}, {}), Error);
}

TEST_F(GenerationTest, SpecialTokensAreTextOnlyWhenAskedFor) {
    // Id 256 made the likeliest by the penalty of everything else would be contrived: sample a flat
    // distribution until one turns up.
    GenerationOptions options{.max_new_tokens = 60, .sampling = {.temperature = 50}};
    for (options.sampling.seed = 0; options.sampling.seed < 200; ++options.sampling.seed) {
        options.skip_special_tokens = true;
        const Generation without = run(options);
        if (std::find(without.ids.begin(), without.ids.end(), 257) == without.ids.end()) continue;
        EXPECT_EQ(without.text.find("<|im_start|>"), std::string::npos);
        options.skip_special_tokens = false;
        const Generation with = run(options);
        EXPECT_EQ(with.ids, without.ids);
        EXPECT_NE(with.text.find("<|im_start|>"), std::string::npos);
        return;
    }
    FAIL() << "no special token was drawn";
}

TEST_F(GenerationTest, TheSameSeedGivesTheSameText) {
    GenerationOptions options{.max_new_tokens = 30,
                              .sampling = {.temperature = 0.9, .top_p = 0.95, .seed = 11}};
    const Generation first = run(options);
    const Generation second = run(options);
    EXPECT_EQ(first.ids, second.ids);
    options.sampling.seed = 12;
    EXPECT_NE(run(options).ids, first.ids);
}

TEST_F(GenerationTest, TopKOfOneIsGreedy) {
    const Generation greedy = run({.max_new_tokens = 30});
    const Generation top =
        run({.max_new_tokens = 30, .sampling = {.temperature = 3, .top_k = 1, .seed = 4}});
    EXPECT_EQ(top.ids, greedy.ids);
}

TEST_F(GenerationTest, APenaltyThatIsLargeEnoughRepeatsNothing) {
    const Generation result = run({.max_new_tokens = 50, .sampling = {.repetition_penalty = 1e6}});
    // Negative logits of unseen ids beat positive ones divided by a million only when negative ones
    // were not: with some unseen id above zero at each step, no id comes twice.
    std::vector<std::int32_t> ids = result.ids;
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
}

TEST_F(GenerationTest, OptionsOutOfRangeAreRefused) {
    EXPECT_THROW(run({.max_new_tokens = 0}), Error);
    EXPECT_THROW(run({.stop = {""}}), Error);
    EXPECT_THROW(run({.sampling = {.temperature = -1}}), Error);
}

}  // namespace
}  // namespace garam
