#include "garam/ops/elementwise.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "ops/elementwise_cases.h"
#include "ops/op_run.h"

namespace garam::testing {
namespace {

class Elementwise : public OpTest {};
GARAM_FOR_ALL_PROFILES(Elementwise);

constexpr DType kFloats[] = {DType::f32, DType::f16, DType::bf16};

double rounded(double value, DType dtype) {
    const float x = static_cast<float>(value);
    if (dtype == DType::bf16) return static_cast<float>(bfloat16(x));
    if (dtype == DType::f16) return static_cast<float>(float16(x));
    return x;
}

std::string shape_of(const ElementwiseCase& c) {
    return std::to_string(c.rows) + "x" + std::to_string(c.columns);
}

TEST_P(Elementwise, Cast) {
    for (const ElementwiseCase& c : elementwise_cases()) {
        for (const DType from : kFloats) {
            for (const DType to : kFloats) {
                SCOPED_TRACE(shape_of(c) + " " + std::string(name_of(from)) + " to " +
                             std::string(name_of(to)));
                OpRun run(GetParam());
                const int x = run.input(from, c.rows, c.columns, c.pad);
                std::vector<double> values;
                for (std::int64_t i = 0; i < c.rows * c.columns; ++i)
                    values.push_back(run.random().normal());
                // What casts get wrong: ties, subnormals of f16, the largest numbers, infinities.
                const double special[] = {1.00390625, 1.01171875, 6e-8, -3e-6, 65504,
                                          -65519,     3.4e38,     0,    -0.0,  HUGE_VAL};
                for (std::size_t i = 0; i < values.size() && i < 10; ++i)
                    values[i] = special[i];
                run.set(x, values);
                const int out = run.output(to, c.rows, c.columns, c.pad + 1);
                const double n = static_cast<double>(c.rows * c.columns);
                run.run([&](Stream& stream,
                            const std::vector<Tensor>& t) { cast(stream, t[x], t[out]); },
                        {0, n * static_cast<double>(size_of(from)),
                         n * static_cast<double>(size_of(to))});
                std::vector<double> want;
                for (const double value : run.values(x))
                    want.push_back(rounded(value, to));
                EXPECT_EQ(run.values(out), want);
            }
        }
    }
}

TEST_P(Elementwise, CastKeepsNanAndEveryHalf) {
    // All 65536 binary16 patterns through the op.
    OpRun run(GetParam());
    const int x = run.input(DType::f16, 1, 65536);
    const int out = run.output(DType::f32, 1, 65536);
    std::vector<std::uint16_t> bits(65536);
    std::iota(bits.begin(), bits.end(), std::uint16_t{0});
    run.set_bits(x, bits);
    run.run([&](Stream& stream, const std::vector<Tensor>& t) { cast(stream, t[x], t[out]); },
            {0, 131072, 262144});
    const std::vector<double> halves = run.values(x), floats = run.values(out);
    for (std::size_t i = 0; i < halves.size(); ++i)
        ASSERT_TRUE(halves[i] == floats[i] || (std::isnan(halves[i]) && std::isnan(floats[i])))
            << i;

    OpRun nan(GetParam());
    const int from = nan.input(DType::f32, 1, 3);
    nan.set(from, {std::numeric_limits<double>::quiet_NaN(), 1, 2});
    const int to = nan.output(DType::bf16, 1, 3);
    nan.run([&](Stream& stream, const std::vector<Tensor>& t) { cast(stream, t[from], t[to]); },
            {0, 12, 6});
    EXPECT_TRUE(std::isnan(nan.values(to)[0]));
    EXPECT_EQ(nan.values(to)[1], 1);
}

TEST_P(Elementwise, ScaleAddFill) {
    for (const ElementwiseCase& c : elementwise_cases()) {
        const double n = static_cast<double>(c.rows * c.columns);
        for (const DType dtype : {DType::f32, DType::bf16}) {
            SCOPED_TRACE(shape_of(c) + " " + std::string(name_of(dtype)));
            const double size = static_cast<double>(size_of(dtype));
            OpRun run(GetParam());
            const int x = run.input(DType::f32, c.rows, c.columns, c.pad);
            const int scaled = run.output(dtype, c.rows, c.columns, c.pad + 1);
            run.run([&](Stream& stream,
                        const std::vector<Tensor>& t) { scale(stream, t[x], 0.37f, t[scaled]); },
                    {n, 4 * n, size * n});
            std::vector<double> want;
            for (const double value : run.values(x))
                want.push_back(rounded(static_cast<float>(value) * 0.37f, dtype));
            EXPECT_EQ(run.values(scaled), want);

            // In place, of one dtype.
            OpRun own(GetParam());
            const int y = own.in_place(dtype, c.rows, c.columns, c.pad);
            own.run([&](Stream& stream,
                        const std::vector<Tensor>& t) { scale(stream, t[y], 0.22f, t[y]); },
                    {n, size * n, size * n});
            want.clear();
            for (const double value : own.before(y))
                want.push_back(rounded(static_cast<float>(value) * 0.22f, dtype));
            EXPECT_EQ(own.values(y), want);

            OpRun sums(GetParam());
            const int a = sums.in_place(dtype, c.rows, c.columns, c.pad);
            const int b = sums.input(dtype, c.rows, c.columns, c.pad);
            sums.run([&](Stream& stream,
                         const std::vector<Tensor>& t) { add(stream, t[a], t[b], t[a]); },
                     {n, 2 * size * n, size * n});
            want = sums.before(a);
            const std::vector<double> added = sums.values(b);
            for (std::size_t i = 0; i < want.size(); ++i)
                want[i] =
                    rounded(static_cast<float>(want[i]) + static_cast<float>(added[i]), dtype);
            EXPECT_EQ(sums.values(a), want);

            OpRun filled(GetParam());
            const int out = filled.output(dtype, c.rows, c.columns, c.pad);
            filled.run(
                [&](Stream& stream, const std::vector<Tensor>& t) { fill(stream, 0.3f, t[out]); },
                {0, 0, size * n});
            EXPECT_EQ(filled.values(out),
                      std::vector<double>(static_cast<std::size_t>(c.rows * c.columns),
                                          rounded(0.3f, dtype)));
        }
    }
}

TEST_P(Elementwise, GatherAndScatterRows) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        const double size = static_cast<double>(size_of(dtype));
        const std::vector<std::int32_t> picked = {0, 2, 3, 7, 96};
        OpRun run(GetParam());
        const int x = run.input(dtype, 97, 65, 2);
        const int rows = run.integers(picked);
        const int out = run.output(dtype, 5, 65, 1);
        run.run([&](Stream& stream,
                    const std::vector<Tensor>& t) { gather_rows(stream, t[x], t[rows], t[out]); },
                {0, 20 + 325 * size, 325 * size});
        std::vector<double> want;
        const std::vector<double> all = run.values(x);
        for (const std::int32_t row : picked)
            want.insert(want.end(), all.begin() + row * 65, all.begin() + (row + 1) * 65);
        EXPECT_EQ(run.values(out), want);

