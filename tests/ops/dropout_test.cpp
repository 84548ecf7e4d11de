#include "garam/ops/dropout.h"

#include <cmath>

#include "ops/dropout_cases.h"
#include "ops/op_run.h"

namespace garam::testing {
namespace {

class Dropout : public OpTest {};
GARAM_FOR_ALL_PROFILES(Dropout);

const DropoutPlace kPlace{0x123456789abcdef0u, 17, 211};

DropoutKey key_of(const DropoutPlace& place, const Tensor& step, const Tensor& positions,
                  const Tensor& samples) {
    return {place.seed, step, place.module, positions, samples};
}

TEST_P(Dropout, MaskIsTheFormula) {
    for (const DropoutCase& c : dropout_cases()) {
        for (const bool accumulate : {false, true}) {
            SCOPED_TRACE(std::to_string(c.tokens) + "x" + std::to_string(c.columns) +
                         (accumulate ? " accumulate" : ""));
            OpRun run(GetParam());
            const int x = run.input(c.dtype, c.tokens, c.columns, c.pad);
            std::vector<std::int32_t> position;
            std::vector<std::int64_t> sample;
            for (std::int64_t t = 0; t < c.tokens; ++t) {
                position.push_back(static_cast<std::int32_t>(t % 20));
                sample.push_back((t / 20 + 5) << (t % 2 == 0 ? 0 : 33));  // beyond 32 bits too
            }
            const int positions = run.integers(position);
            const int samples = run.integers64(sample);
            const int step = run.integers({static_cast<std::int32_t>(kPlace.step)});
            const int y = accumulate ? run.in_place(c.dtype, c.tokens, c.columns, c.pad + 8)
                                     : run.output(c.dtype, c.tokens, c.columns, c.pad + 8);
            run.run(
                [&](Stream& stream, const std::vector<Tensor>& t) {
                    dropout(stream, t[x], c.p, key_of(kPlace, t[step], t[positions], t[samples]),
                            t[y], accumulate);
                },
                accumulate ? c.accumulating : c.cost);
            const std::vector<double> in = run.values(x), got = run.values(y), held = run.before(y);
            std::vector<double> want;
            for (std::int64_t t = 0; t < c.tokens; ++t) {
                for (std::int64_t i = 0; i < c.columns; ++i) {
                    const std::size_t at = static_cast<std::size_t>(t * c.columns + i);
                    const bool keep = dropout_keeps(kPlace, position[t], sample[t], i, c.p);
                    want.push_back((keep ? in[at] * dropout_scale(c.p) : 0.0) +
                                   (accumulate ? held[at] : 0.0));
                    if (!accumulate && !keep) {
                        ASSERT_EQ(got[at], 0);
                    }
                }
            }
            // The scale and the product round in fp32, the result in the dtype.
            expect_close(got, want, 1.01 * unit_of(c.dtype) + 3 * 0x1p-24, accumulate ? 1e-6 : 0,
                         "y");
        }
    }
}

TEST_P(Dropout, KeepRate) {
    constexpr std::int64_t kTokens = 300, kColumns = 576;
    for (const float p : {1e-6f, 0.05f, 0.5f, 0.999999f}) {
        OpRun run(GetParam());
        const int x = run.in_place(DType::f32, kTokens, kColumns);
        run.set(x, std::vector<double>(kTokens * kColumns, 1.0));
        std::vector<std::int32_t> position;
        for (std::int64_t t = 0; t < kTokens; ++t)
            position.push_back(static_cast<std::int32_t>(t));
        const int positions = run.integers(position);
        const int samples = run.integers64(std::vector<std::int64_t>(kTokens, 3));
        const int step = run.integers({static_cast<std::int32_t>(kPlace.step)});
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                dropout(stream, t[x], p, key_of(kPlace, t[step], t[positions], t[samples]), t[x],
                        false);
            },
            {2.0 * kTokens * kColumns, 4.0 * kTokens * kColumns + 12.0 * kTokens,
             4.0 * kTokens * kColumns});
        double kept = 0, sum = 0;
        for (const double y : run.values(x)) {
            kept += y != 0;
            sum += y;
        }
        const double n = kTokens * kColumns;
        const double q = dropout_share(p) / 65536;
        const double deviation = 5 * std::sqrt(n * q * (1 - q));
        EXPECT_NEAR(kept, n * (1 - q), deviation);
        EXPECT_NEAR(sum, n, deviation / (1 - q));
        EXPECT_GT(kept, 0);
        EXPECT_LT(kept, n);
    }
}

// The same tokens in another order of rows, among others, are masked alike; another step, module,
// seed or sample is not.
TEST_P(Dropout, MaskBelongsToTheTokenNotTheRow) {
    const std::int64_t columns = 100;
    const auto masks = [&](const std::vector<std::int32_t>& position,
                           const std::vector<std::int64_t>& sample, const DropoutPlace& place) {
        OpRun run(GetParam());
        const std::int64_t tokens = static_cast<std::int64_t>(position.size());
        const int x = run.in_place(DType::f32, tokens, columns);
        run.set(x, std::vector<double>(static_cast<std::size_t>(tokens * columns), 1.0));
        const int positions = run.integers(position);
        const int samples = run.integers64(sample);
        const int step = run.integers({static_cast<std::int32_t>(place.step)});
        const double elements = static_cast<double>(tokens * columns);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                dropout(stream, t[x], 0.5f, key_of(place, t[step], t[positions], t[samples]), t[x],
                        false);
            },
            {2 * elements, 4 * elements + 12.0 * static_cast<double>(tokens), 4 * elements});
        std::vector<std::vector<double>> rows;
        const std::vector<double> y = run.values(x);
        for (std::int64_t t = 0; t < tokens; ++t)
            rows.emplace_back(y.begin() + t * columns, y.begin() + (t + 1) * columns);
        return rows;
    };
    const auto a = masks({0, 1, 2, 0, 1}, {4, 4, 4, 9, 9}, kPlace);
    const auto b = masks({1, 0, 2, 1}, {9, 4, 4, 4}, kPlace);
    EXPECT_EQ(a[4], b[0]);
    EXPECT_EQ(a[0], b[1]);
    EXPECT_EQ(a[2], b[2]);
    EXPECT_EQ(a[1], b[3]);
    EXPECT_NE(a[0], a[3]);
    EXPECT_NE(a[0], a[1]);
    for (const DropoutPlace& other : {DropoutPlace{kPlace.seed + 1, kPlace.step, kPlace.module},
                                      DropoutPlace{kPlace.seed, kPlace.step + 1, kPlace.module},
                                      DropoutPlace{kPlace.seed, kPlace.step, kPlace.module + 1}})
        EXPECT_NE(masks({0}, {4}, other)[0], a[0]);
}

}  // namespace
}  // namespace garam::testing
