#include "garam/ops/gated_activation.h"

#include "ops/gated_activation_cases.h"
#include "ops/op_run.h"

namespace garam::testing {
namespace {

class GatedActivation : public OpTest {};
GARAM_FOR_ALL_PROFILES(GatedActivation);

std::vector<double> joined(std::vector<double> a, const std::vector<double>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

TEST_P(GatedActivation, Forward) {
    for (const GatedActivationCase& c : gated_activation_cases()) {
        SCOPED_TRACE(std::to_string(c.tokens) + "x" + std::to_string(c.ffn));
        OpRun run(GetParam());
        const int gate = run.input(c.dtype, c.tokens, c.ffn, c.pad);
        const int up = run.input(c.dtype, c.tokens, c.ffn, c.pad + 8);
        const int out = run.output(c.dtype, c.tokens, c.ffn, c.pad + 16);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                gated_activation_forward(stream, c.activation, t[gate], t[up], t[out]);
            },
            c.forward);
        // exp to 2 units in the last place, four more operations, and the rounding of the result;
        // the cubic of gelu, of size up to 40 in the inputs here, is rounded before its exponential.
        const double units = c.activation == Activation::gelu_tanh ? 100 : 8;
        expect_close(
            run.values(out),
            gated_activation_reference(c.activation, joined(run.values(gate), run.values(up))),
            unit_of(c.dtype) + units * 0x1p-24, 0, "out");
    }
}

TEST_P(GatedActivation, Extremes) {
    for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
        const bool gelu = activation == Activation::gelu_tanh;
        OpRun run(GetParam());
        const std::vector<double> gates = {-1000, -100, -88, -20, -0.0, 20, 88, 100, 1e30};
        const int gate = run.input(DType::f32, 1, 9);
        const int up = run.input(DType::f32, 1, 9);
        const int out = run.output(DType::f32, 1, 9);
        run.set(gate, gates);
        run.set(up, std::vector<double>(9, 1.0));
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                gated_activation_forward(stream, activation, t[gate], t[up], t[out]);
            },
            {gelu ? 81.0 : 45.0, 72, 36});
        // exp(-gate) saturates at exp(88.3): results below 100 exp(-88) stand for zero.
        expect_close(
            run.values(out),
            gated_activation_reference(activation, joined(run.values(gate), run.values(up))), 1e-6,
            1e-34, "out");
    }
}

// The derivative far out is 0 or 1, not a product of infinity and nothing.
TEST_P(GatedActivation, SlopeOfLargeGates) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
            OpRun run(GetParam());
            const int ones = run.input(dtype, 1, 6);
            const int gate = run.input(dtype, 1, 6);
            const int dgate = run.output(dtype, 1, 6);
            const int dup = run.output(dtype, 1, 6);
            run.set(ones, std::vector<double>(6, 1.0));
            run.set(gate, {-1024, -256, 256, 1024, 1e6, 1e6});
            const auto bytes = static_cast<double>(size_of(dtype));
            run.run(
                [&](Stream& stream, const std::vector<Tensor>& t) {
                    gated_activation_backward(stream, activation, t[ones], t[gate], t[ones],
                                              t[dgate], t[dup]);
                },
                {activation == Activation::silu ? 72.0 : 108.0, 18 * bytes, 12 * bytes});
            expect_close(run.values(dgate), {0, 0, 1, 1, 1, 1}, 0, 1e-30, "dgate");
        }
    }
}

TEST_P(GatedActivation, Backward) {
    for (const GatedActivationCase& c : gated_activation_cases()) {
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
                    gated_activation_backward(stream, c.activation, t[dout], t[gate], t[up],
                                              t[dgate], t[dup]);
                },
                c.backward);
            // Element by element, so that each derivative costs two evaluations of one element.
            const std::vector<double> g = run.before(gate), u = run.before(up),
                                      d = run.values(dout);
            const auto f = [&](const std::vector<double>& x) {
                return gated_activation_reference(c.activation, x);
            };
            std::vector<double> want_gate, want_up;
            for (std::size_t i = 0; i < g.size(); ++i) {
                want_gate.push_back(numeric_derivative(f, {g[i], u[i]}, 0, {d[i]}));
                want_up.push_back(numeric_derivative(f, {g[i], u[i]}, 1, {d[i]}));
            }
            // 1 + x (1 - sigmoid) cancels near x = -1.28, where its terms are of size 2; gelu's
            // exponential is less exact, as in the forward.
            const double relative = c.activation == Activation::gelu_tanh ? 6e-6 : 1e-6;
            expect_close(run.values(dgate), want_gate, 1.01 * unit_of(c.dtype) + relative,
                         2 * relative, "dgate");
            expect_close(run.values(dup), want_up, 1.01 * unit_of(c.dtype) + relative, 1e-8, "dup");
        }
    }
}

}  // namespace
}  // namespace garam::testing
