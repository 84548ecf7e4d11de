#include "garam/ops/embedding_noise.h"

#include <cmath>

#include "ops/op_run.h"

namespace garam::testing {
namespace {

class EmbeddingNoise : public OpTest {};
GARAM_FOR_ALL_PROFILES(EmbeddingNoise);

constexpr std::uint64_t kSeed = 0x123456789abcdef0u;

// The formula of the header, in the precision of the op.
float noise_of(std::uint32_t step, std::int32_t position, std::int64_t sample, std::int64_t column,
               float magnitude) {
    const auto s = static_cast<std::uint64_t>(sample);
    const PhiloxWords words =
        philox<7>({static_cast<std::uint32_t>(column / 4), static_cast<std::uint32_t>(position),
                   static_cast<std::uint32_t>(s), static_cast<std::uint32_t>(s >> 32) ^ step},
                  kSeed ^ 0x6e656674756e6500u);
    return (2 * uniform01(words[static_cast<std::size_t>(column % 4)]) - 1) * magnitude;
}

struct Samples {
    std::vector<std::int32_t> cu = {0};
    std::vector<std::int32_t> positions;
    std::vector<std::int64_t> rows;

    void add(std::int32_t length, std::int64_t row) {
        for (std::int32_t p = 0; p < length; ++p) {
            positions.push_back(p);
            rows.push_back(row);
        }
        cu.push_back(static_cast<std::int32_t>(rows.size()));
    }
    auto tokens() const { return static_cast<std::int64_t>(rows.size()); }
};

Cost cost_of(const Samples& samples, std::int64_t columns, DType dtype) {
    const double elements = static_cast<double>(samples.tokens() * columns);
    const double bytes = elements * static_cast<double>(size_of(dtype));
    return {2 * elements,
            bytes + 12.0 * static_cast<double>(samples.tokens()) +
                4.0 * static_cast<double>(samples.cu.size()),
            bytes};
}

std::vector<double> noisy(const DeviceProfile& profile, const Samples& samples, DType dtype,
                          std::int64_t columns, std::int64_t pad, float alpha, std::int32_t step,
                          std::vector<double>* before) {
    OpRun run(profile);
    const int x = run.in_place(dtype, samples.tokens(), columns, pad);
    if (before == nullptr)
        run.set(x, std::vector<double>(static_cast<std::size_t>(samples.tokens() * columns), 0.0));
    const int positions = run.integers(samples.positions);
    const int rows = run.integers64(samples.rows);
    const int steps = run.integers({step});
    const int cu = run.integers(samples.cu);
    run.run(
        [&](Stream& stream, const std::vector<Tensor>& t) {
            embedding_noise(stream, t[x], alpha, {kSeed, t[steps], 7, t[positions], t[rows]},
                            t[cu]);
        },
        cost_of(samples, columns, dtype));
    if (before != nullptr) *before = run.before(x);
    return run.values(x);
}

TEST_P(EmbeddingNoise, IsTheFormula) {
    Samples samples;
    samples.add(3, 5);
    samples.add(0, 9);  // empty, as those that fill up a shape
    samples.add(1, std::int64_t{7} << 33);
    samples.add(30, 2);
    samples.add(0, 1);
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const auto& [columns, pad] :
             {std::pair<std::int64_t, std::int64_t>{1, 0}, {63, 1}, {576, 8}, {4100, 4}}) {
            SCOPED_TRACE(columns);
            std::vector<double> before;
            const auto got = noisy(GetParam(), samples, dtype, columns, pad, 5.0f, 17, &before);
            std::vector<double> want;
            for (std::size_t s = 0; s + 1 < samples.cu.size(); ++s) {
                const std::int64_t length = samples.cu[s + 1] - samples.cu[s];
                const float magnitude = 5.0f / std::sqrt(static_cast<float>(length * columns));
                for (std::int32_t t = samples.cu[s]; t < samples.cu[s + 1]; ++t) {
                    const auto token = static_cast<std::size_t>(t);
                    for (std::int64_t c = 0; c < columns; ++c) {
                        const float sum = static_cast<float>(before[want.size()]) +
                                          noise_of(17, samples.positions[token],
                                                   samples.rows[token], c, magnitude);
                        want.push_back(dtype == DType::f32 ? static_cast<double>(sum)
                                                           : static_cast<double>(static_cast<float>(
                                                                 bfloat16(sum))));
                    }
                }
            }
            EXPECT_EQ(got, want);
        }
    }
}

// Uniform in +-alpha / sqrt(L d): the variance is a third of the bound's square.
TEST_P(EmbeddingNoise, Spread) {
    constexpr std::int64_t kTokens = 200, kColumns = 512;
    Samples samples;
    samples.add(kTokens, 3);
    const auto noise = noisy(GetParam(), samples, DType::f32, kColumns, 0, 10.0f, 0, nullptr);
    const double bound = 10.0 / std::sqrt(static_cast<double>(kTokens * kColumns));
    double sum = 0, squares = 0, largest = 0;
    for (const double value : noise) {
        sum += value;
        squares += value * value;
        largest = std::max(largest, std::abs(value));
    }
    const double n = kTokens * kColumns;
    EXPECT_LE(largest, bound * (1 + 1e-6));
    EXPECT_GT(largest, 0.999 * bound);
    EXPECT_NEAR(sum / n, 0, 5 * bound / std::sqrt(3 * n));
    EXPECT_NEAR(squares / n, bound * bound / 3, 0.02 * bound * bound);
}

// However the batch is cut, a sample has its noise; another step or sample has another.
TEST_P(EmbeddingNoise, BelongsToTheSample) {
    constexpr std::int64_t kColumns = 36;
    const auto of = [&](const std::vector<std::int64_t>& rows, std::int32_t step) {
        Samples samples;
        for (const std::int64_t row : rows)
            samples.add(4, row);
        return noisy(GetParam(), samples, DType::f32, kColumns, 0, 1.0f, step, nullptr);
    };
    const auto part = [&](const std::vector<double>& all, std::ptrdiff_t sample) {
        return std::vector<double>(all.begin() + sample * 4 * kColumns,
                                   all.begin() + (sample + 1) * 4 * kColumns);
    };
    const auto together = of({8, 3, 5}, 2);
    EXPECT_EQ(part(together, 1), of({3}, 2));
    EXPECT_NE(part(together, 0), part(together, 1));
    EXPECT_NE(of({3}, 3), of({3}, 2));
}

}  // namespace
}  // namespace garam::testing
