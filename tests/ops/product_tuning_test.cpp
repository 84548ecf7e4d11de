// Products by a table: the tail as a product of its own, and what a card's library offers.
#include "garam/ops/product_tuning.h"

#include <algorithm>
#include <cmath>

#include "garam/core/error.h"
#include "garam/kernels/cuda/matmul.h"
#include "garam/ops/matmul.h"
#include "ops/op_run.h"

namespace garam::testing {
namespace {

struct Case {
    std::int64_t m, n, k, tail, pad;
    bool transpose_a, transpose_b, addend, bias;
    DType in = DType::bf16, out = DType::bf16;
};
const std::vector<Case>& cases() {
    static const std::vector<Case> kCases = {
        {130, 264, 320, 64, 8, false, true, true, true},
        {96, 128, 192, 64, 64, false, false, false, false},
        {64, 72, 104, 40, 0, true, false, false, false, DType::bf16, DType::f32},
        {33, 65, 100, 20, 4, false, true, true, false, DType::f32, DType::f32},
        {256, 512, 1024, 0, 0, false, true, false, false},
    };
    return kCases;
}

struct Outcome {
    ProductCounts counts;
    std::vector<double> values, want, bound;
};

// The product of a case on a device of that profile, and what it should be.
Outcome multiply(const DeviceProfile& profile, const Case& c) {
    OpRun run(profile);
    const int a =
        c.transpose_a ? run.input(c.in, c.k, c.m, c.pad) : run.input(c.in, c.m, c.k, c.pad);
    const int b =
        c.transpose_b ? run.input(c.in, c.n, c.k, c.pad) : run.input(c.in, c.k, c.n, c.pad);
    const int y = run.output(c.out, c.m, c.n, c.pad);
    const int addend = c.addend ? run.input(c.out, c.m, c.n, c.pad) : -1;
    const int bias = c.bias ? run.input(c.out, 1, c.n) : -1;
    const auto elements = [](std::int64_t rows, std::int64_t columns) {
        return static_cast<double>(rows * columns);
    };
    const double in = c.in == DType::bf16 ? 2 : 4;
    const double out = c.out == DType::bf16 ? 2 : 4;
    Cost cost;
    cost.flops =
        2 * elements(c.m, c.n) * static_cast<double>(c.k) + (c.bias ? elements(c.m, c.n) : 0);
    cost.bytes_read = in * (elements(c.m, c.k) + elements(c.k, c.n)) +
                      out * ((c.addend ? elements(c.m, c.n) : 0) + (c.bias ? elements(1, c.n) : 0));
    cost.bytes_written = out * elements(c.m, c.n);
    Outcome outcome;
    run.run(
        [&](Stream& stream, const std::vector<Tensor>& t) {
            MatmulOptions options{.transpose_a = c.transpose_a, .transpose_b = c.transpose_b};
            options.tail = c.tail;
            if (c.addend) options.addend = t[static_cast<std::size_t>(addend)];
            if (c.bias) options.bias = t[static_cast<std::size_t>(bias)];
            stream.meter().count_products(true);
            matmul(stream, t[static_cast<std::size_t>(a)], t[static_cast<std::size_t>(b)],
                   t[static_cast<std::size_t>(y)], options);
            for (const auto& [shape, calls] : stream.meter().products())
                outcome.counts[shape] = static_cast<double>(calls);
        },
        cost);
    outcome.values = run.values(y);
    const std::vector<double> x = run.values(a);
    const std::vector<double> w = run.values(b);
    for (std::int64_t i = 0; i < c.m; ++i) {
        for (std::int64_t j = 0; j < c.n; ++j) {
            double sum = 0;
            double size = 0;
            double largest = 0;  // of the sums on the way that may be rounded
            const auto add = [&](double term) {
                sum += term;
                size += std::abs(term);
            };
            if (c.addend) add(run.values(addend)[static_cast<std::size_t>(i * c.n + j)]);
            if (c.bias) add(run.values(bias)[static_cast<std::size_t>(j)]);
            for (std::int64_t p = 0; p < c.k; ++p) {
                if (p == c.k - c.tail) largest = std::abs(sum);
                add(x[static_cast<std::size_t>(c.transpose_a ? p * c.m + i : i * c.k + p)] *
                    w[static_cast<std::size_t>(c.transpose_b ? j * c.k + p : p * c.n + j)]);
            }
            outcome.want.push_back(sum);
            // fp32 sums in any order; three roundings: of the part before the tail, of the product
            // before the addend, of the result.
            outcome.bound.push_back(static_cast<double>(c.k + 4) * 0x1p-24 * size +
                                    1.01 * unit_of(c.out) * (2 * std::abs(sum) + 2 * largest) +
                                    (c.addend ? 1.01 * unit_of(c.out) * size : 0));
        }
    }
    return outcome;
}

void expect_right(const Outcome& outcome) {
    for (std::size_t i = 0; i < outcome.values.size(); ++i)
        ASSERT_NEAR(outcome.values[i], outcome.want[i], outcome.bound[i]) << i;
}

TEST(ProductShapes, OfATailsProductsAreTheirOperands) {
    alignas(256) static char memory[1 << 16];
    for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
            cuda::MatmulArguments x;
            x.m = 12;
            x.n = 20;
            x.k = 48;
            x.a = {memory, 56};
            x.b = {memory + 32768, 72};
            x.c = {memory + 49152, 24};
            x.transpose_a = transpose_a;
            x.transpose_b = transpose_b;
            x.inputs_are_bf16 = x.c_is_bf16 = true;
            ProductShape shape = cuda::product_shape(x);
            shape.tail = 8;
            const auto [main, tail] = cuda::split_at_tail(x, 8);
            EXPECT_EQ(cuda::product_shape(main), without_tail(shape));
            EXPECT_EQ(cuda::product_shape(tail), only_tail(shape));
            EXPECT_EQ(static_cast<char*>(tail.a.data) - memory, 2 * 40 * (transpose_a ? 56 : 1));
            EXPECT_EQ(static_cast<char*>(tail.b.data) - memory,
                      32768 + 2 * 40 * (transpose_b ? 1 : 72));
        }
    }
}

