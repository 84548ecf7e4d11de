#include "garam/ops/row_matmul.h"

#include <cmath>

#include "ops/gated_activation_cases.h"
#include "ops/op_run.h"
#include "ops/rms_norm_cases.h"
#include "ops/row_matmul_cases.h"

namespace garam::testing {
namespace {

constexpr float kEps = 1e-5f;

class RowMatmul : public OpTest {};
GARAM_FOR_ALL_PROFILES(RowMatmul);

std::vector<double> joined(std::vector<double> a, const std::vector<double>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

std::string name_of_case(const RowMatmulCase& c) {
    return std::string(name_of(c.in)) + " " + std::to_string(c.rows) + "x(" +
           std::to_string(c.made) + "+" + std::to_string(c.tail) + ")x" + std::to_string(c.n);
}

// What both ops have beside the operand that they make.
struct Product {
    const RowMatmulCase& c;
    int b, out, tail, addend, bias;
    Product(OpRun& run, const RowMatmulCase& kase)
        : c(kase),
          b(run.input(c.in, c.n, c.made + c.tail, c.pad)),
          out(run.output(c.out, c.rows, c.n, c.pad)),
          tail(c.tail > 0 ? run.input(c.in, c.rows, c.tail, c.pad) : b),
          addend(c.addend ? run.input(c.out, c.rows, c.n, c.pad + 1) : b),
          bias(c.bias ? run.input(c.out, 1, c.n) : b) {}

    RowMatmulOptions options(const std::vector<Tensor>& t) const {
        RowMatmulOptions options;
        options.alpha = c.alpha;
        if (c.tail > 0) options.tail = t[static_cast<std::size_t>(tail)];
        if (c.addend) options.addend = t[static_cast<std::size_t>(addend)];
        if (c.bias) options.bias = t[static_cast<std::size_t>(bias)];
        return options;
    }

    // `made` is off by a relative error of `error` where it is rounded for the product.
    void expect(const OpRun& run, const std::vector<double>& made, double error) const {
        const std::vector<double> weights = run.values(b), last = run.values(tail),
                                  added = run.values(addend), shift = run.values(bias);
        std::vector<double> want, bound;
        const std::int64_t k = c.made + c.tail;
        for (std::int64_t i = 0; i < c.rows; ++i) {
            for (std::int64_t j = 0; j < c.n; ++j) {
                double sum = c.addend ? added[i * c.n + j] : 0.0;
                double size = std::abs(sum), off = 0;
                for (std::int64_t p = 0; p < k; ++p) {
                    const double y =
                        p < c.made ? made[i * c.made + p] : last[i * c.tail + p - c.made];
                    const double term = static_cast<double>(c.alpha) * y * weights[j * k + p];
                    sum += term;
                    size += std::abs(term);
                    if (p < c.made) off += error * std::abs(term);
                }
                const double result = sum + (c.bias ? shift[j] : 0.0);
                size += std::abs(result - sum);
                want.push_back(result);
                // As in matmul's test.
                bound.push_back(off + static_cast<double>(k + 4) * 0x1p-24 * size +
                                1.01 * unit_of(c.out) *
                                    (std::abs(result) + (c.bias ? std::abs(sum) : 0.0)));
            }
        }
        expect_within(run.values(out), want, bound, "c");
    }
};

TEST_P(RowMatmul, OfNorm) {
    for (const RowMatmulCase& c : row_matmul_cases()) {
        SCOPED_TRACE(name_of_case(c));
        OpRun run(GetParam());
        const int x = run.input(c.in, c.rows, c.made, c.pad);
        const int weight = run.input(c.in, 1, c.made);
        const Product product(run, c);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                rms_norm_matmul(stream, t[x], t[weight], kEps, t[product.b], t[product.out],
                                product.options(t));
            },
            c.norm);
        product.expect(
            run,
            rms_norm_reference(joined(run.values(x), run.values(weight)), c.rows, c.made, kEps),
            2.01 * unit_of(c.in) + 300 * 0x1p-24);
    }
}

TEST_P(RowMatmul, OfActivation) {
    for (const RowMatmulCase& c : row_matmul_cases()) {
        SCOPED_TRACE(name_of_case(c));
        OpRun run(GetParam());
        const int gate = run.input(c.in, c.rows, c.made, c.pad);
        const int up = run.input(c.in, c.rows, c.made, c.pad + 8);
        const Product product(run, c);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                gated_activation_matmul(stream, Activation::silu, t[gate], t[up], t[product.b],
                                        t[product.out], product.options(t));
            },
            c.silu);
        product.expect(
            run,
            gated_activation_reference(Activation::silu, joined(run.values(gate), run.values(up))),
            unit_of(c.in) + 8 * 0x1p-24);
    }
}

TEST_P(RowMatmul, OfNormWithOffset) {
    for (RowMatmulCase c : row_matmul_cases()) {
        SCOPED_TRACE(name_of_case(c));
        c.alpha = 0.22f;
        OpRun run(GetParam());
        const int x = run.input(c.in, c.rows, c.made, c.pad);
        const int weight = run.input(c.in, 1, c.made);
        const Product product(run, c);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                rms_norm_matmul(stream, t[x], t[weight], kEps, t[product.b], t[product.out],
                                product.options(t), {.weight_offset = 1, .rounds_once = true});
            },
            c.norm);
        // Where 1 and the weight cancel, one is off by a unit of 1.
        product.expect(
            run,
            rms_norm_reference(joined(run.values(x), run.values(weight)), c.rows, c.made, kEps, 1),
            1.01 * unit_of(c.in) + 600 * 0x1p-24);
    }
}

TEST_P(RowMatmul, OfGelu) {
    for (RowMatmulCase c : row_matmul_cases()) {
        SCOPED_TRACE(name_of_case(c));
        c.alpha = 0.22f;
        OpRun run(GetParam());
        const int gate = run.input(c.in, c.rows, c.made, c.pad);
        const int up = run.input(c.in, c.rows, c.made, c.pad + 8);
        const Product product(run, c);
        Cost cost = c.silu;
        cost.flops += 4 * static_cast<double>(c.rows * c.made);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                gated_activation_matmul(stream, Activation::gelu_tanh, t[gate], t[up], t[product.b],
                                        t[product.out], product.options(t));
            },
            cost);
        product.expect(run,
                       gated_activation_reference(Activation::gelu_tanh,
                                                  joined(run.values(gate), run.values(up))),
                       unit_of(c.in) + 100 * 0x1p-24);
    }
}

// Rows of b that no whole step divides, with poison behind them.
TEST_P(RowMatmul, ReadsNoPads) {
    OpRun run(GetParam());
    const int gate = run.input(DType::bf16, 1, 264);
    const int up = run.input(DType::bf16, 1, 264);
    const int b = run.input(DType::bf16, 3, 264, 8);
    const int out = run.output(DType::f32, 1, 3);
    run.run(
        [&](Stream& stream, const std::vector<Tensor>& t) {
            gated_activation_matmul(stream, Activation::silu, t[gate], t[up], t[b], t[out]);
        },
        {1320 + 1584, 1056 + 1584, 12});
    for (const double value : run.values(out))
        EXPECT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace garam::testing
