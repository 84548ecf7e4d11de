// A packed projection against its parts one by one.
#include "garam/nn/projection.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "garam/nn/pass_context.h"
#include "garam/ops/dora.h"
#include "nn/layer_harness.h"

namespace garam {
namespace {

using testing::LayerHarness;

constexpr std::int64_t kTokens = 9;
constexpr std::int64_t kIn = 24;
constexpr std::int64_t kRank = 3;
constexpr float kScaling = 1.75f;

class ProjectionTest : public ::testing::TestWithParam<DeviceProfile> {};
// The processor packs nothing.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ProjectionTest);
INSTANTIATE_TEST_SUITE_P(Cuda, ProjectionTest, ::testing::ValuesIn(testing::card_profiles()),
                         [](const auto& test) { return testing::card_name(test.param); });

// The values of rows [begin, end) and columns [left, right) of `wide`.
std::vector<float> block(const std::vector<float>& wide, std::int64_t pitch, std::int64_t begin,
                         std::int64_t end, std::int64_t left, std::int64_t right) {
    std::vector<float> values;
    for (std::int64_t row = begin; row < end; ++row)
        values.insert(values.end(), wide.begin() + row * pitch + left,
                      wide.begin() + row * pitch + right);
    return values;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want, const char* what) {
    ASSERT_EQ(got.size(), want.size()) << what;
    for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 2e-5f * (1 + std::fabs(want[i]))) << what << " " << i;
}

// Three parts, the second without an adapter.
TEST_P(ProjectionTest, PackedDoraIsThatOfItsParts) {
    LayerHarness h(GetParam());
    const std::vector<std::int64_t> outs = {16, 7, 10};
    const std::int64_t out = 33;
    Projection packed;
    packed.tail = projection_tail(2, kRank);
    const std::int64_t width = kIn + packed.tail;
    packed.packed = h.zeros({out + packed.tail, width});
    packed.bias = h.random({out});
    packed.dora_scale = h.all(1, {out});
    packed.lora.rank = kRank;
    packed.lora.scaling = kScaling;
    packed.lora.A = packed.packed.slice_rows(out, out + packed.tail).slice_columns(0, kIn);
    packed.lora.B = packed.packed.slice_rows(0, out).slice_columns(kIn, width);
    Projection plain;

    std::vector<float> matrix(static_cast<std::size_t>((out + packed.tail) * width));
    const auto put = [&](const Tensor& from, std::int64_t row, std::int64_t column, float factor) {
        const std::vector<float> values = h.floats(from);
        for (std::int64_t i = 0; i < from.rows(); ++i)
            for (std::int64_t j = 0; j < from.columns(); ++j)
                matrix[static_cast<std::size_t>((row + i) * width + column + j)] =
                    factor * values[static_cast<std::size_t>(i * from.columns() + j)];
    };
    std::int64_t row = 0;
    for (std::size_t p = 0; p < outs.size(); ++p) {
        const std::int64_t end = row + outs[p];
        Linear linear;
        linear.weight = h.random({outs[p], kIn});
        put(linear.weight, row, 0, 1);
        linear.bias = packed.bias.slice_elements(row, end);
        if (p != 1) {
            LoraAdapter& lora = linear.lora.emplace();
            lora.scaling = kScaling;
            lora.A = h.random({kRank, kIn});
            lora.B = h.random({outs[p], kRank});
            lora.magnitude = h.random({outs[p]});
            lora.dora_scale = packed.dora_scale.slice_elements(row, end);
            lora.dora_norm = h.zeros({outs[p]});
            dora_scale(h.stream, {linear.weight, lora.A, lora.B, kScaling, lora.magnitude,
                                  lora.dora_scale, lora.dora_norm});
            const auto first = kRank * static_cast<std::int64_t>(packed.lora.parts.size());
            put(lora.A, out + first, 0, 1);
            put(lora.B, row, kIn + first, kScaling);
            packed.lora.parts.push_back({row, end, 0, {}, {}});
        }
        plain.parts.push_back(linear);
        linear.weight = packed.packed.slice_rows(row, end).slice_columns(0, kIn);
        packed.parts.push_back(linear);
        row = end;
    }
    copy_to_device(h.stream, matrix.data(), packed.packed);
    h.stream.synchronize();
    std::size_t group = 0;
    for (std::size_t p = 0; p < outs.size(); ++p) {
        if (p == 1) continue;
        for (Projection* projection : {&packed, &plain}) {
            LoraAdapter& lora = *projection->parts[p].lora;
            lora.A_gradient = h.zeros({kRank, kIn});
            lora.B_gradient = h.zeros({outs[p], kRank});
            lora.magnitude_gradient = h.zeros({outs[p]});
        }
        packed.lora.parts[group].A_gradient = packed.parts[p].lora->A_gradient;
        packed.lora.parts[group++].B_gradient = packed.parts[p].lora->B_gradient;
    }

    const Tensor x = h.random({kTokens, width});
    const Tensor addend = h.random({kTokens, out});
    const Tensor dy = h.random({kTokens, out + packed.tail});
    const std::vector<float> dy_before = h.floats(dy);
    PassContext pass;
    const auto run = [&](const Projection& projection, bool keep, const Tensor& y,
                         const Tensor& dx) {
        const ScratchScope scope(h.arena);
        pass.keep = keep;
        ProjectionSaved saved;
        const bool is_packed = static_cast<bool>(projection.packed);
        const Tensor input = is_packed ? x : features(x, kIn);
        projection_forward(h.stream, projection, pass, input, y, addend, saved);
        if (keep)
            projection_backward(h.stream, projection, pass, input, saved,
                                is_packed ? dy : features(dy, out), dx);
    };
    const Tensor y = h.zeros({kTokens, out}), want_y = h.zeros({kTokens, out});
    const Tensor dx = h.zeros({kTokens, kIn}), want_dx = h.zeros({kTokens, kIn});
    run(packed, true, y, dx);
    run(plain, true, want_y, want_dx);
    expect_near(h.floats(y), h.floats(want_y), "y");
    expect_near(h.floats(dx), h.floats(want_dx), "dx");
    for (const std::size_t p : {0u, 2u}) {
        const LoraAdapter& got = *packed.parts[p].lora;
        const LoraAdapter& want = *plain.parts[p].lora;
        expect_near(h.floats(got.A_gradient), h.floats(want.A_gradient), "A");
        expect_near(h.floats(got.B_gradient), h.floats(want.B_gradient), "B");
        expect_near(h.floats(got.magnitude_gradient), h.floats(want.magnitude_gradient), "m");
    }
    // A residual stream's gradient is added to afterwards.
    EXPECT_EQ(block(h.floats(dy), out + packed.tail, 0, kTokens, 0, out),
              block(dy_before, out + packed.tail, 0, kTokens, 0, out));
    // What keeps nothing, as a second forward or a pass without backward, has the same bits.
    const Tensor again = h.zeros({kTokens, out});
    run(packed, false, again, {});
    EXPECT_EQ(h.floats(again), h.floats(y));
}

}  // namespace
}  // namespace garam