class Products : public ::testing::TestWithParam<DeviceProfile> {};
GARAM_FOR_CPU_AND_CARDS(Products);

TEST_P(Products, ATailChangesNoProductWithoutATable) {
    for (const Case& c : cases()) {
        const Outcome with_tail = multiply(GetParam(), c);
        expect_right(with_tail);
        Case plain = c;
        plain.tail = 0;
        EXPECT_EQ(with_tail.values, multiply(GetParam(), plain).values);
    }
}

// Thousands of calls for each shape: not for the sanitizer, which runs what is named "cuda".
class ProductTuning : public ::testing::TestWithParam<DeviceProfile> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ProductTuning);
INSTANTIATE_TEST_SUITE_P(Cuda, ProductTuning, ::testing::ValuesIn(cards()), [](const auto& test) {
    return "card" + std::to_string(test.param.ordinal);
});

TEST_P(ProductTuning, WhatIsChosenIsRight) {
    const DeviceProfile& card = GetParam();
    ProductCounts counts;
    for (const Case& c : cases())
        counts.merge(multiply(card, c).counts);
    const auto device = make_device(card);
    TuningOptions options;
    options.rounds = 3;
    options.margin = -100;  // whatever else there is
    std::int64_t told = 0;
    const ProductTable table =
        tune_products(*device, counts, options, [&](const TuningProgress& progress) {
            EXPECT_EQ(progress.done, ++told);
            EXPECT_GT(progress.tuned->heuristic_us, 0);
        });
    EXPECT_GE(table.products.size(), counts.size());
    EXPECT_EQ(device->memory().current, 0);
    const auto choices =
        std::count_if(table.products.begin(), table.products.end(),
                      [](const auto& entry) { return entry.second.is_a_choice(); });
    EXPECT_GT(choices, 0);
    EXPECT_EQ(misfit_of(table, card), "");
    const ProductTable read = ProductTable::parse(table.to_text(), "table");
    EXPECT_EQ(misfit_of(read, card), "");
    EXPECT_TRUE(read.chooses_as(table));

    // OpRun sees that the bits come again, recorded too, and that pads stay unread.
    DeviceProfile tuned = card;
    tuned.products = std::make_shared<const ProductTable>(read);
    for (const Case& c : cases())
        expect_right(multiply(tuned, c));
    // And with every tail as a product of its own.
    auto two = std::make_shared<ProductTable>(read);
    for (auto& [shape, product] : two->products)
        if (shape.tail > 0) {
            product.algorithm.reset();
            product.two_products = true;
        }
    tuned.products = two;
    for (const Case& c : cases())
        expect_right(multiply(tuned, c));
}

TEST_P(ProductTuning, TablesOfElsewhereAreRefused) {
    const DeviceProfile& card = GetParam();
    ProductTable table;
    table.home = product_home(card);
    EXPECT_EQ(misfit_of(table, card), "");
    ProductTable other = table;
    other.home.card = "another card";
    EXPECT_NE(misfit_of(other, card), "");
    other = table;
    ++other.home.library_version;
    EXPECT_NE(misfit_of(other, card), "");
    // An algorithm that there is not.
    ProductShape shape;
    shape.m = shape.n = shape.k = shape.a_pitch = shape.b_pitch = shape.c_pitch = 256;
    shape.inputs_are_bf16 = shape.c_is_bf16 = shape.transpose_b = true;
    table.products[shape].algorithm = ProductAlgorithm{.id = 123456};
    EXPECT_NE(misfit_of(table, card), "");
}

}  // namespace
}  // namespace garam::testing
