#include "garam/ops/quantized_row_matmul.h"

#include <cmath>

#include "garam/kernels/cuda/quantized_row_matmul.h"
#include "garam/ops/gated_activation.h"
#include "garam/ops/quantized_matmul.h"
#include "ops/gated_activation_cases.h"
#include "ops/quantized_matrices.h"
#include "ops/quantized_row_matmul_cases.h"
#include "ops/rms_norm_cases.h"

namespace garam::testing {
namespace {

constexpr float kEps = 1e-5f;

class QuantizedRowMatmul : public OpTest {};
GARAM_FOR_ALL_PROFILES(QuantizedRowMatmul);

// What all products have beside the operand that is made.
struct Product {
    const QuantizedRowCase& c;
    TestMatrix matrix;
    int out, tail, tail_weight, addend, bias;

    Product(OpRun& run, const QuantizedRowCase& kase)
        : c(kase),
          matrix(c.format, c.n, c.k, c.block, c.is_double),
          out(run.output(c.out, c.rows, c.n, c.pad)),
          tail(c.tail > 0 ? run.input(c.in, c.rows, c.tail, c.pad) : out),
          tail_weight(c.tail > 0 ? run.input(c.in, c.n, c.tail, c.pad) : out),
          addend(c.addend ? run.input(c.out, c.rows, c.n, c.pad + 1) : out),
          bias(c.bias ? run.input(c.out, 1, c.n) : out) {
        matrix.add_to(run);
    }
    std::string name() const {
        return matrix.name() + ", " + std::to_string(c.rows) + " rows of " +
               std::string(name_of(c.in)) + ", tail " + std::to_string(c.tail);
    }
    RowMatmulOptions options(const std::vector<Tensor>& t) const {
        RowMatmulOptions options;
        options.alpha = c.alpha;
        if (c.tail > 0) {
            options.tail = t[static_cast<std::size_t>(tail)];
            options.tail_weight = t[static_cast<std::size_t>(tail_weight)];
        }
        if (c.addend) options.addend = t[static_cast<std::size_t>(addend)];
        if (c.bias) options.bias = t[static_cast<std::size_t>(bias)];
        return options;
    }
    // Of the product alone, and of the rest.
    Cost cost(double made_flops, double made_bytes) const {
        const auto m = static_cast<double>(c.rows), n = static_cast<double>(c.n);
        const auto k = static_cast<double>(c.k), t = static_cast<double>(c.tail);
        const auto in = static_cast<double>(size_of(c.in));
        const auto out_size = static_cast<double>(size_of(c.out));
        Cost cost;
        cost.flops = made_flops + 2 * m * n * (k + t) + n * k + (c.bias ? m * n : 0);
        cost.bytes_read = made_bytes + matrix.bytes() + (m + n) * t * in +
                          ((c.addend ? m * n : 0) + (c.bias ? n : 0)) * out_size;
        cost.bytes_written = m * n * out_size;
        return cost;
    }

    // `made` is off by a relative error of `error` where it is rounded for the product. Weights are rounded to bf16 for
    // rows of bf16; a card rounds the table instead, NF4's 16 values to less than half of that.
    void expect(const OpRun& run, bool on_card, const std::vector<double>& made,
                double error) const {
        const std::vector<double> weights = matrix.values(DType::f32);
        const std::vector<double> last = run.values(tail), last_weight = run.values(tail_weight),
                                  added = run.values(addend), shift = run.values(bias);
        const double coded = c.in == DType::f32 ? 0 : on_card ? 0x1p-9 : unit_of(DType::bf16);
        std::vector<double> want, bound;
        for (std::int64_t i = 0; i < c.rows; ++i) {
            for (std::int64_t j = 0; j < c.n; ++j) {
                double sum = c.addend ? added[i * c.n + j] : 0.0;
                double size = std::abs(sum), off = 0;
                for (std::int64_t p = 0; p < c.k; ++p) {
                    const double term =
                        static_cast<double>(c.alpha) * made[i * c.k + p] * weights[j * c.k + p];
                    sum += term;
                    size += std::abs(term);
                    off += 1.01 * (error + coded) * std::abs(term);
                }
                sum += c.bias ? shift[j] : 0.0;
                size += std::abs(c.bias ? shift[j] : 0.0);
                double result = sum;
                for (std::int64_t p = 0; c.tail > 0 && p < c.tail; ++p) {
                    const double term = static_cast<double>(c.alpha) * last[i * c.tail + p] *
                                        last_weight[j * c.tail + p];
                    result += term;
                    size += std::abs(term);
                }
                want.push_back(result);
                // c may be rounded before its bias and its tail are added.
                bound.push_back(off + static_cast<double>(c.k + c.tail + 8) * 0x1p-24 * size +
                                1.01 * unit_of(c.out) *
                                    (std::abs(result) +
                                     (c.tail > 0 || c.bias
                                          ? std::abs(sum) + std::abs(c.bias ? shift[j] : 0.0) + off
                                          : 0.0)));
            }
        }
        expect_within(run.values(out), want, bound, "c");
    }
};

TEST_P(QuantizedRowMatmul, OfNorm) {
    for (const QuantizedRowCase& c : quantized_row_cases()) {
        OpRun run(GetParam());
        const int x = run.input(c.in, c.rows, c.k, c.pad);
        const int weight = run.input(c.in, 1, c.k);
        const Product product(run, c);
        SCOPED_TRACE(product.name());
        const auto elements = static_cast<double>(c.rows * c.k);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                const QuantizedMatrix matrix = product.matrix.of(t);
                rms_norm_matmul(stream, t[x], t[weight], kEps, {&matrix, 1}, t[product.out],
                                product.options(t));
            },
            product.cost(4 * elements, (elements + static_cast<double>(c.k)) *
                                           static_cast<double>(size_of(c.in))));
        std::vector<double> both = run.values(x);
        for (const double w : run.values(weight))
            both.push_back(w);
        product.expect(run, GetParam().is_cuda(), rms_norm_reference(both, c.rows, c.k, kEps),
                       2.01 * unit_of(c.in) + 300 * 0x1p-24);
    }
}

