#include "garam/nn/lm_head.h"

#include <gtest/gtest.h>

#include <cmath>

#include "garam/ops/dropout.h"
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
double reference_loss(const Values& x, const Values& norm, const Values& weight, double eps,
                      double softcap = 0, const std::vector<std::size_t>& rows = {0, 1, 2, 3}) {
    double total = 0;
    for (const std::size_t r : rows) {
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
            if (softcap > 0) logit = softcap * std::tanh(logit / softcap);
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

constexpr std::int64_t kRank = 3;
constexpr double kScaling = 1.5;

// The weight with the adapter in it, for a row whose input is masked: mask [hidden], 1 of no dropout.
Values merged(const Values& weight, const Values& A, const Values& B, const Values& mask) {
    Values sum = weight;
    for (std::size_t v = 0; v < kVocab; ++v)
        for (std::size_t k = 0; k < kRank; ++k)
            for (std::size_t h = 0; h < kHidden; ++h)
                sum[v * kHidden + h] += kScaling * B[v * kRank + k] * A[k * kHidden + h] * mask[h];
    return sum;
}

// Each row has a mask of its own.
double adapted_loss(const Values& x, const Values& norm, const Values& weight, const Values& A,
                    const Values& B, const Values& masks, double softcap) {
    double total = 0;
    for (std::size_t r = 0; r < kRows.size(); ++r) {
        const Values mask(masks.begin() + static_cast<std::ptrdiff_t>(r * kHidden),
                          masks.begin() + static_cast<std::ptrdiff_t>((r + 1) * kHidden));
        total += reference_loss(x, norm, merged(weight, A, B, mask), 1e-5, softcap, {r});
    }
    return total;
}

TEST_P(LmHeadTest, AnAdapterBesideAFrozenWeight) {
    for (const float dropout : {0.0f, 0.4f}) {
        for (const float softcap : {0.0f, 2.0f}) {
            SCOPED_TRACE("dropout " + std::to_string(dropout));
            LayerHarness h(GetParam());
            LmHead head;
            head.norm = {h.random({kHidden}), {}, 1e-5f};
            head.weight = h.random({kVocab, kHidden});
            head.scale.softcap = softcap;
            head.lora = LoraAdapter{h.random({kRank, kHidden}),
                                    h.random({kVocab, kRank}),
                                    h.zeros({kRank, kHidden}),
                                    h.zeros({kVocab, kRank}),
                                    static_cast<float>(kScaling),
                                    dropout,
                                    5};
            const Tensor x = h.random({kTokens, kHidden});
            const Tensor dx = h.random({kTokens, kHidden});
            const Tensor losses = h.random({4});
            const Tensor sum = h.zeros({1});
            DropoutContext context{true, 99, h.of(std::vector<std::int32_t>{3}), {}, {}};
            context.positions = h.of(std::vector<std::int32_t>{0, 1, 2, 3, 0, 1, 2, 3, 4});
            context.samples = h.of(std::vector<std::int64_t>{7, 7, 7, 7, 8, 8, 8, 8, 8});
            lm_head_loss(h.stream, head, CrossEntropyLoss(), x, h.of(kRows), h.of(kTargets), losses,
                         sum, dx, context);

            const Tensor ones = h.all(1, {kTokens, kHidden});
            if (dropout > 0)
                garam::dropout(h.stream, ones, dropout,
                               {context.seed, context.step, 5, context.positions, context.samples},
                               ones, false);
            const Values all = h.values(ones);
            Values masks;
            for (const std::int32_t row : kRows)
                masks.insert(masks.end(), all.begin() + row * kHidden,
                             all.begin() + (row + 1) * kHidden);
            const Values x0 = h.values(x), n0 = h.values(head.norm.weight),
                         w0 = h.values(head.weight), A0 = h.values(head.lora->A),
                         B0 = h.values(head.lora->B);
            const auto loss = [&](const Values& xs, const Values& A, const Values& B) {
                return adapted_loss(xs, n0, w0, A, B, masks, static_cast<double>(softcap));
            };
            EXPECT_NEAR(h.values(sum)[0], loss(x0, A0, B0), 1e-5);
            EXPECT_LE(difference_error(x0, h.values(dx),
                                       [&](const Values& v) { return loss(v, A0, B0); }),
                      1e-4);
            EXPECT_LE(difference_error(A0, h.values(head.lora->A_gradient),
                                       [&](const Values& v) { return loss(x0, v, B0); }),
                      1e-4);
            EXPECT_LE(difference_error(B0, h.values(head.lora->B_gradient),
                                       [&](const Values& v) { return loss(x0, A0, v); }),
                      1e-4);
            EXPECT_EQ(h.arena.used(), 0);
        }
    }
}

// Logits alone, of some rows and of the one token that is decoded, are those of the merged weight.
TEST_P(LmHeadTest, LogitsWithAnAdapter) {
    LayerHarness h(GetParam());
    LmHead head;
    head.norm = {h.random({kHidden}), {}, 1e-5f};
    head.weight = h.random({kVocab, kHidden});
    head.scale = {0.5f, 3};
    LmHead plain = head;
    head.lora = LoraAdapter{h.random({kRank, kHidden}),
                            h.random({kVocab, kRank}),
                            {},
                            {},
                            static_cast<float>(kScaling)};
    const Values sum = merged(h.values(head.weight), h.values(head.lora->A), h.values(head.lora->B),
                              Values(kHidden, 1));
    plain.weight = h.random({kVocab, kHidden});
    const std::vector<float> single(sum.begin(), sum.end());
    copy_to_device(h.stream, single.data(), plain.weight);
    const Tensor x = h.random({kTokens, kHidden});
    for (const std::vector<std::int32_t>& rows : {kRows, std::vector<std::int32_t>{0}}) {
        const auto count = static_cast<std::int64_t>(rows.size());
        const Tensor got = h.random({count, kVocab}), want = h.random({count, kVocab});
        const Tensor from = count == 1 ? x.slice_rows(0, 1) : x;
        lm_head_logits(h.stream, head, from, h.of(rows), got);
        lm_head_logits(h.stream, plain, from, h.of(rows), want);
        const Values a = h.values(got), b = h.values(want);
        for (std::size_t i = 0; i < a.size(); ++i)
            EXPECT_NEAR(a[i], b[i], 1e-5);
    }
}

// Rows beyond one chunk of logits give what they give alone.
TEST_P(LmHeadTest, ChunksDoNotShow) {
    const bool is_card = GetParam().is_cuda();
    // 64 rows a chunk on the processor, 512 on a card.
    const std::int64_t wide = is_card ? 3000 : 70000;
    LayerHarness h(GetParam());
    LmHead head;
    head.norm = {h.random({4}), {}, 1e-5f};
    head.weight = h.random({wide, 4});
    head.lora =
        LoraAdapter{h.random({2, 4}), h.random({wide, 2}), h.zeros({2, 4}), h.zeros({wide, 2})};
    const std::int64_t chunk = logits_chunk_rows(GetParam(), wide, 1 << 20);
    const std::int64_t rows = 2 * chunk + 5;
    ASSERT_LT(logits_chunk_rows(GetParam(), wide, rows), rows);
    EXPECT_EQ(logits_chunk_rows(GetParam(), wide, rows, 16), 16);
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
