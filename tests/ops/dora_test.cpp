#include "garam/ops/dora.h"

#include <cmath>

#include "ops/dora_cases.h"
#include "ops/op_run.h"

namespace garam::testing {
namespace {

class Dora : public OpTest {};
GARAM_FOR_ALL_PROFILES(Dora);

std::size_t at(std::int64_t i) {
    return static_cast<std::size_t>(i);
}

TEST_P(Dora, Scale) {
    for (const DoraScaleCase& c : dora_scale_cases()) {
        SCOPED_TRACE(std::to_string(c.out) + "x" + std::to_string(c.in));
        constexpr float kScaling = 1.5f;
        OpRun run(GetParam());
        const int weight = run.input(c.dtype, c.out, c.in, c.pad);
        const int a = run.input(DType::f32, c.rank, c.in);
        const int b = run.input(DType::f32, c.out, c.rank);
        const int magnitude = run.input(DType::f32, 1, c.out);
        const int scale = run.output(DType::f32, 1, c.out);
        const int norm_at = run.output(DType::f32, 1, c.out);
        if (c.out > 1) {  // a row of zeros
            std::vector<double> rows = run.values(weight), up = run.values(b);
            std::fill_n(rows.begin() + c.in, c.in, 0.0);
            std::fill_n(up.begin() + c.rank, c.rank, 0.0);
            run.set(weight, rows);
            run.set(b, up);
        }
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                dora_scale(stream,
                           {t[weight], t[a], t[b], kScaling, t[magnitude], t[scale], t[norm_at]});
            },
            c.cost);
        const std::vector<double> w = run.values(weight), A = run.values(a), B = run.values(b);
        const std::vector<double> m = run.values(magnitude);
        std::vector<double> want_scale, want_norm, scale_bound, norm_bound;
        for (std::int64_t o = 0; o < c.out; ++o) {
            double squares = 0, error = 0;
            for (std::int64_t i = 0; i < c.in; ++i) {
                double v = w[at(o * c.in + i)], magnitudes = std::abs(v);
                for (std::int64_t k = 0; k < c.rank; ++k) {
                    const double term = kScaling * B[at(o * c.rank + k)] * A[at(k * c.in + i)];
                    v += term;
                    magnitudes += std::abs(term);
                }
                squares += v * v;
                // Each element of V is off by half a unit of its terms an addition and product.
                const double off = static_cast<double>(c.rank + 3) * 0x1p-24 * magnitudes;
                error += off * off;
            }
            const double norm = std::sqrt(squares);
            const double inverted = norm == 0 ? 0 : 1 / norm;
            want_norm.push_back(norm);
            want_scale.push_back(m[at(o)] * inverted);
            // The norm by at most V's error in norm, its squares by the additions of a thread's columns
            // and of 13 levels, and the root, division and product.
            const double relative =
                std::sqrt(error) * inverted + (static_cast<double>(c.in) / 256 + 13 + 4) * 0x1p-24;
            norm_bound.push_back(relative * norm);
            scale_bound.push_back(relative * std::abs(want_scale.back()));
        }
        expect_within(run.values(scale), want_scale, scale_bound, "scale");
        expect_within(run.values(norm_at), want_norm, norm_bound, "norm");
    }
}

TEST_P(Dora, ScaleColumns) {
    for (const ColumnsCase& c : columns_cases()) {
        SCOPED_TRACE(std::to_string(c.tokens) + "x" + std::to_string(c.out));
        OpRun run(GetParam());
        const int x = run.input(c.dtype, c.tokens, c.out, c.pad);
        const int factors = run.input(DType::f32, 1, c.out);
        const int bias = run.input(c.dtype, 1, c.out);
        // Added in place, as to a residual stream.
        const int y = c.addend ? run.in_place(c.dtype, c.tokens, c.out, 2 * c.pad)
                               : run.output(c.dtype, c.tokens, c.out, 2 * c.pad);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                scale_columns(stream, t[x], t[factors], c.offset, c.bias ? t[bias] : Tensor(),
                              c.addend ? t[y] : Tensor(), t[y]);
            },
            c.scale);
        std::vector<double> want, bound;
        const std::vector<double> values = run.values(x), by = run.values(factors);
        const std::vector<double> added = run.values(bias);
        const std::vector<double> addend = c.addend ? run.before(y) : std::vector<double>();
        for (std::size_t i = 0; i < values.size(); ++i) {
            const std::size_t column = i % at(c.out);
            const double scaled = values[i] * (by[column] + c.offset);
            const double first = c.bias ? added[column] : 0.0;
            const double second = c.addend ? addend[i] : 0.0;
            want.push_back(scaled + first + second);
            // Four roundings in fp32, then one to the dtype.
            bound.push_back(
                unit_of(c.dtype) * std::abs(want.back()) +
                4.1 * 0x1p-24 *
                    (std::abs(values[i]) * (std::abs(by[column]) + std::abs(double{c.offset})) +
                     std::abs(first) + std::abs(second)));
        }
        expect_within(run.values(y), want, bound, "y");
    }
}

TEST_P(Dora, Backward) {
    for (const ColumnsCase& c : columns_cases()) {
        SCOPED_TRACE(std::to_string(c.tokens) + "x" + std::to_string(c.out));
        OpRun run(GetParam());
        const int dy = run.input(c.dtype, c.tokens, c.out, c.pad);
        const int z = run.in_place(c.dtype, c.tokens, c.out, 2 * c.pad);
        const int scale = run.input(DType::f32, 1, c.out);
        const int norm = run.input(DType::f32, 1, c.out);
        const int gradient = run.in_place(DType::f32, 1, c.out);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                dora_backward(stream, t[dy], t[z], t[scale], t[norm], t[z], t[gradient]);
            },
            c.backward);
        const std::vector<double> d = run.values(dy), out = run.before(z);
        const std::vector<double> by = run.values(scale), over = run.values(norm);
        std::vector<double> want_dz, want = run.before(gradient), bound;
        std::vector<double> magnitude(want.size(), 0.0);
        for (std::size_t i = 0; i < want.size(); ++i)
            magnitude[i] = std::abs(want[i]);
        for (std::size_t i = 0; i < d.size(); ++i) {
            const std::size_t column = i % at(c.out);
            want_dz.push_back(d[i] * by[column]);
            want[column] += d[i] * out[i] / over[column];
            magnitude[column] += std::abs(d[i] * out[i] / over[column]);
        }
        expect_close(run.values(z), want_dz, 1.01 * unit_of(c.dtype), 0, "dz");
        // As of a bias, and two products more.
        for (const double m : magnitude)
            bound.push_back(86 * 0x1p-24 * m);
        expect_within(run.values(gradient), want, bound, "magnitude's gradient");
    }
}

}  // namespace
}  // namespace garam::testing