TEST_P(QuantizedRowMatmul, OfActivation) {
    for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
        for (const QuantizedRowCase& c : quantized_row_cases()) {
            OpRun run(GetParam());
            const int gate = run.input(c.in, c.rows, c.k, c.pad);
            const int up = run.input(c.in, c.rows, c.k, c.pad + 8);
            const Product product(run, c);
            SCOPED_TRACE(product.name());
            const auto elements = static_cast<double>(c.rows * c.k);
            run.run(
                [&](Stream& stream, const std::vector<Tensor>& t) {
                    const QuantizedMatrix matrix = product.matrix.of(t);
                    gated_activation_matmul(stream, activation, t[gate], t[up], {&matrix, 1},
                                            t[product.out], product.options(t));
                },
                product.cost(gated_activation_flops(activation) * elements,
                             2 * elements * static_cast<double>(size_of(c.in))));
            std::vector<double> both = run.values(gate);
            for (const double u : run.values(up))
                both.push_back(u);
            product.expect(run, GetParam().is_cuda(), gated_activation_reference(activation, both),
                           unit_of(c.in) + 100 * 0x1p-24);
        }
    }
}

// Weights of one input, as of query, key and value, give what each of them gives.
TEST_P(QuantizedRowMatmul, OfStackedWeights) {
    constexpr QuantFormat q4_k = QuantFormat::q4_k;
    constexpr QuantFormat nf4 = QuantFormat::nf4;
    struct Part {
        std::int64_t rows;
        QuantFormat format = nf4;
        bool is_double = true;
    };
    struct Stack {
        std::vector<Part> parts;
        std::int64_t k, block;
    };
    // Parts with blocks of their own; more rows than multiprocessors take at once; two dtypes of absmax, apart and in one
    // stack; formats of a Q4_K_M file.
    for (const Stack& stack :
         {Stack{{{70}, {16}, {33}}, 320, 64}, Stack{{{2560}, {640}, {640}}, 256, 64},
          Stack{{{1, nf4, false}, {40, nf4, false}}, 1056, 32}, Stack{{{18}, {18}}, 33, 64},
          Stack{{{70, nf4, true}, {33, nf4, false}}, 320, 64},
          Stack{{{64, q4_k}, {32, q4_k}, {32, QuantFormat::q6_k}}, 512, 64}}) {
        OpRun run(GetParam());
        std::vector<TestMatrix> matrices;
        std::int64_t n = 0;
        double bytes = 0;
        for (const Part& part : stack.parts) {
            matrices.emplace_back(part.format, part.rows, stack.k, stack.block, part.is_double,
                                  static_cast<std::uint64_t>(part.rows));
            bytes += matrices.back().bytes();
            n += part.rows;
        }
        constexpr std::int64_t kTail = 8;
        const DType dtype = DType::bf16;
        const int x = run.input(dtype, 1, stack.k);
        const int weight = run.input(dtype, 1, stack.k);
        const int tail = run.input(dtype, 1, kTail);
        const int tail_weight = run.input(dtype, n, kTail);
        const int addend = run.input(dtype, 1, n);
        const int bias = run.input(dtype, 1, n);
        const int together = run.output(dtype, 1, n);
        const int alone = run.output(dtype, 1, n);
        for (TestMatrix& matrix : matrices)
            matrix.add_to(run);
        SCOPED_TRACE(matrices.front().name());
        const auto k = static_cast<double>(stack.k);
        const auto columns = static_cast<double>(n);
        const double parts = 1 + static_cast<double>(stack.parts.size());
        Cost cost;
        cost.flops = parts * 4 * k + 2 * (columns * (3 * k + 2 * kTail) + columns);
        cost.bytes_read = parts * (4 * k + 2 * kTail) + 2 * (bytes + columns * (2 * kTail + 4));
        cost.bytes_written = 2 * 2 * columns;
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                std::vector<QuantizedMatrix> b;
                std::int64_t begin = 0;
                for (const TestMatrix& matrix : matrices) {
                    b.push_back(matrix.of(t));
                    const std::int64_t end = begin + b.back().rows;
                    rms_norm_matmul(stream, t[x], t[weight], kEps, {&b.back(), 1},
                                    t[alone].slice_columns(begin, end),
                                    {.tail = t[tail],
                                     .tail_weight = t[tail_weight].slice_rows(begin, end),
                                     .addend = t[addend].slice_columns(begin, end),
                                     .bias = t[bias].reshape(Shape{n}).slice_elements(begin, end)});
                    begin = end;
                }
                rms_norm_matmul(stream, t[x], t[weight], kEps, b, t[together],
                                {.tail = t[tail],
                                 .tail_weight = t[tail_weight],
                                 .addend = t[addend],
                                 .bias = t[bias]});
            },
            cost);
        // Sums of k terms of about 1 in another order, rounded once on both sides.
        const std::vector<double> want = run.values(alone);
        std::vector<double> bound;
        for (const double value : want)
            bound.push_back(2.02 * unit_of(dtype) * std::abs(value) + k * 0x1p-24 * k);
        expect_within(run.values(together), want, bound, "c");
    }
}

