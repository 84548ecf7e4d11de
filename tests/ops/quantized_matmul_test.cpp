#include "garam/ops/quantized_matmul.h"

#include <cmath>

#include "garam/kernels/cuda/quantized_row_matmul.h"
#include "ops/quantized_matmul_cases.h"
#include "ops/quantized_matrices.h"

namespace garam::testing {
namespace {

class QuantizedMatmul : public OpTest {};
GARAM_FOR_ALL_PROFILES(QuantizedMatmul);

struct Operands {
    int a, c, addend, bias;

    Operands(OpRun& run, const QuantizedMatmulCase& x) {
        const std::int64_t k = x.options.transpose_b ? x.columns : x.rows;
        const std::int64_t n = x.options.transpose_b ? x.rows : x.columns;
        a = run.input(x.in, x.m, k, x.pad);
        c = x.options.accumulate ? run.in_place(x.out, x.m, n, x.pad)
                                 : run.output(x.out, x.m, n, x.pad);
        addend = x.addend ? run.input(x.out, x.m, n, x.pad + 1) : c;
        bias = x.bias ? run.input(x.out, 1, n) : c;
    }
    MatmulOptions options(const QuantizedMatmulCase& x, const std::vector<Tensor>& t) const {
        MatmulOptions options = x.options;
        if (x.addend) options.addend = t[static_cast<std::size_t>(addend)];
        if (x.bias) options.bias = t[static_cast<std::size_t>(bias)];
        return options;
    }
};

std::string name_of_case(const TestMatrix& matrix, const QuantizedMatmulCase& c) {
    return matrix.name() + ", " + std::to_string(c.m) + " rows of " + std::string(name_of(c.in)) +
           (c.options.transpose_b ? " forward" : " backward");
}

// Runs the case at its declared cost.
Operands multiply(OpRun& run, const QuantizedMatmulCase& c, TestMatrix& matrix) {
    const Operands operands(run, c);
    matrix.add_to(run);
    run.run(
        [&](Stream& stream, const std::vector<Tensor>& t) {
            quantized_matmul(stream, t[operands.a], matrix.of(t), t[operands.c],
                             operands.options(c, t));
        },
        c.cost);
    return operands;
}

TEST_P(QuantizedMatmul, TheBitsOfMatmulWithTheDecodedMatrix) {
    if (GetParam().is_cuda()) GTEST_SKIP() << "a promise of the CPU's product";
    for (const QuantizedMatmulCase& c : quantized_matmul_cases()) {
        TestMatrix matrix(c.format, c.rows, c.columns, c.block, c.is_double);
        SCOPED_TRACE(name_of_case(matrix, c));
        OpRun run(GetParam());
        const Operands operands = multiply(run, c, matrix);

        OpRun plain(GetParam());
        const Operands same(plain, c);
        const int weight = plain.input(c.in, c.rows, c.columns);
        plain.set(weight, matrix.values(c.in));
        const auto elements = static_cast<double>(c.rows * c.columns);
        const Cost cost{
            c.cost.flops - elements,
            c.cost.bytes_read - matrix.bytes() + elements * static_cast<double>(size_of(c.in)),
            c.cost.bytes_written};
        plain.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                matmul(stream, t[same.a], t[weight], t[same.c], same.options(c, t));
            },
            cost);
        ASSERT_EQ(run.values(operands.c), plain.values(same.c));
    }
}

