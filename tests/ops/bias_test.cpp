#include "garam/ops/bias.h"

#include <cmath>

#include "ops/bias_cases.h"
#include "ops/op_run.h"

namespace garam::testing {
namespace {

class Bias : public OpTest {};
GARAM_FOR_ALL_PROFILES(Bias);

TEST_P(Bias, Add) {
    for (const BiasCase& c : bias_cases()) {
        SCOPED_TRACE(std::to_string(c.tokens) + "x" + std::to_string(c.out));
        OpRun run(GetParam());
        const int bias = run.input(c.dtype, 1, c.out);
        const int y = run.in_place(c.dtype, c.tokens, c.out, c.pad);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) { bias_add(stream, t[bias], t[y]); },
            c.add);
        std::vector<double> want = run.before(y);
        const std::vector<double> added = run.values(bias);
        for (std::size_t i = 0; i < want.size(); ++i)
            want[i] += added[i % static_cast<std::size_t>(c.out)];
        expect_close(run.values(y), want, 1.01 * unit_of(c.dtype), 0, "y");
    }
}

TEST_P(Bias, Backward) {
    for (const BiasCase& c : bias_cases()) {
        SCOPED_TRACE(std::to_string(c.tokens) + "x" + std::to_string(c.out));
        OpRun run(GetParam());
        const int dy = run.input(c.dtype, c.tokens, c.out, c.pad);
        const int gradient = run.in_place(DType::f32, 1, c.out);
        run.run([&](Stream& stream,
                    const std::vector<Tensor>& t) { bias_backward(stream, t[dy], t[gradient]); },
                c.backward);
        // The derivative of sum(dy * (x + bias)) by bias: the column sums.
        std::vector<double> want = run.before(gradient), bound;
        const std::vector<double> values = run.values(dy);
        std::vector<double> magnitude(want.size(), 0.0);
        for (std::size_t i = 0; i < want.size(); ++i)
            magnitude[i] = std::abs(want[i]);
        for (std::size_t i = 0; i < values.size(); ++i) {
            want[i % want.size()] += values[i];
            magnitude[i % want.size()] += std::abs(values[i]);
        }
        // At most 18 additions within a piece and 65 over pieces, each half a unit.
        for (const double m : magnitude)
            bound.push_back(83 * 0x1p-24 * m);
        expect_within(run.values(gradient), want, bound, "gradient");
    }
}

}  // namespace
}  // namespace garam::testing