// The same products of given rows, without tails.
TEST_P(QuantizedRowMatmul, OfGivenRows) {
    for (QuantizedRowCase c : quantized_row_cases()) {
        c.tail = 0;
        OpRun run(GetParam());
        const int a = run.input(c.in, c.rows, c.k, c.pad);
        const Product product(run, c);
        SCOPED_TRACE(product.name());
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                const RowMatmulOptions options = product.options(t);
                quantized_matmul(stream, t[a], product.matrix.of(t), t[product.out],
                                 {.transpose_b = true,
                                  .alpha = options.alpha,
                                  .b_is_settled = true,
                                  .addend = options.addend,
                                  .bias = options.bias});
            },
            product.cost(0,
                         static_cast<double>(c.rows * c.k) * static_cast<double>(size_of(c.in))));
        product.expect(run, GetParam().is_cuda(), run.values(a), 0);
    }
}

// A row has the same bits beside one other as among many: they are multiplied side by side. On a card a row alone may be
// summed in another order.
TEST_P(QuantizedRowMatmul, ARowDoesNotDependOnOthers) {
    constexpr std::int64_t kRows = 16, kPair = 2, kN = 50;
    // Of the wide one few rows at once fit a block.
    for (const std::int64_t k : {1280, 14336}) {
        OpRun run(GetParam());
        TestMatrix matrix(QuantFormat::nf4, kN, k, 64, true);
        const int a = run.input(DType::bf16, kRows, k);
        const int together = run.output(DType::f32, kRows, kN);
        const int in_pairs = run.output(DType::f32, kRows, kN);
        matrix.add_to(run);
        const auto bytes = [&](double rows) { return rows * k * 2 + matrix.bytes(); };
        Cost cost;
        constexpr double kPairs = static_cast<double>(kRows) / kPair;
        cost.flops = 2.0 * 2 * kRows * kN * k + (1.0 + kPairs) * kN * k;
        cost.bytes_read = bytes(kRows) + kPairs * bytes(kPair);
        cost.bytes_written = 2.0 * 4 * kRows * kN;
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                quantized_matmul(stream, t[a], matrix.of(t), t[together], {.transpose_b = true});
                for (std::int64_t row = 0; row < kRows; row += kPair)
                    quantized_matmul(stream, t[a].slice_rows(row, row + kPair), matrix.of(t),
                                     t[in_pairs].slice_rows(row, row + kPair),
                                     {.transpose_b = true});
            },
            cost);
        EXPECT_EQ(run.values(together), run.values(in_pairs));
    }
}

TEST(QuantizedRowMatmulChecks, ATailHasItsWeight) {
    const auto device = make_cpu_device();
    Arena arena(*device, 1 << 20);
    Meter meter;
    Stream stream(*device, arena, meter);
    const auto tensor = [&](std::int64_t rows, std::int64_t columns) {
        return arena.push(DType::f32, {rows, columns}, Purpose::weights);
    };
    QuantizedMatrix matrix;
    matrix.rows = 4;
    matrix.columns = 64;
    matrix.codes = arena.push(DType::u8, {128}, Purpose::weights);
    matrix.absmax = arena.push(DType::f32, {4}, Purpose::weights);
    const Tensor x = tensor(1, 64), c = tensor(1, 4),
                 weight = arena.push(DType::f32, {64}, Purpose::weights);
    EXPECT_THROW(rms_norm_matmul(stream, x, weight, kEps, {&matrix, 1}, c, {.tail = tensor(1, 8)}),
                 Bug);
    EXPECT_THROW(rms_norm_matmul(stream, x, weight, kEps, {&matrix, 1}, c,
                                 {.tail = tensor(1, 8), .tail_weight = tensor(4, 7)}),
                 Bug);
    matrix.columns = 32;
    EXPECT_THROW(rms_norm_matmul(stream, x, weight, kEps, {&matrix, 1}, c), Bug);
    EXPECT_THROW(rms_norm_matmul(stream, x, weight, kEps, tensor(4, 72), c,
                                 {.tail = tensor(1, 8), .tail_weight = tensor(4, 8)}),
                 Bug);
}

}  // namespace
}  // namespace garam::testing