// On a card few rows go by a kernel with an order of sums, and roundings, of its own.
TEST_P(QuantizedMatmul, WithinTheErrorOfItsSums) {
    for (const QuantizedMatmulCase& c : quantized_matmul_cases()) {
        const bool on_card = GetParam().is_cuda();
        if (on_card && (c.m > cuda::kMostFusedRows || !c.options.transpose_b)) continue;
        TestMatrix matrix(c.format, c.rows, c.columns, c.block, c.is_double);
        SCOPED_TRACE(name_of_case(matrix, c));
        OpRun run(GetParam());
        const Operands operands = multiply(run, c, matrix);
        const std::vector<double> a = run.values(operands.a);
        const std::vector<double> w = matrix.values(DType::f32);
        const std::vector<double> before = run.before(operands.addend);
        const std::int64_t k = c.options.transpose_b ? c.columns : c.rows;
        const std::int64_t n = c.options.transpose_b ? c.rows : c.columns;
        // A sum of k fp32 terms in any order, twice where blocks are summed by themselves; a weight decoded to
        // bf16, or its table's values, within half a unit.
        const double of_sums =
            static_cast<double>(2 * k + 4) * 0x1p-24 + (c.in == DType::bf16 ? 0x1p-8 : 0.0);
        std::vector<double> want, bound;
        for (std::int64_t i = 0; i < c.m; ++i) {
            for (std::int64_t j = 0; j < n; ++j) {
                double sum = 0, size = 0;
                for (std::int64_t p = 0; p < k; ++p) {
                    const std::int64_t at = c.options.transpose_b ? j * k + p : p * n + j;
                    const double product =
                        a[static_cast<std::size_t>(i * k + p)] * w[static_cast<std::size_t>(at)];
                    sum += product;
                    size += std::abs(product);
                }
                const std::size_t at = want.size();
                const double held = c.options.accumulate || c.addend ? before[at] : 0.0;
                const double shift =
                    c.bias ? run.values(operands.bias)[static_cast<std::size_t>(j)] : 0.0;
                const double all = c.options.alpha * sum + held;
                want.push_back(all + shift);
                bound.push_back(of_sums * (std::abs(c.options.alpha) * size + std::abs(held) +
                                           std::abs(shift)) +
                                1.01 * unit_of(c.out) *
                                    (std::abs(want.back()) + (c.bias ? std::abs(all) : 0.0)));
            }
        }
        expect_within(run.values(operands.c), want, bound, "c");
    }
}

TEST_P(QuantizedMatmul, AnEmptySumIsWhatItIsAddedTo) {
    OpRun run(GetParam());
    TestMatrix matrix(QuantFormat::nf4, 1, 64, 64, false);
    const int a = run.input(DType::f32, 0, 64);
    const int c = run.output(DType::f32, 0, 1);
    matrix.add_to(run);
    run.run(
        [&](Stream& stream, const std::vector<Tensor>& t) {
            quantized_matmul(stream, t[a], matrix.of(t), t[c], {.transpose_b = true});
        },
        {64, 36, 0});
}

TEST_P(QuantizedMatmul, RefusesWhatDoesNotFit) {
    const auto device = make_dry_device(GetParam());
    Arena arena(*device, 1 << 24);
    Meter meter;
    Stream stream(*device, arena, meter);
    const auto made = [&](DType dtype, const Shape& shape) {
        return arena.push(dtype, shape, Purpose::batch);
    };
    QuantizedMatrix matrix;
    matrix.rows = 4;
    matrix.columns = 64;
    matrix.codes = made(DType::u8, {128});
    matrix.absmax = made(DType::f32, {4});
    const Tensor a = made(DType::f32, {2, 64});
    const Tensor c = made(DType::f32, {2, 4});
    quantized_matmul(stream, a, matrix, c, {.transpose_b = true});
    EXPECT_THROW(quantized_matmul(stream, c, matrix, c, {.transpose_b = true}), Bug);
    EXPECT_THROW(quantized_matmul(stream, a, matrix, a, {.transpose_b = true}), Bug);
    EXPECT_THROW(quantized_matmul(stream, a, matrix, c, {.transpose_a = true, .transpose_b = true}),
                 Bug);
    EXPECT_THROW(quantized_matmul(stream, a, matrix, c, {.transpose_b = true, .tail = 2}), Bug);
    EXPECT_THROW(
        quantized_matmul(stream, a, matrix, made(DType::bf16, {2, 4}), {.transpose_b = true}), Bug);
    if (!GetParam().is_cuda()) return;
    EXPECT_THROW(quantized_matmul(stream, c, matrix, a, {}), Bug);
    EXPECT_THROW(quantized_matmul(stream, made(DType::f32, {17, 64}), matrix,
                                  made(DType::f32, {17, 4}), {.transpose_b = true}),
                 Bug);
}

}  // namespace
}  // namespace garam::testing
