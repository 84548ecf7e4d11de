#include "garam/ops/cross_entropy.h"

#include <limits>

#include "garam/core/json.h"
#include "ops/cross_entropy_cases.h"
#include "ops/op_run.h"
#include "testing/test_data.h"

namespace garam::testing {
namespace {

class CrossEntropy : public OpTest {};
GARAM_FOR_ALL_PROFILES(CrossEntropy);

TEST_P(CrossEntropy, LossAndGradient) {
    for (const CrossEntropyCase& c : cross_entropy_cases()) {
        for (const bool gradient : {false, true}) {
            SCOPED_TRACE(std::to_string(c.rows) + "x" + std::to_string(c.vocab) +
                         (gradient ? " gradient" : ""));
            OpRun run(GetParam());
            const int logits = gradient ? run.in_place(c.dtype, c.rows, c.vocab, c.pad)
                                        : run.input(c.dtype, c.rows, c.vocab, c.pad);
            std::vector<double> x = run.values(logits);
            for (double& value : x)
                value *= c.size;
            run.set(logits, x);
            x = run.values(logits);
            std::vector<std::int32_t> target;
            for (std::int64_t r = 0; r < c.rows; ++r)  // ends of the row too
                target.push_back(static_cast<std::int32_t>(r == 0   ? 0
                                                           : r == 1 ? c.vocab - 1
                                                                    : run.random().below(c.vocab)));
            const int targets = run.integers(target);
            const int losses = run.output(DType::f32, 1, c.rows);
            run.run(
                [&](Stream& stream, const std::vector<Tensor>& t) {
                    cross_entropy(stream, t[logits], t[targets], t[losses],
                                  gradient ? t[logits] : Tensor(), c.scale, c.smoothing);
                },
                gradient ? c.gradient : c.loss);
            std::vector<double> slopes;
            for (double& value : x) {
                slopes.push_back(slope(value, c.scale));
                value = scaled(value, c.scale);
            }
            const double size = c.size * static_cast<double>(c.scale.factor);
            // The difference lse - logit rounds at the size of the logits; exp to 2 units and sums
            // of up to 64 additions move lse by some 70 units.
            const auto smoothing = static_cast<double>(c.smoothing);
            const std::vector<double> want = cross_entropy_reference(x, target, smoothing);
            expect_close(run.values(losses), want, 0x1p-23, (8 * size + 70) * 0x1p-24, "losses");
            if (!gradient) continue;
            const std::vector<double> plain = cross_entropy_reference(x, target);
            const double uniform = smoothing / static_cast<double>(c.vocab);
            std::vector<double> want_gradient;
            for (std::int64_t r = 0; r < c.rows; ++r) {
                const double lse = plain[r] + x[r * c.vocab + target[r]];
                for (std::int64_t i = 0; i < c.vocab; ++i)
                    want_gradient.push_back((std::exp(x[r * c.vocab + i] - lse) - uniform -
                                             (i == target[r] ? 1 - smoothing : 0)) *
                                            slopes[r * c.vocab + i]);
            }
            // x - maximum rounds to half a unit of up to 8 sizes, which is the exponential's
            // relative error; the absolute part is the cancellation at the target and results that
            // flush to zero.
            expect_close(run.values(logits), want_gradient,
                         1.01 * unit_of(c.dtype) + (8 * size + 80) * 0x1p-24, 0x1p-22, "dlogits");
        }
    }
}

// PyTorch's, whose loss is the mean over targets that are not padding.
TEST_P(CrossEntropy, SmoothingOfPyTorch) {
    GARAM_REQUIRE_DATA("golden/optim_sched/label_smoothing.json");
    const Json golden =
        Json::parse_file(data_dir() / "golden" / "optim_sched" / "label_smoothing.json");
    std::vector<double> x;
    for (const Json& row : golden.at("logits").array())
        for (const Json& logit : row.array())
            x.push_back(logit.number());
    std::vector<std::int32_t> target;
    double counted = 0;
    for (const Json& id : golden.at("targets").array()) {
        target.push_back(static_cast<std::int32_t>(id.integer()));
        if (target.back() == golden.at("pad").integer())
            target.back() = -1;
        else
            ++counted;
    }
    const auto rows = static_cast<std::int64_t>(target.size());
    const std::int64_t vocab = static_cast<std::int64_t>(x.size()) / rows;
    for (const Json& c : golden.at("cases").array()) {
        const std::string name = c.at("name").string();
        if (!name.starts_with("cross_entropy_eps")) continue;
        SCOPED_TRACE(name);
        const float smoothing = std::stof(name.substr(name.find("eps") + 3));
        OpRun run(GetParam());
        const int logits = run.in_place(DType::f32, rows, vocab);
        run.set(logits, x);
        const int targets = run.integers(target);
        const int losses = run.output(DType::f32, 1, rows);
        const double elements = static_cast<double>(rows * vocab);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                cross_entropy(stream, t[logits], t[targets], t[losses], t[logits], {}, smoothing);
            },
            {(smoothing > 0 ? 8 : 6) * elements, 4 * elements + 4.0 * static_cast<double>(rows),
             4 * elements + 4.0 * static_cast<double>(rows)});
        double loss = 0;
        for (const double row : run.values(losses))
            loss += row / counted;
        EXPECT_NEAR(loss, c.at("loss").number(), 1e-6);
        std::vector<double> want;
        for (const Json& row : c.at("grad").array())
            for (const Json& value : row.array())
                want.push_back(value.number() * counted);
        expect_close(run.values(logits), want, 2e-6, 4e-7, "dlogits");
    }
}

