#include "garam/ops/matmul.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "garam/core/parallel.h"
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
                     (c.options.accumulate ? " accumulate" : "") + (c.addend ? " addend" : "") +
                     (c.bias ? " bias" : ""));
        OpRun run(GetParam());
        const int a = c.options.transpose_a ? run.input(c.in, c.k, c.m, c.pad)
                                            : run.input(c.in, c.m, c.k, c.pad);
        const int b = c.options.transpose_b ? run.input(c.in, c.n, c.k, c.pad)
                                            : run.input(c.in, c.k, c.n, c.pad);
        const int out = c.options.accumulate ? run.in_place(c.out, c.m, c.n, c.pad)
                                             : run.output(c.out, c.m, c.n, c.pad);
        const int addend = c.addend ? run.input(c.out, c.m, c.n, c.pad + 1) : out;
        const int bias = c.bias ? run.input(c.out, 1, c.n) : out;
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                MatmulOptions options = c.options;
                if (c.addend) options.addend = t[addend];
                if (c.bias) options.bias = t[bias];
                matmul(stream, t[a], t[b], t[out], options);
            },
            c.cost);
        const Sums sums = product(run.values(a), run.values(b), c);
        std::vector<double> want, bound;
        const std::vector<double> before = run.before(addend);
        for (std::size_t i = 0; i < sums.value.size(); ++i) {
            const double held = c.options.accumulate || c.addend ? before[i] : 0.0;
            const double sum = c.options.alpha * sums.value[i] + held;
            const double shift = c.bias ? run.values(bias)[i % static_cast<std::size_t>(c.n)] : 0.0;
            want.push_back(sum + shift);
            // A sum of k fp32 terms in any order: k half units of the sizes; then one rounding, and
            // with a bias perhaps one before.
            bound.push_back(static_cast<double>(c.k + 4) * 0x1p-24 *
                                (std::abs(c.options.alpha) * sums.magnitude[i] + std::abs(held) +
                                 std::abs(shift)) +
                            1.01 * unit_of(c.out) *
                                (std::abs(want.back()) + (c.bias ? std::abs(sum) : 0.0)));
        }
        expect_within(run.values(out), want, bound, "c");
    }
}

