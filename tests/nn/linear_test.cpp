#include "garam/nn/linear.h"

#include <gtest/gtest.h>

#include <cmath>

#include "garam/ops/dora.h"
#include "nn/layer_harness.h"

namespace garam {
namespace {

using testing::difference_error;
using testing::LayerHarness;

constexpr std::int64_t kTokens = 7;
constexpr std::int64_t kIn = 12;
constexpr std::int64_t kOut = 9;
constexpr std::int64_t kRank = 3;

using Values = std::vector<double>;

// Everything that a linear with an adapter reads, in double precision.
struct Inputs {
    Values x, weight, bias, A, B, dy;
    Values keep;  // the dropout mask with its scale, as the layer drew it
    double scaling = 0;
    Values magnitude, norm;  // of DoRA, whose norm counts as a constant

    // sum(dy * y): its gradients are what a backward with dy computes.
    double loss() const {
        double sum = 0;
        for (std::int64_t t = 0; t < kTokens; ++t) {
            Values u(kRank, 0);
            for (std::int64_t r = 0; r < kRank; ++r) {
                for (std::int64_t i = 0; i < kIn; ++i)
                    u[at(r)] += keep[at(t * kIn + i)] * x[at(t * kIn + i)] * A[at(r * kIn + i)];
            }
            for (std::int64_t o = 0; o < kOut; ++o) {
                double y = bias[at(o)];
                const double c = norm.empty() ? 1 : magnitude[at(o)] / norm[at(o)];
                for (std::int64_t i = 0; i < kIn; ++i) {
                    const double kept = keep[at(t * kIn + i)];
                    y += (1 + (c - 1) * kept) * x[at(t * kIn + i)] * weight[at(o * kIn + i)];
                }
                for (std::int64_t r = 0; r < kRank; ++r)
                    y += c * scaling * u[at(r)] * B[at(o * kRank + r)];
                sum += y * dy[at(t * kOut + o)];
            }
        }
        return sum;
    }
    static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
};

class LinearTest : public ::testing::TestWithParam<DeviceProfile> {
  protected:
    void check_gradients(double dropout_rate, bool dora = false);
};
GARAM_FOR_CPU_AND_CARDS(LinearTest);

void LinearTest::check_gradients(double dropout_rate, bool dora) {
    LayerHarness h(GetParam());
    Linear linear;
    linear.weight = h.random({kOut, kIn});
    linear.bias = h.random({kOut});
    if (!dora) linear.weight_gradient = h.zeros({kOut, kIn});
    linear.bias_gradient = h.zeros({kOut});
    linear.lora.emplace();
    linear.lora->A = h.random({kRank, kIn});
    linear.lora->B = h.random({kOut, kRank});
    linear.lora->A_gradient = h.zeros({kRank, kIn});
    linear.lora->B_gradient = h.zeros({kOut, kRank});
    linear.lora->scaling = 1.75f;
    linear.lora->dropout = static_cast<float>(dropout_rate);
    linear.lora->module = 5;
    LinearSaved saved{h.zeros({kTokens, kRank}), {}};
    if (dora) {
        LoraAdapter& lora = *linear.lora;
        saved.z = h.zeros({kTokens, kOut});
        lora.magnitude = h.random({kOut});
        lora.magnitude_gradient = h.zeros({kOut});
        lora.dora_scale = h.zeros({kOut});
        lora.dora_norm = h.zeros({kOut});
        dora_scale(h.stream, {linear.weight, lora.A, lora.B, lora.scaling, lora.magnitude,
                              lora.dora_scale, lora.dora_norm});
    }
    const DropoutContext context{true, 3, h.of(std::vector<std::int32_t>{8}),
                                 h.of(std::vector<std::int32_t>{0, 1, 2, 0, 1, 2, 3}),
                                 h.of(std::vector<std::int64_t>{4, 4, 4, 9, 9, 9, 9})};
    const Tensor x = h.random({kTokens, kIn});
    const Tensor dy = h.random({kTokens, kOut});
    const Tensor y = h.random({kTokens, kOut});
    const Tensor dx = h.random({kTokens, kIn});

    // The mask that the layer draws, read off a tensor of ones.
    const Tensor ones = h.all(1, {kTokens, kIn});
    const Tensor mask = h.zeros({kTokens, kIn});
    dropout(h.stream, ones, linear.lora->dropout,
            {context.seed, context.step, linear.lora->module, context.positions, context.samples},
            mask, false);

    Inputs inputs{h.values(x),
                  h.values(linear.weight),
                  h.values(linear.bias),
                  h.values(linear.lora->A),
                  h.values(linear.lora->B),
                  h.values(dy),
                  h.values(mask),
                  1.75,
                  {},
                  {}};
    if (dora) {
        inputs.magnitude = h.values(linear.lora->magnitude);
        inputs.norm = h.values(linear.lora->dora_norm);
    }
    linear_forward(h.stream, linear, x, y, false, context, saved);
    const Values outputs = h.values(y);
    double got = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i)
        got += outputs[i] * inputs.dy[i];
    EXPECT_NEAR(got, inputs.loss(), 1e-5 * std::fabs(inputs.loss()) + 1e-5);

