#include "garam/nn/lm_head.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nn/layer_harness.h"

namespace garam {
namespace {

using testing::difference_error;
using testing::LayerHarness;
using Values = std::vector<double>;

constexpr std::int64_t kTokens = 9;
constexpr std::int64_t kHidden = 10;
constexpr std::int64_t kVocab = 23;
const std::vector<std::int32_t> kRows{1, 2, 5, 8};
const std::vector<std::int32_t> kTargets{7, 0, 22, 7};

// Sum of the targets' losses in double precision.
double reference_loss(const Values& x, const Values& norm, const Values& weight, double eps) {
    double total = 0;
    for (std::size_t r = 0; r < kRows.size(); ++r) {
        const std::size_t offset = static_cast<std::size_t>(kRows[r]) * kHidden;
        double squares = 0;
        for (std::size_t h = 0; h < kHidden; ++h)
            squares += x[offset + h] * x[offset + h];
        const double rstd = 1 / std::sqrt(squares / kHidden + eps);
        double sum = 0;
        double target = 0;
        for (std::size_t v = 0; v < kVocab; ++v) {
            double logit = 0;
            for (std::size_t h = 0; h < kHidden; ++h)
                logit += x[offset + h] * rstd * norm[h] * weight[v * kHidden + h];
            sum += std::exp(logit);
            if (static_cast<std::int32_t>(v) == kTargets[r]) target = logit;
        }
        total += std::log(sum) - target;
    }
    return total;
}

class LmHeadTest : public ::testing::TestWithParam<DeviceProfile> {};
GARAM_FOR_CPU_AND_CARDS(LmHeadTest);

TEST_P(LmHeadTest, LossAndGradientsAgainstDoublePrecision) {
    LayerHarness h(GetParam());
    LmHead head;
    head.norm = {h.random({kHidden}), h.zeros({kHidden}), 1e-5f};
    head.weight = h.random({kVocab, kHidden});
    head.weight_gradient = h.zeros({kVocab, kHidden});
    const Tensor x = h.random({kTokens, kHidden});
    const Tensor dx = h.random({kTokens, kHidden});  // must be overwritten everywhere
    const Tensor losses = h.random({4});
    const Tensor sum = h.zeros({1});
    lm_head_loss(h.stream, head, CrossEntropyLoss(), x, h.of(kRows), h.of(kTargets), losses, sum,
                 dx);

    const Values x0 = h.values(x), n0 = h.values(head.norm.weight), w0 = h.values(head.weight);
    const Values gradient = h.values(dx);
    EXPECT_NEAR(h.values(sum)[0], reference_loss(x0, n0, w0, 1e-5), 1e-5);
    EXPECT_LE(difference_error(x0, gradient,
                               [&](const Values& v) { return reference_loss(v, n0, w0, 1e-5); }),
              1e-4);
    EXPECT_LE(difference_error(n0, h.values(head.norm.weight_gradient),
                               [&](const Values& v) { return reference_loss(x0, v, w0, 1e-5); }),
              1e-4);
    EXPECT_LE(difference_error(w0, h.values(head.weight_gradient),
                               [&](const Values& v) { return reference_loss(x0, n0, v, 1e-5); }),
              1e-4);
    for (const std::int64_t row : {0, 3, 4, 6, 7}) {  // no target: exactly zero
        for (std::int64_t c = 0; c < kHidden; ++c)
            EXPECT_EQ(gradient[static_cast<std::size_t>(row * kHidden + c)], 0.0);
    }
    EXPECT_EQ(h.arena.used(), 0);
}

// Rows beyond one chunk of logits give what they give alone.
TEST_P(LmHeadTest, ChunksDoNotShow) {
    const bool is_card = GetParam().is_cuda();
    // 64 rows a chunk on the processor, 1024 on a card.
    const std::int64_t wide = is_card ? 3000 : 70000;
    LayerHarness h(GetParam());
    LmHead head;
    head.norm = {h.random({4}), {}, 1e-5f};
    head.weight = h.random({wide, 4});
    const std::int64_t chunk = logits_chunk_rows(GetParam(), wide, 1 << 20);
    const std::int64_t rows = 2 * chunk + 5;
    ASSERT_LT(logits_chunk_rows(GetParam(), wide, rows), rows);
    const Tensor x = h.random({rows, 4});
    const Tensor dx = h.zeros({rows, 4});
    std::vector<std::int32_t> all, targets;
    for (std::int64_t r = 0; r < rows; ++r) {
        all.push_back(static_cast<std::int32_t>(r));
        targets.push_back(static_cast<std::int32_t>((r * 977) % wide));
    }
    const Tensor losses = h.zeros({rows});
    const Tensor sum = h.zeros({1});
    lm_head_loss(h.stream, head, CrossEntropyLoss(), x, h.of(all), h.of(targets), losses, sum, dx);
    const Values each = h.values(losses), gradient = h.values(dx);
    for (const std::int64_t row : {std::int64_t{0}, chunk - 1, chunk, rows - 1}) {
        const Tensor one_dx = h.zeros({1, 4});
        const Tensor one_loss = h.zeros({1});
        const Tensor one_sum = h.zeros({1});
        lm_head_loss(h.stream, head, CrossEntropyLoss(), x.slice_rows(row, row + 1),
                     h.of(std::vector<std::int32_t>{0}),
                     h.of(std::vector<std::int32_t>{targets[static_cast<std::size_t>(row)]}),
                     one_loss, one_sum, one_dx);
        EXPECT_NEAR(h.values(one_loss)[0], each[static_cast<std::size_t>(row)], 1e-5);
        const Values alone = h.values(one_dx);
        for (std::size_t c = 0; c < 4; ++c)
            EXPECT_NEAR(alone[c], gradient[static_cast<std::size_t>(row) * 4 + c], 1e-5);
    }
    double total = 0;
    for (const double loss : each)
        total += loss;
    EXPECT_NEAR(h.values(sum)[0], total, 1e-6 * total);
}

}  // namespace
}  // namespace garam