TEST_P(Matmul, AddendInPlace) {
    OpRun run(GetParam());
    const int a = run.input(DType::bf16, 6, 24);
    const int b = run.input(DType::bf16, 16, 24);
    const int c = run.in_place(DType::bf16, 6, 16, 8);
    run.run(
        [&](Stream& stream, const std::vector<Tensor>& t) {
            matmul(stream, t[a], t[b], t[c], {.transpose_b = true, .addend = t[c]});
        },
        {4608, 1248, 192});
    OpRun other(GetParam());
    const int x = other.input(DType::bf16, 6, 24);
    const int y = other.input(DType::bf16, 16, 24);
    const int sum = other.in_place(DType::bf16, 6, 16, 8);
    other.run(
        [&](Stream& stream, const std::vector<Tensor>& t) {
            matmul(stream, t[x], t[y], t[sum], {.transpose_b = true, .accumulate = true});
        },
        {4608, 1248, 192});
    EXPECT_EQ(run.values(c), other.values(sum));
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

// Operands in memory of their own, for products of parts of them.
class Product {
  public:
    Product(const DeviceProfile& profile, DType in, DType out, std::int64_t m, std::int64_t n,
            std::int64_t k, const MatmulOptions& options)
        : options_(options),
          device_(make_cpu_device(profile)),
          arena_(*device_, 64 << 20),
          a_(*device_, in, options.transpose_a ? Shape{k, m} : Shape{m, k}, Purpose::scratch),
          b_(*device_, in, options.transpose_b ? Shape{n, k} : Shape{k, n}, Purpose::scratch),
          c_(*device_, out, {m, n}, Purpose::scratch),
          start_(*device_, out, {m, n}, Purpose::scratch) {
        Random random(7);
        for (const Tensor& x : {a_.tensor, b_.tensor, start_.tensor})
            for (std::int64_t i = 0; i < x.elements(); ++i)
                set(x, i, static_cast<float>(random.normal()));
    }
    const Tensor& a() const { return a_.tensor; }
    const Tensor& b() const { return b_.tensor; }
    const Tensor& c() const { return c_.tensor; }
    std::int64_t peak() const { return arena_.peak(); }

    static void set(const Tensor& x, std::int64_t i, float value) {
        if (x.dtype() == DType::bf16)
            x.data<bfloat16>()[i] = bfloat16(value);
        else
            x.data<float>()[i] = value;
    }

    void reset() { std::memcpy(c().raw(), start_.tensor.raw(), bytes()); }
    std::string result() const { return {static_cast<const char*>(c().raw()), bytes()}; }

    // c[rows, columns] from the parts of a and b that it is made of.
    void multiply(std::int64_t row, std::int64_t rows_end, std::int64_t column,
                  std::int64_t columns_end) {
        Stream stream(*device_, arena_, meter_);
        matmul(
            stream,
            options_.transpose_a ? a().slice_columns(row, rows_end) : a().slice_rows(row, rows_end),
            options_.transpose_b ? b().slice_rows(column, columns_end)
                                 : b().slice_columns(column, columns_end),
            c().slice_rows(row, rows_end).slice_columns(column, columns_end), options_);
    }
    std::string whole() {
        reset();
        multiply(0, c().rows(), 0, c().columns());
        return result();
    }

  private:
    std::size_t bytes() const { return static_cast<std::size_t>(c().bytes()); }
    MatmulOptions options_;
    std::unique_ptr<Device> device_;
    Arena arena_;
    Meter meter_;
    OwnedTensor a_, b_, c_, start_;
};

// What holds on processors only: on a card the library sums as it likes, in constant scratch.
constexpr const char* kCpuOnly = "a promise of the CPU's product";

struct BitsCase {
    DType in, out;
    std::int64_t m, n, k;
    MatmulOptions options;
};
const BitsCase kBitsCases[] = {
    {DType::f32, DType::f32, 541, 67, 650, {false, true}},
    {DType::f32, DType::f32, 75, 301, 330, {false, false, 0.3f, true}},
    {DType::f32, DType::f32, 90, 77, 1000, {true, false, 1.7f, true}},
    {DType::bf16, DType::bf16, 541, 67, 1291, {false, true}},
    {DType::bf16, DType::bf16, 75, 301, 1301, {false, false, 0.3f, true}},
    {DType::bf16, DType::f32, 90, 77, 1000, {true, false, 1.7f, true}},
    {DType::bf16, DType::f32, 40, 100, 16, {true, true, 0.7f, true}},
};

// An element's bits depend on its row of op(a), its column of op(b) and k, not on what else is
// multiplied in the same call. Few columns of a transposed a are computed the other way round, one to
// three rows in tiles of their own: each must give the same.
TEST_P(Matmul, TheSameBitsForAnyCut) {
    if (GetParam().is_cuda()) GTEST_SKIP() << kCpuOnly;
    for (const BitsCase& c : kBitsCases) {
        SCOPED_TRACE(std::to_string(c.m) + "x" + std::to_string(c.n) + "x" + std::to_string(c.k) +
                     " " + std::string(name_of(c.in)));
        Product product(GetParam(), c.in, c.out, c.m, c.n, c.k, c.options);
        const std::string whole = product.whole();
        for (const std::vector<std::int64_t>& rows :
             {std::vector<std::int64_t>{0, 1, 3, 6, 10, 17, 31, c.m},
              {0, c.m / 2, c.m},
              {0, c.m}}) {
            for (const std::vector<std::int64_t>& columns :
                 {std::vector<std::int64_t>{0, 1, 9, 25, 41, 57, c.n}, {0, c.n}}) {
                product.reset();
                for (std::size_t i = 0; i + 1 < rows.size(); ++i)
                    for (std::size_t j = 0; j + 1 < columns.size(); ++j)
                        if (rows[i] < rows[i + 1] && columns[j] < columns[j + 1])
                            product.multiply(rows[i], rows[i + 1], columns[j], columns[j + 1]);
                EXPECT_TRUE(product.result() == whole)
                    << "rows cut in " << rows.size() - 1 << ", columns in " << columns.size() - 1;
            }
        }
    }
}

// … nor on the number of threads, nor on how many the profile promises.
TEST_P(Matmul, TheSameBitsForAnyThreads) {
    if (GetParam().is_cuda()) GTEST_SKIP() << kCpuOnly;
    const int before = num_threads();
    for (const BitsCase& c : kBitsCases) {
        std::string first;
        for (const int promised : {1, 2, 7}) {
            DeviceProfile profile = GetParam();
            profile.threads = promised;
            Product product(profile, c.in, c.out, c.m, c.n, c.k, c.options);
            for (const int threads : {1, 2, 5}) {
                set_num_threads(threads);
                const std::string result = product.whole();
                if (first.empty()) first = result;
                EXPECT_TRUE(result == first) << threads << " of " << promised << " threads";
            }
        }
    }
    set_num_threads(before);
}

// Plans count on it: the largest micro-batch needs the most.
TEST_P(Matmul, ScratchGrowsWithTheShape) {
    if (GetParam().is_cuda()) GTEST_SKIP() << kCpuOnly;
    const auto needed = [&](DType dtype, std::int64_t m, std::int64_t n, std::int64_t k,
                            const MatmulOptions& options) {
        const auto device = make_dry_device(GetParam());
        Arena arena(*device, std::int64_t{1} << 40);
        Meter meter;
        Stream stream(*device, arena, meter);
        const Tensor a =
            arena.push(dtype, options.transpose_a ? Shape{k, m} : Shape{m, k}, Purpose::batch);
        const Tensor b =
            arena.push(dtype, options.transpose_b ? Shape{n, k} : Shape{k, n}, Purpose::batch);
        const Tensor c = arena.push(DType::f32, {m, n}, Purpose::batch);
        const std::int64_t operands = arena.used();
        matmul(stream, a, b, c, options);
        return arena.peak() - operands;
    };
    const std::vector<std::int64_t> sizes = {1,   2,   15,  16,   17,   32,    33,  63,
                                             64,  65,  200, 288,  289,  400,   512, 513,
                                             640, 641, 999, 1000, 3000, 100000};
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const bool transpose_a : {false, true}) {
            const MatmulOptions options{.transpose_a = transpose_a};
            for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
                for (const std::int64_t other : {1, 40, 300, 1000}) {
                    for (const std::int64_t k : {16, 700, 5000}) {
                        EXPECT_LE(needed(dtype, sizes[i], other, k, options),
                                  needed(dtype, sizes[i + 1], other, k, options));
                        EXPECT_LE(needed(dtype, other, sizes[i], k, options),
                                  needed(dtype, other, sizes[i + 1], k, options));
                    }
                    EXPECT_LE(needed(dtype, other, 64, sizes[i], options),
                              needed(dtype, other, 64, sizes[i + 1], options));
                }
            }
        }
    }
    // Two hundred times the rows, the same blocks.
    EXPECT_EQ(needed(DType::f32, 512, 288, 512, {}), needed(DType::f32, 100000, 50000, 512, {}));
}