TEST_P(CrossEntropy, GradientIsTheDerivative) {
    OpRun run(GetParam());
    const int logits = run.in_place(DType::f32, 3, 19);
    const std::vector<std::int32_t> target = {18, 0, 7};
    const int targets = run.integers(target);
    const int losses = run.output(DType::f32, 1, 3);
    run.run(
        [&](Stream& stream, const std::vector<Tensor>& t) {
            cross_entropy(stream, t[logits], t[targets], t[losses], t[logits]);
        },
        {342, 240, 240});
    const auto f = [&](const std::vector<double>& x) { return cross_entropy_reference(x, target); };
    expect_gradient(run.values(logits), numeric_gradient(f, run.before(logits), {1, 1, 1}), 1e-6,
                    1e-6, "dlogits");
}

TEST_P(CrossEntropy, GradientThroughAScale) {
    for (const LogitScale& scale : {LogitScale{0.125f, 0}, LogitScale{2, 3}}) {
        OpRun run(GetParam());
        const int logits = run.in_place(DType::f32, 3, 19);
        const std::vector<std::int32_t> target = {18, 0, 7};
        const int targets = run.integers(target);
        const int losses = run.output(DType::f32, 1, 3);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                cross_entropy(stream, t[logits], t[targets], t[losses], t[logits], scale);
            },
            {scale.softcap > 0 ? 798.0 : 456.0, 240, 240});
        const auto f = [&](std::vector<double> x) {
            for (double& value : x)
                value = scaled(value, scale);
            return cross_entropy_reference(x, target);
        };
        expect_gradient(run.values(logits), numeric_gradient(f, run.before(logits), {1, 1, 1}),
                        2e-6, 1e-6, "dlogits");
    }
}

// The gradient of f32 logits in bf16 is the f32 one, rounded once.
TEST_P(CrossEntropy, GradientInBf16) {
    for (const std::int64_t vocab : {1, 7, 65, 5000}) {
        std::vector<std::vector<double>> gradients;
        for (const DType dtype : {DType::f32, DType::bf16}) {
            OpRun run(GetParam());
            const int logits = run.in_place(DType::f32, 2, vocab, 3);
            const int targets = run.integers({0, static_cast<std::int32_t>(vocab - 1)});
            const int losses = run.output(DType::f32, 1, 2);
            const bool narrows = dtype == DType::bf16;
            const int gradient = narrows ? run.output(DType::bf16, 2, vocab, 5) : logits;
            const auto elements = static_cast<double>(2 * vocab);
            run.run(
                [&](Stream& stream, const std::vector<Tensor>& t) {
                    cross_entropy(stream, t[logits], t[targets], t[losses], t[gradient]);
                },
                {6 * elements, 4 * elements + 8, (narrows ? 2 : 4) * elements + 8});
            gradients.push_back(run.values(gradient));
        }
        for (std::size_t i = 0; i < gradients[0].size(); ++i)
            EXPECT_EQ(gradients[1][i], static_cast<double>(static_cast<float>(
                                           bfloat16(static_cast<float>(gradients[0][i])))));
    }
}