        OpRun back(GetParam());
        const int y = back.input(dtype, 5, 65, 2);
        const int to = back.integers(picked);
        const int spread = back.output(dtype, 98, 65, 1);
        back.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                scatter_rows(stream, t[y], t[to], t[spread]);
            },
            {0, 20 + 325 * size, 98 * 65 * size});
        const std::vector<double> packed = back.values(y);
        want.assign(98 * 65, 0.0);
        for (std::size_t i = 0; i < picked.size(); ++i)
            for (int j = 0; j < 65; ++j)
                want[static_cast<std::size_t>(picked[i] * 65 + j)] = packed[i * 65 + j];
        EXPECT_EQ(back.values(spread), want);
    }
}

// -1 names no row: lists of a fixed length may name fewer.
TEST_P(Elementwise, RowsThatAreNone) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const std::int64_t columns : {65, 64}) {  // odd, and by the widest accesses
            const double size = static_cast<double>(size_of(dtype));
            const double row = size * static_cast<double>(columns);
            const auto row_of = [&](const std::vector<double>& matrix, std::int64_t i) {
                return std::vector<double>(matrix.begin() + i * columns,
                                           matrix.begin() + (i + 1) * columns);
            };
            const std::vector<double> zeros(static_cast<std::size_t>(columns));
            OpRun gather(GetParam());
            const int x = gather.input(dtype, 5, columns, 8);
            const int picked = gather.integers({-1, 4, 0, -1});
            const int out = gather.output(dtype, 4, columns, 16);
            gather.run(
                [&](Stream& stream, const std::vector<Tensor>& t) {
                    gather_rows(stream, t[x], t[picked], t[out]);
                },
                {0, 16 + 4 * row, 4 * row});
            EXPECT_EQ(row_of(gather.values(out), 0), zeros);
            EXPECT_EQ(row_of(gather.values(out), 1), row_of(gather.values(x), 4));
            EXPECT_EQ(row_of(gather.values(out), 2), row_of(gather.values(x), 0));
            EXPECT_EQ(row_of(gather.values(out), 3), zeros);

            OpRun scatter(GetParam());
            const int y = scatter.input(dtype, 4, columns, 8);
            const int to = scatter.integers({1, 6, -1, -1});
            const int spread = scatter.output(dtype, 7, columns, 16);
            scatter.run(
                [&](Stream& stream, const std::vector<Tensor>& t) {
                    scatter_rows(stream, t[y], t[to], t[spread]);
                },
                {0, 16 + 4 * row, 7 * row});
            for (std::int64_t i = 0; i < 7; ++i)
                EXPECT_EQ(row_of(scatter.values(spread), i), i == 1   ? row_of(scatter.values(y), 0)
                                                             : i == 6 ? row_of(scatter.values(y), 1)
                                                                      : zeros);

            OpRun store(GetParam());
            const int z = store.input(dtype, 4, columns, 8);
            const int places = store.integers({3, -1, 0, -1});
            const int cache = store.in_place(dtype, 5, columns, 16);
            store.run(
                [&](Stream& stream, const std::vector<Tensor>& t) {
                    store_rows(stream, t[z], t[places], t[cache]);
                },
                {0, 16 + 4 * row, 4 * row});
            for (std::int64_t i = 0; i < 5; ++i)
                EXPECT_EQ(row_of(store.values(cache), i), i == 3 ? row_of(store.values(z), 0)
                                                          : i == 0
                                                              ? row_of(store.values(z), 2)
                                                              : row_of(store.before(cache), i));
        }
    }
}

