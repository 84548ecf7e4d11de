#include "garam/ops/rms_norm.h"

#include "ops/op_run.h"
#include "ops/rms_norm_cases.h"

namespace garam::testing {
namespace {

constexpr float kEps = 1e-5f;

class RmsNorm : public OpTest {};
GARAM_FOR_ALL_PROFILES(RmsNorm);

// x, weight as one vector, for the reference.
std::vector<double> joined(std::vector<double> a, const std::vector<double>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

std::string name_of_case(const RmsNormCase& c) {
    return std::string(name_of(c.dtype)) + " " + std::to_string(c.tokens) + "x" +
           std::to_string(c.heads) + "x" + std::to_string(c.hidden) + " + " +
           std::to_string(c.weight_offset);
}

TEST_P(RmsNorm, Forward) {
    for (const RmsNormCase& c : rms_norm_cases()) {
        SCOPED_TRACE(name_of_case(c));
        OpRun run(GetParam());
        const std::int64_t width = c.heads * c.hidden;
        const int x = c.in_place ? run.in_place(c.dtype, c.tokens, width, c.pad)
                                 : run.input(c.dtype, c.tokens, width, c.pad);
        const int weight = run.input(c.dtype, 1, c.hidden);
        const int y = c.in_place ? x : run.output(c.dtype, c.tokens, width, c.pad + 8);
        const int rstd = run.output(DType::f32, 1, c.rows());
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                rms_norm_forward(stream, t[x], t[weight], kEps, t[y], t[rstd], c.options());
            },
            c.forward);
        const std::vector<double> in = run.before(x);
        const std::vector<double> want =
            rms_norm_reference(joined(in, run.values(weight)), c.rows(), c.hidden, kEps,
                               static_cast<double>(c.weight_offset));
        // One or two roundings to the dtype (x * rstd, and y), and rstd in fp32: half of the
        // relative error of the mean (at most 66 additions in a lane) and three roundings of its
        // own. An offset and the weight may cancel.
        const double roundings = c.rounds_once ? 1.01 : 2.01;
        expect_close(run.values(y), want, roundings * unit_of(c.dtype) + 40 * 0x1p-24,
                     c.weight_offset != 0 ? 5 * 0x1p-24 : 0.0, "y");
        const std::vector<double> ones = rms_norm_reference(
            joined(in, std::vector<double>(c.hidden, 1.0)), c.rows(), c.hidden, kEps);
        std::vector<double> want_rstd;
        for (std::int64_t t = 0; t < c.rows(); ++t)
            want_rstd.push_back(ones[t * c.hidden] / in[t * c.hidden]);
        expect_close(run.values(rstd), want_rstd, 40 * 0x1p-24, 0, "rstd");
    }
}

TEST_P(RmsNorm, WithoutRstd) {
    OpRun run(GetParam());
    const int x = run.input(DType::f32, 2, 9);
    const int weight = run.input(DType::f32, 1, 9);
    const int y = run.output(DType::f32, 2, 9);
    run.run(
        [&](Stream& stream, const std::vector<Tensor>& t) {
            rms_norm_forward(stream, t[x], t[weight], kEps, t[y], Tensor());
        },
        {72, 108, 72});
    expect_close(run.values(y),
                 rms_norm_reference(joined(run.values(x), run.values(weight)), 2, 9, kEps), 1e-6, 0,
                 "y");
}

TEST_P(RmsNorm, Backward) {
    for (const RmsNormCase& c : rms_norm_cases()) {
        SCOPED_TRACE(name_of_case(c));
        OpRun run(GetParam());
        const std::int64_t width = c.heads * c.hidden;
        const int dy = c.in_place ? run.in_place(c.dtype, c.tokens, width, c.pad)
                                  : run.input(c.dtype, c.tokens, width, c.pad);
        const int x = run.input(c.dtype, c.tokens, width, c.pad + 16);
        const int weight = run.input(c.dtype, 1, c.hidden);
        const int rstd = run.input(DType::f32, 1, c.rows());
        const int dx = c.in_place     ? dy
                       : c.accumulate ? run.in_place(c.dtype, c.tokens, width, c.pad + 8)
                                      : run.output(c.dtype, c.tokens, width, c.pad + 8);
        const int gradient = run.in_place(DType::f32, 1, c.hidden);
        const std::vector<double> inputs = joined(run.values(x), run.values(weight));
        std::vector<double> roots;
        for (std::int64_t t = 0; t < c.rows(); ++t) {
            double squares = 0;
            for (std::int64_t i = 0; i < c.hidden; ++i)
                squares += std::pow(inputs[t * c.hidden + i], 2);
            roots.push_back(1 / std::sqrt(squares / static_cast<double>(c.hidden) + kEps));
        }
        run.set(rstd, roots);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                rms_norm_backward(stream, t[dy], t[x], t[weight], t[rstd], t[dx], c.accumulate,
                                  c.learns ? t[gradient] : Tensor(), c.options());
            },
            c.backward);
        if (c.tokens == 0) continue;
        const auto f = [&](const std::vector<double>& values) {
            return rms_norm_reference(values, c.rows(), c.hidden, kEps,
                                      static_cast<double>(c.weight_offset));
        };
        const std::vector<double> want = numeric_gradient(f, inputs, run.before(dy), 600);
        std::vector<double> want_dx(want.begin(), want.begin() + c.rows() * c.hidden);
        std::vector<double> want_weight(want.begin() + c.rows() * c.hidden, want.end());
        const std::vector<double> held = run.before(dx);
        if (c.accumulate)
            for (std::size_t i = 0; i < want_dx.size(); ++i)
                want_dx[i] += held[i];
        // One rounding of the result, whose terms are of size about |dy w| + |x|: up to ~30 here.
        expect_gradient(run.values(dx), want_dx, 1.01 * unit_of(c.dtype), 3e-5, "dx");
        const std::vector<double> before = run.before(gradient);
        if (!c.learns) {
            EXPECT_EQ(run.values(gradient), before);
            continue;
        }
        for (std::size_t i = 0; i < want_weight.size(); ++i)
            want_weight[i] += before[i];
        // A sum of `rows` products of size up to ~20, each rounded in fp32.
        expect_gradient(run.values(gradient), want_weight, 1e-6,
                        20 * static_cast<double>(c.rows()) * 0x1p-24 + 1e-6, "weight");
    }
}

}  // namespace
}  // namespace garam::testing