TEST_P(CrossEntropy, ExtremesAndNan) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    OpRun run(GetParam());
    const int logits = run.in_place(DType::f32, 4, 5);
    // A certain right answer, a certain wrong one, equal huge logits, and a NaN.
    run.set(logits, {1e4,  0,    0, 0, 0,     0, 1e4, 0,    0, 0,  //
                     3e38, 3e38, 0, 0, -3e38, 1, 2,   kNan, 3, 4});
    const int targets = run.integers({0, 0, 1, 0});
    const int losses = run.output(DType::f32, 1, 4);
    run.run(
        [&](Stream& stream, const std::vector<Tensor>& t) {
            cross_entropy(stream, t[logits], t[targets], t[losses], t[logits]);
        },
        {120, 96, 96});
    const std::vector<double> loss = run.values(losses);
    EXPECT_EQ(loss[0], 0);
    EXPECT_EQ(loss[1], 1e4);
    EXPECT_TRUE(std::isnan(loss[3]));
    const std::vector<double> d = run.values(logits);
    EXPECT_EQ(std::vector<double>(d.begin(), d.begin() + 10),
              (std::vector<double>{0, 0, 0, 0, 0, -1, 1, 0, 0, 0}));
    EXPECT_FLOAT_EQ(static_cast<float>(d[10]), 0.5f);
    EXPECT_FLOAT_EQ(static_cast<float>(d[11]), -0.5f);
}

// A row without a target has no loss and moves nothing, whatever its logits are.
TEST_P(CrossEntropy, RowsWithoutATarget) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const std::int64_t vocab : {5, 9001}) {
            OpRun run(GetParam());
            const int logits = run.in_place(DType::f32, 3, vocab, 3);
            const int targets = run.integers({-1, 2, -1});
            const int losses = run.output(DType::f32, 1, 3);
            const bool narrows = dtype == DType::bf16;
            const int gradient = narrows ? run.output(DType::bf16, 3, vocab, 1) : logits;
            const auto elements = static_cast<double>(3 * vocab);
            run.run(
                [&](Stream& stream, const std::vector<Tensor>& t) {
                    cross_entropy(stream, t[logits], t[targets], t[losses], t[gradient]);
                },
                {6 * elements, 4 * elements + 12, (narrows ? 2 : 4) * elements + 12});
            const std::vector<double> loss = run.values(losses), d = run.values(gradient);
            EXPECT_EQ(loss[0], 0);
            EXPECT_GT(loss[1], 0);
            EXPECT_EQ(loss[2], 0);
            for (std::int64_t i = 0; i < vocab; ++i) {
                EXPECT_EQ(d[static_cast<std::size_t>(i)], 0);
                EXPECT_NE(d[static_cast<std::size_t>(vocab + i)], 0);
                EXPECT_EQ(d[static_cast<std::size_t>(2 * vocab + i)], 0);
            }
        }
    }
}

TEST_P(CrossEntropy, RefusesATargetOutsideTheVocabulary) {
    for (const std::int32_t target : {5, -2}) {
        OpRun run(GetParam());
        const int logits = run.in_place(DType::f32, 1, 5);
        const int targets = run.integers({target});
        const int losses = run.output(DType::f32, 1, 1);
        const auto refused = [&] {
            run.run(
                [&](Stream& stream, const std::vector<Tensor>& t) {
                    cross_entropy(stream, t[logits], t[targets], t[losses], Tensor());
                },
                {20, 24, 4});
        };
        if (GetParam().is_cuda()) {
            refused();
            EXPECT_TRUE(std::isnan(run.values(losses)[0]));
        } else {
            EXPECT_THROW(refused(), Bug);
        }
    }
}

}  // namespace
}  // namespace garam::testing
