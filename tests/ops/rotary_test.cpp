#include "garam/ops/rotary.h"

#include <cmath>

#include "ops/op_run.h"
#include "ops/rotary_cases.h"

namespace garam::testing {
namespace {

class Rotary : public OpTest {};
GARAM_FOR_ALL_PROFILES(Rotary);

constexpr std::int64_t kPositions = 37;

TEST_P(Rotary, BothWays) {
    for (const RotaryCase& c : rotary_cases()) {
        for (const bool inverse : {false, true}) {
            SCOPED_TRACE(std::to_string(c.tokens) + " tokens, head_dim " +
                         std::to_string(c.head_dim) + (inverse ? ", inverse" : ""));
            OpRun run(GetParam());
            const std::int64_t half = c.rotary_dim / 2;
            const int x = run.in_place(c.dtype, c.tokens, c.heads * c.head_dim, c.pad);
            const int cos = run.input(DType::f32, kPositions, half);
            const int sin = run.input(DType::f32, kPositions, half);
            std::vector<double> cosines, sines;
            for (std::int64_t p = 0; p < kPositions; ++p) {
                for (std::int64_t i = 0; i < half; ++i) {
                    const double angle = static_cast<double>(p) / std::pow(10.0, i * 0.1);
                    cosines.push_back(std::cos(angle));
                    sines.push_back(std::sin(angle));
                }
            }
            run.set(cos, cosines);
            run.set(sin, sines);
            std::vector<std::int32_t> at;
            for (std::int64_t t = 0; t < c.tokens; ++t)
                at.push_back(static_cast<std::int32_t>(run.random().below(kPositions)));
            const int positions = run.integers(at);
            run.run(
                [&](Stream& stream, const std::vector<Tensor>& t) {
                    rotary(stream, t[x], c.head_dim, t[cos], t[sin], t[positions], inverse);
                },
                c.cost);
            const std::vector<double> want =
                rotary_reference(run.before(x), c, run.values(cos), run.values(sin), at, inverse);
            // Two products and a sum of terms of size up to ~5, and the rounding of the result.
            expect_close(run.values(x), want, unit_of(c.dtype), 1e-6, "x");
        }
    }
}

// The backward of a rotation is the inverse rotation: <dy, R x> = <R' dy, x>.
TEST_P(Rotary, InverseIsTheGradient) {
    const RotaryCase c{DType::f32, 4, 2, 8, 6, 0, {144, 304, 192}};
    OpRun run(GetParam());
    const int dy = run.in_place(c.dtype, c.tokens, c.heads * c.head_dim);
    const int cos = run.input(DType::f32, 5, 3);
    const int sin = run.input(DType::f32, 5, 3);
    const std::vector<std::int32_t> at = {4, 0, 2, 2};
    const int positions = run.integers(at);
    run.run(
        [&](Stream& stream, const std::vector<Tensor>& t) {
            rotary(stream, t[dy], c.head_dim, t[cos], t[sin], t[positions], true);
        },
        c.cost);
    const auto f = [&](const std::vector<double>& values) {
        return rotary_reference(values, c, run.values(cos), run.values(sin), at, false);
    };
    std::vector<double> x;
    for (std::size_t i = 0; i < run.before(dy).size(); ++i)
        x.push_back(run.random().normal());
    expect_gradient(run.values(dy), numeric_gradient(f, x, run.before(dy)), 1e-6, 2e-6, "dx");
}

TEST_P(Rotary, RefusesAPositionBeyondTheTables) {
    OpRun run(GetParam());
    const int x = run.in_place(DType::f32, 1, 4);
    const int table = run.input(DType::f32, 3, 2);
    const int positions = run.integers({3});
    const auto body = [&](Stream& stream, const std::vector<Tensor>& t) {
        rotary(stream, t[x], 4, t[table], t[table], t[positions], false);
    };
    if (!GetParam().is_cuda()) {
        EXPECT_THROW(run.run(body, {}), Bug);
        return;
    }
    run.run(body, {12, 36, 16});
    for (const double value : run.values(x))
        EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace garam::testing