TEST_P(Elementwise, CastMany) {
    // More matrices than one launch takes, of every layout: dense and not, of whole vectors and
    // not.
    OpRun run(GetParam());
    struct Item {
        int from, to;
        DType dtype;
        float factor;
    };
    std::vector<Item> items;
    Cost cost;
    for (int i = 0; i < 200; ++i) {
        const std::int64_t rows = i % 50 == 49 ? 130 : i % 5;
        const std::int64_t columns = i % 50 == 49 ? 257 : i % 3 == 0 ? 16 : 5 + i % 7;
        const DType dtype = i % 4 == 3 ? DType::f32 : DType::bf16;
        items.push_back({run.input(DType::f32, rows, columns),
                         run.output(dtype, rows, columns, i % 2 == 0 ? 0 : i % 8), dtype,
                         i % 6 == 0 ? 1.0f : 0.37f * static_cast<float>(i)});
        const auto n = static_cast<double>(rows * columns);
        cost.flops += n;
        cost.bytes_read += 4 * n;
        cost.bytes_written += static_cast<double>(size_of(dtype)) * n;
    }
    run.run(
        [&](Stream& stream, const std::vector<Tensor>& t) {
            std::vector<CastItem> list;
            for (const Item& item : items)
                list.push_back({t[item.from], t[item.to], item.factor});
            cast_many(stream, list);
        },
        cost);
    for (const Item& item : items) {
        std::vector<double> want;
        for (const double value : run.values(item.from))
            want.push_back(rounded(static_cast<float>(value) * item.factor, item.dtype));
        EXPECT_EQ(run.values(item.to), want);
    }
}

TEST_P(Elementwise, ScatterRefusesRowsOutOfOrder) {
    if (GetParam().is_cuda()) return;  // where the host does not see them
    OpRun run(GetParam());
    const int x = run.input(DType::f32, 2, 3);
    const int rows = run.integers({1, 1});
    const int out = run.output(DType::f32, 4, 3);
    EXPECT_THROW(
        run.run([&](Stream& stream,
                    const std::vector<Tensor>& t) { scatter_rows(stream, t[x], t[rows], t[out]); },
                {}),
        Bug);
}

TEST_P(Elementwise, Sums) {
    std::vector<ElementwiseCase> cases = elementwise_cases();
    cases.push_back({1, 4500003, 0});  // more chunks than a card has blocks for
    for (const ElementwiseCase& c : cases) {
        SCOPED_TRACE(shape_of(c));
        const double n = static_cast<double>(c.rows * c.columns);
        for (const bool squares : {false, true}) {
            OpRun run(GetParam());
            const int x = run.input(DType::f32, c.rows, c.columns, c.pad);
            const int result = run.in_place(DType::f32, 1, 1);
            run.run(
                [&](Stream& stream, const std::vector<Tensor>& t) {
                    squares ? add_sum_of_squares(stream, t[x], t[result])
                            : add_sum(stream, t[x], t[result]);
                },
                {(squares ? 2 : 1) * n, 4 * n + 4, 4});
            double want = run.before(result)[0];
            for (const double value : run.values(x))
                want += squares ? value * value : value;
            // Double inside: what is left is the rounding of the result.
            expect_close(run.values(result), {want}, 1.001 * 0x1p-24, 1e-12 * n, "sum");
        }
    }
}

TEST_P(Elementwise, RefusesUnequalShapes) {
    OpRun run(GetParam());
    const int a = run.input(DType::f32, 2, 3);
    const int b = run.output(DType::f32, 3, 2);
    EXPECT_THROW(
        run.run([&](Stream& stream, const std::vector<Tensor>& t) { cast(stream, t[a], t[b]); },
                {}),
        Bug);
}

}  // namespace
}  // namespace garam::testing
