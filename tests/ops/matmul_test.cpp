#include "garam/ops/matmul.h"

#include <cmath>
#include <thread>

#include "garam/ops/onednn_matmul.h"
#include "ops/matmul_cases.h"
#include "ops/op_run.h"

namespace garam::testing {
namespace {

class Matmul : public OpTest {};
GARAM_FOR_ALL_PROFILES(Matmul);

struct Sums {
    std::vector<double> value, magnitude;
};

// op(a) * op(b) and the sums of the products' sizes.
Sums product(const std::vector<double>& a, const std::vector<double>& b, const MatmulCase& c) {
    Sums sums;
    for (std::int64_t i = 0; i < c.m; ++i) {
        for (std::int64_t j = 0; j < c.n; ++j) {
            double sum = 0, size = 0;
            for (std::int64_t p = 0; p < c.k; ++p) {
                const double x = c.options.transpose_a ? a[p * c.m + i] : a[i * c.k + p];
                const double y = c.options.transpose_b ? b[j * c.k + p] : b[p * c.n + j];
                sum += x * y;
                size += std::abs(x * y);
            }
            sums.value.push_back(sum);
            sums.magnitude.push_back(size);
        }
    }
    return sums;
}

TEST_P(Matmul, AllLayouts) {
    for (const MatmulCase& c : matmul_cases()) {
        SCOPED_TRACE(std::to_string(c.m) + "x" + std::to_string(c.n) + "x" + std::to_string(c.k) +
                     " " + std::string(name_of(c.in)) + (c.options.transpose_a ? " ta" : "") +
                     (c.options.transpose_b ? " tb" : "") +
                     (c.options.accumulate ? " accumulate" : ""));
        OpRun run(GetParam());
        const int a = c.options.transpose_a ? run.input(c.in, c.k, c.m, c.pad)
                                            : run.input(c.in, c.m, c.k, c.pad);
        const int b = c.options.transpose_b ? run.input(c.in, c.n, c.k, c.pad)
                                            : run.input(c.in, c.k, c.n, c.pad);
        const int out = c.options.accumulate ? run.in_place(c.out, c.m, c.n, c.pad)
                                             : run.output(c.out, c.m, c.n, c.pad);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                matmul(stream, t[a], t[b], t[out], c.options);
            },
            c.cost);
        const Sums sums = product(run.values(a), run.values(b), c);
        std::vector<double> want, bound;
        const std::vector<double> before = run.before(out);
        for (std::size_t i = 0; i < sums.value.size(); ++i) {
            const double held = c.options.accumulate ? before[i] : 0.0;
            want.push_back(c.options.alpha * sums.value[i] + held);
            // A sum of k fp32 terms in any order: k half units of the sizes; then one rounding.
            bound.push_back(static_cast<double>(c.k + 3) * 0x1p-24 *
                                (std::abs(c.options.alpha) * sums.magnitude[i] + std::abs(held)) +
                            1.01 * unit_of(c.out) * std::abs(want.back()));
        }
        expect_within(run.values(out), want, bound, "c");
    }
}

TEST_P(Matmul, EmptyExtents) {
    OpRun run(GetParam());
    const int a = run.input(DType::f32, 3, 0);
    const int b = run.input(DType::f32, 0, 5);
    const int c = run.output(DType::f32, 3, 5, 2);
    run.run([&](Stream& stream, const std::vector<Tensor>& t) { matmul(stream, t[a], t[b], t[c]); },
            {0, 0, 60});
    EXPECT_EQ(run.values(c), std::vector<double>(15, 0.0));

    OpRun kept(GetParam());
    const int x = kept.input(DType::f32, 3, 0);
    const int y = kept.input(DType::f32, 0, 5);
    const int sum = kept.in_place(DType::f32, 3, 5);
    kept.run(
        [&](Stream& stream, const std::vector<Tensor>& t) {
            matmul(stream, t[x], t[y], t[sum], {.accumulate = true});
        },
        {0, 60, 60});
    EXPECT_EQ(kept.values(sum), kept.before(sum));

    OpRun none(GetParam());
    const int left = none.input(DType::f32, 0, 4);
    const int right = none.input(DType::f32, 4, 5);
    const int empty = none.output(DType::f32, 0, 5);
    none.run([&](Stream& stream,
                 const std::vector<Tensor>& t) { matmul(stream, t[left], t[right], t[empty]); },
             {0, 80, 0});
}

TEST_P(Matmul, TheSameBitsAgain) {
    const auto once = [&] {
        OpRun run(GetParam(), 5);
        const int a = run.input(DType::f32, 65, 200);
        const int b = run.input(DType::f32, 77, 200);
        const int c = run.output(DType::f32, 65, 77);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                matmul(stream, t[a], t[b], t[c], {.transpose_b = true});
            },
            {2.0 * 65 * 77 * 200, 4.0 * 142 * 200, 4.0 * 65 * 77}, false);
        return run.values(c);
    };
    EXPECT_EQ(once(), once());
}

TEST_P(Matmul, RefusesShapesThatDoNotFit) {
    OpRun run(GetParam());
    const int a = run.input(DType::f32, 3, 4);
    const int b = run.input(DType::f32, 3, 4);
    const int c = run.output(DType::f32, 3, 4);
    EXPECT_THROW(run.run([&](Stream& stream,
                             const std::vector<Tensor>& t) { matmul(stream, t[a], t[b], t[c]); },
                         {}),
                 Bug);
}

// Prepared products are shared between threads and dropped when there are many: each must still be
// what was asked for.
TEST(OnednnProducts, ManyShapesFromTwoThreads) {
    const auto work = [](int offset) {
        for (int i = 0; i < 1200; ++i) {
            OnednnProduct p;
            p.m = 1;
            p.n = 1 + (i + offset) % 700;
            p.k = 2;
            p.a_row = 2;
            p.a_column = 1;
            p.b_row = p.n;
            p.b_column = 1;
            p.c_row = p.n;
            const auto prepared = prepare(p);
            const float a[2] = {2, 3};
            std::vector<float> b(static_cast<std::size_t>(2 * p.n), 1.0f), c(b.size(), -1.0f);
            std::vector<char> scratch(static_cast<std::size_t>(prepared->scratch_bytes()) + 64);
            prepared->execute(a, b.data(), c.data(), scratch.data());
            ASSERT_EQ(c[static_cast<std::size_t>(p.n - 1)], 5.0f);
        }
    };
    std::thread other(work, 350);
    work(0);
    other.join();
}

}  // namespace
}  // namespace garam::testing