    linear_backward(h.stream, linear, x, saved, dy, dx, false, context);
    const auto error = [&](const Tensor& variable, const Tensor& gradient, Values Inputs::*field) {
        return difference_error(h.values(variable), h.values(gradient), [&](const Values& values) {
            Inputs changed = inputs;
            changed.*field = values;
            return changed.loss();
        });
    };
    EXPECT_LE(error(x, dx, &Inputs::x), 1e-4);
    if (dora) {
        EXPECT_LE(
            error(linear.lora->magnitude, linear.lora->magnitude_gradient, &Inputs::magnitude),
            1e-4);
    } else {
        EXPECT_LE(error(linear.weight, linear.weight_gradient, &Inputs::weight), 1e-4);
    }
    EXPECT_LE(error(linear.bias, linear.bias_gradient, &Inputs::bias), 1e-4);
    EXPECT_LE(error(linear.lora->A, linear.lora->A_gradient, &Inputs::A), 1e-4);
    EXPECT_LE(error(linear.lora->B, linear.lora->B_gradient, &Inputs::B), 1e-4);
    EXPECT_EQ(h.arena.used(), 0);
}

TEST_P(LinearTest, ForwardAndEveryGradientAgainstDoublePrecision) {
    check_gradients(0);
}
TEST_P(LinearTest, WithDropout) {
    check_gradients(0.4);
}

TEST_P(LinearTest, Dora) {
    check_gradients(0, true);
}
TEST_P(LinearTest, DoraWithDropout) {
    check_gradients(0.4, true);
}

// A residual stream is added to; gradients add up over micro-batches.
TEST_P(LinearTest, AccumulatesWhereAsked) {
    LayerHarness h(GetParam());
    Linear linear;
    linear.weight = h.random({kOut, kIn});
    linear.weight_gradient = h.zeros({kOut, kIn});
    const Tensor x = h.random({kTokens, kIn});
    const Tensor y = h.random({kTokens, kOut});
    const Tensor sum = h.copy_of(y);
    const Tensor plain = h.zeros({kTokens, kOut});
    linear_forward(h.stream, linear, x, plain, false, {}, {});
    linear_forward(h.stream, linear, x, sum, true, {}, {});
    const Values before = h.values(y), added = h.values(plain), sums = h.values(sum);
    for (std::size_t i = 0; i < sums.size(); ++i)
        EXPECT_NEAR(sums[i], added[i] + before[i], 1e-5);
    linear_backward(h.stream, linear, x, {}, y, {}, false, {});
    const Values once = h.values(linear.weight_gradient);
    linear_backward(h.stream, linear, x, {}, y, {}, false, {});
    const Values twice = h.values(linear.weight_gradient);
    for (std::size_t i = 0; i < once.size(); ++i)
        EXPECT_NEAR(twice[i], 2 * once[i], 1e-5 * (1 + std::fabs(once[i])));
}

}  // namespace
}  // namespace garam
