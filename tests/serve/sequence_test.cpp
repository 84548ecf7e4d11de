// Decoding with a cache against whole forward passes.
//
// Bound: both compute the same sums in another order. A sum of K fp32 terms in two orders differs by about
// sqrt(K) * 2^-24 of its terms' size (errors of random sign); a block has about 8 such sums one after the
// other, and differences of all blocks add up. With a safety factor of 8 for the head and the softmax:
// 8 * 8 * layers * sqrt(K) * 2^-24 * max|logit|.
#include "garam/serve/sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "garam/core/error.h"
#include "garam/core/philox.h"
#include "garam/serve/session.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::TempDir;
using testing::TinyModel;
using testing::write_tiny_model;

class SequenceTest : public ::testing::Test {
  protected:
    void SetUp() override {
        model_.max_positions = 700;
        model_.biases = true;
        write_tiny_model(dir_ / "model", model_);
        session_ =
            std::make_unique<Session>(SessionOptions{.model = dir_ / "model", .dtype = "f32"});
    }

    std::vector<std::int32_t> random_ids(std::int64_t count, std::uint64_t seed = 5) const {
        Random random(seed);
        std::vector<std::int32_t> ids;
        for (std::int64_t i = 0; i < count; ++i)
            ids.push_back(static_cast<std::int32_t>(
                random.below(static_cast<std::uint64_t>(model_.vocab_size))));
        return ids;
    }

    // Logits after the last id, from one pass over all.
    std::vector<float> whole(const std::vector<std::int32_t>& ids) {
        TokenBatch batch;
        batch.append(ids, std::vector<std::int32_t>(ids.size(), kIgnore), 0);
        std::vector<float> logits;
        const std::vector<std::int32_t> rows{static_cast<std::int32_t>(ids.size()) - 1};
        const auto call = [&](Decoder& decoder, Stream& stream) {
            decoder.logits(stream, batch, rows, logits);
        };
        session_->reserve(call);
        call(session_->decoder(), session_->stream());
        return logits;
    }

    void expect_close(std::span<const float> got, std::span<const float> want) const {
        ASSERT_EQ(got.size(), want.size());
        double largest = 0;
        double worst = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
            largest = std::max(largest, std::abs(static_cast<double>(want[i])));
            worst = std::max(worst, std::abs(static_cast<double>(got[i] - want[i])));
        }
        const double terms =
            static_cast<double>(std::max(model_.hidden_size, model_.intermediate_size));
        const double bound =
            8 * 8 * static_cast<double>(model_.num_layers) * std::sqrt(terms) * 0x1p-24 * largest;
        EXPECT_LE(worst, bound);
        EXPECT_GT(largest, 0.1);
    }

    TempDir dir_;
    TinyModel model_;
    std::unique_ptr<Session> session_;
};

TEST_F(SequenceTest, TokenByTokenIsTheWholeForward) {
    const std::vector<std::int32_t> ids = random_ids(40);
    Sequence sequence(*session_);
    for (std::size_t length = 1; length <= ids.size(); ++length) {
        sequence.extend({&ids[length - 1], 1});
        expect_close(sequence.logits(), whole({ids.begin(), ids.begin() + length}));
    }
}

TEST_F(SequenceTest, ChunkedPrefillIsTheWholeForward) {
    for (const std::int64_t length : {255, 256, 257, 600}) {
        const std::vector<std::int32_t> ids = random_ids(length);
        Sequence sequence(*session_, length);
        sequence.extend(ids);
        expect_close(sequence.logits(), whole(ids));
    }
}

TEST_F(SequenceTest, GrowingKeepsWhatWasComputed) {
    const std::vector<std::int32_t> ids = random_ids(600);
    Sequence grown(*session_);  // room for 256, then 512, then the context
    for (std::size_t begin = 0; begin < ids.size(); begin += 100)
        grown.extend(std::span(ids).subspan(begin, 100));
    Sequence large(*session_, 700);
    for (std::size_t begin = 0; begin < ids.size(); begin += 100)
        large.extend(std::span(ids).subspan(begin, 100));
    const std::span<const float> got = grown.logits(), want = large.logits();
    EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin(), want.end()));
}

// Where the frequencies change with the length, all keys are made again, on the way up and down.
TEST_F(SequenceTest, LongSequencesTurnOtherwise) {
    Json config = model_.config();
    const auto pairs = static_cast<std::size_t>(model_.head_dim / 2);
    Json scaling;
    scaling.set("rope_type", "longrope");
    scaling.set("original_max_position_embeddings", 20);
    scaling.set("short_factor", Json::Array(pairs, Json(1.5)));
    scaling.set("long_factor", Json::Array(pairs, Json(4.0)));
    config.set("rope_scaling", scaling);
    std::ofstream(dir_ / "model" / "config.json") << config.dump();
    session_ = std::make_unique<Session>(SessionOptions{.model = dir_ / "model", .dtype = "f32"});

    const std::vector<std::int32_t> ids = random_ids(30);
    Sequence sequence(*session_);
    for (std::size_t length = 1; length <= ids.size(); ++length) {
        sequence.extend({&ids[length - 1], 1});
        expect_close(sequence.logits(), whole({ids.begin(), ids.begin() + length}));
    }
    sequence.rewind(10);
    sequence.extend({&ids[10], 1});
    expect_close(sequence.logits(), whole({ids.begin(), ids.begin() + 11}));
    EXPECT_EQ(sequence.ids(), std::vector<std::int32_t>(ids.begin(), ids.begin() + 11));
}

TEST_F(SequenceTest, GoingBackForgets) {
    const std::vector<std::int32_t> ids = random_ids(30);
    const std::vector<std::int32_t> other = random_ids(5, 6);
    Sequence sequence(*session_);
    sequence.extend(ids);
    sequence.rewind(12);
    sequence.extend(other);
    Sequence fresh(*session_);
    fresh.extend(std::span(ids).first(12));
    fresh.extend(other);
    expect_close(sequence.logits(), fresh.logits());
    EXPECT_EQ(sequence.ids(), fresh.ids());
}

TEST_F(SequenceTest, MoveToKeepsTheCommonBeginning) {
    const std::vector<std::int32_t> first = random_ids(30);
    std::vector<std::int32_t> second(first.begin(), first.begin() + 20);
    second.push_back((first[20] + 1) % 250);
    second.push_back(7);
    Sequence sequence(*session_);
    EXPECT_EQ(sequence.move_to(first), 0);
    EXPECT_EQ(sequence.move_to(first), 30);
    EXPECT_EQ(sequence.move_to(second), 20);
    expect_close(sequence.logits(), whole(second));
    // A shorter text that is all there already: its last token is fed again for its logits.
    EXPECT_EQ(sequence.move_to(std::span(second).first(10)), 9);
    expect_close(sequence.logits(), whole({second.begin(), second.begin() + 10}));
    EXPECT_EQ(sequence.size(), 10);
}

TEST_F(SequenceTest, TheContextHasAnEnd) {
    Sequence sequence(*session_);
    sequence.extend(random_ids(700));
    const std::int32_t id = 1;
    EXPECT_THROW(sequence.extend({&id, 1}), Error);
}

}  // namespace
}  // namespace garam
