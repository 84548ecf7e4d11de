#include "garam/ops/silu_mul.h"

#include "ops/op_run.h"
#include "ops/silu_mul_cases.h"

namespace garam::testing {
namespace {

class SiluMul : public OpTest {};
GARAM_FOR_ALL_PROFILES(SiluMul);

std::vector<double> joined(std::vector<double> a, const std::vector<double>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

TEST_P(SiluMul, Forward) {
    for (const SiluMulCase& c : silu_mul_cases()) {
        SCOPED_TRACE(std::to_string(c.tokens) + "x" + std::to_string(c.ffn));
        OpRun run(GetParam());
        const int gate = run.input(c.dtype, c.tokens, c.ffn, c.pad);
        const int up = run.input(c.dtype, c.tokens, c.ffn, c.pad + 8);
        const int out = run.output(c.dtype, c.tokens, c.ffn, c.pad + 16);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                silu_mul_forward(stream, t[gate], t[up], t[out]);
            },
            c.forward);
        // exp to 2 units in the last place, four more operations, and the rounding of the result.
        expect_close(run.values(out), silu_mul_reference(joined(run.values(gate), run.values(up))),
                     unit_of(c.dtype) + 8 * 0x1p-24, 0, "out");
    }
}

TEST_P(SiluMul, Extremes) {
    OpRun run(GetParam());
    const std::vector<double> gates = {-1000, -100, -88, -20, -0.0, 20, 88, 100, 1e30};
    const int gate = run.input(DType::f32, 1, 9);
    const int up = run.input(DType::f32, 1, 9);
    const int out = run.output(DType::f32, 1, 9);
    run.set(gate, gates);
    run.set(up, std::vector<double>(9, 1.0));
    run.run([&](Stream& stream,
                const std::vector<Tensor>& t) { silu_mul_forward(stream, t[gate], t[up], t[out]); },
            {45, 72, 36});
    // exp(-gate) saturates at exp(88.3): results below 100 exp(-88) stand for zero.
    expect_close(run.values(out), silu_mul_reference(joined(run.values(gate), run.values(up))),
                 1e-6, 1e-34, "out");
}

TEST_P(SiluMul, Backward) {
    for (const SiluMulCase& c : silu_mul_cases()) {
        SCOPED_TRACE(std::to_string(c.tokens) + "x" + std::to_string(c.ffn));
        for (const bool over_inputs : {false, true}) {
            OpRun run(GetParam());
            const int dout = run.input(c.dtype, c.tokens, c.ffn, c.pad + 24);
            const int gate = over_inputs ? run.in_place(c.dtype, c.tokens, c.ffn, c.pad)
                                         : run.input(c.dtype, c.tokens, c.ffn, c.pad);
            const int up = over_inputs ? run.in_place(c.dtype, c.tokens, c.ffn, c.pad + 8)
                                       : run.input(c.dtype, c.tokens, c.ffn, c.pad + 8);
            const int dgate = over_inputs ? gate : run.output(c.dtype, c.tokens, c.ffn, c.pad);
            const int dup = over_inputs ? up : run.output(c.dtype, c.tokens, c.ffn, c.pad);
            run.run(
                [&](Stream& stream, const std::vector<Tensor>& t) {
                    silu_mul_backward(stream, t[dout], t[gate], t[up], t[dgate], t[dup]);
                },
                c.backward);
            // Element by element, so that each derivative costs two evaluations of one element.
            const std::vector<double> g = run.before(gate), u = run.before(up),
                                      d = run.values(dout);
            std::vector<double> want_gate, want_up;
            for (std::size_t i = 0; i < g.size(); ++i) {
                want_gate.push_back(
                    numeric_derivative(silu_mul_reference, {g[i], u[i]}, 0, {d[i]}));
                want_up.push_back(numeric_derivative(silu_mul_reference, {g[i], u[i]}, 1, {d[i]}));
            }
            // 1 + x (1 - sigmoid) cancels near x = -1.28, where its terms are of size 2.
            expect_close(run.values(dgate), want_gate, 1.01 * unit_of(c.dtype) + 1e-6, 2e-6,
                         "dgate");
            expect_close(run.values(dup), want_up, 1.01 * unit_of(c.dtype) + 1e-6, 1e-8, "dup");
        }
    }
}

}  // namespace
}  // namespace garam::testing