TEST_P(Matmul, PlansWhatItUsesWhateverTheThreads) {
    if (GetParam().is_cuda()) GTEST_SKIP() << kCpuOnly;
    for (const BitsCase& c : kBitsCases) {
        Product product(GetParam(), c.in, c.out, c.m, c.n, c.k, c.options);
        const int before = num_threads();
        set_num_threads(5);
        product.whole();
        set_num_threads(before);
        const auto device = make_dry_device(GetParam());
        Arena arena(*device, 64 << 20);
        Meter meter;
        Stream stream(*device, arena, meter);
        std::vector<OwnedTensor> dry;
        for (const Tensor& x : {product.a(), product.b(), product.c()})
            dry.emplace_back(*device, x.dtype(), x.shape(), Purpose::scratch);
        matmul(stream, dry[0].tensor, dry[1].tensor, dry[2].tensor, c.options);
        EXPECT_EQ(arena.peak(), product.peak());
        EXPECT_GT(arena.peak(), 0);
    }
}

// What is not a number reaches its own row or column, and nothing beyond.
TEST_P(Matmul, NotANumberStaysInItsRowAndColumn) {
    if (GetParam().is_cuda()) GTEST_SKIP() << kCpuOnly;
    constexpr std::int64_t kM = 17, kN = 35, kK = 19;
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const float value :
             {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
            Product product(GetParam(), dtype, DType::f32, kM, kN, kK, {.transpose_b = true});
            Product::set(product.a(), 16 * kK + 18, value);
            Product::set(product.b(), 34 * kK + 18, value);
            product.whole();
            for (std::int64_t i = 0; i < kM; ++i)
                for (std::int64_t j = 0; j < kN; ++j)
                    EXPECT_EQ(std::isfinite(product.c().data<float>()[i * kN + j]),
                              i != 16 && j != 34)
                        << i << ", " << j;
        }
    }
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

}  // namespace
}  // namespace garam::testing
