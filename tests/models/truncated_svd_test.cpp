#include "garam/models/truncated_svd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "garam/core/parallel.h"
#include "garam/core/philox.h"

namespace garam {
namespace {

using Matrix = std::vector<double>;  // row-major

double product(const double* a, const double* b, std::int64_t n) {
    return std::inner_product(a, a + n, b, 0.0);
}

// [rows, n]: orthonormal rows.
Matrix orthonormal(std::int64_t rows, std::int64_t n, std::uint64_t seed) {
    Random random(seed);
    Matrix q(static_cast<std::size_t>(rows * n));
    for (double& value : q)
        value = random.normal();
    for (int pass = 0; pass < 2; ++pass) {
        for (std::int64_t r = 0; r < rows; ++r) {
            double* const own = q.data() + r * n;
            for (std::int64_t before = 0; before < r; ++before) {
                const double* const other = q.data() + before * n;
                const double share = product(own, other, n);
                for (std::int64_t i = 0; i < n; ++i)
                    own[i] -= share * other[i];
            }
            const double length = std::sqrt(product(own, own, n));
            for (std::int64_t i = 0; i < n; ++i)
                own[i] /= length;
        }
    }
    return q;
}

// A matrix of factors that are known: uᵀ diag(values) v.
struct Known {
    std::int64_t m, n;
    std::vector<double> values;
    Matrix u, v;
    std::vector<float> w;

    Known(std::int64_t m_, std::int64_t n_, std::vector<double> values_)
        : m(m_),
          n(n_),
          values(std::move(values_)),
          u(orthonormal(static_cast<std::int64_t>(values.size()), m, 1)),
          v(orthonormal(static_cast<std::int64_t>(values.size()), n, 2)) {
        for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j) {
                double sum = 0;
                for (std::size_t k = 0; k < values.size(); ++k)
                    sum += u[k * static_cast<std::size_t>(m) + static_cast<std::size_t>(i)] *
                           values[k] *
                           v[k * static_cast<std::size_t>(n) + static_cast<std::size_t>(j)];
                w.push_back(static_cast<float>(sum));
            }
    }
    TruncatedSvd decompose(std::int64_t r, std::optional<std::int64_t> iterations = {}) {
        HostProducts products;
        return truncated_svd(products, Tensor(w.data(), DType::f32, {m, n}, DeviceKind::cpu), r,
                             iterations, 5, 0);
    }
    // |w v - s u| and |wᵀ u - s v| of one triple.
    double residual(const TruncatedSvd& svd, std::int64_t k) const {
        const float* const left = svd.left.data() + k * m;
        const float* const right = svd.right.data() + k * n;
        const double value = svd.values[static_cast<std::size_t>(k)];
        double rows = 0;
        Matrix columns(static_cast<std::size_t>(n));
        for (std::int64_t i = 0; i < m; ++i) {
            double sum = 0;
            for (std::int64_t j = 0; j < n; ++j) {
                const double element = w[static_cast<std::size_t>(i * n + j)];
                sum += element * static_cast<double>(right[j]);
                columns[static_cast<std::size_t>(j)] += element * static_cast<double>(left[i]);
            }
            rows += std::pow(sum - value * static_cast<double>(left[i]), 2);
        }
        double others = 0;
        for (std::int64_t j = 0; j < n; ++j)
            others += std::pow(
                columns[static_cast<std::size_t>(j)] - value * static_cast<double>(right[j]), 2);
        return std::sqrt(std::max(rows, others));
    }
};

std::vector<double> falling(std::size_t count, double factor) {
    std::vector<double> values;
    for (std::size_t k = 0; k < count; ++k)
        values.push_back(3 * std::pow(factor, static_cast<double>(k)));
    return values;
}

// f32 elements of w alone move values by their rounding; vectors by that over the gap between values.
TEST(TruncatedSvd, FindsFactorsThatAreKnown) {
    for (const auto& [m, n] : {std::pair{90, 150}, std::pair{150, 90}, std::pair{12, 40}}) {
        const auto all = static_cast<std::size_t>(std::min(m, n));
        Known known(m, n, falling(all, 0.9));
        const TruncatedSvd svd = known.decompose(6);
        ASSERT_EQ(svd.values.size(), 6u);
        EXPECT_LT(svd.rounds, kMostSvdRounds);
        for (std::int64_t k = 0; k < 6; ++k) {
            const auto at = static_cast<std::size_t>(k);
            EXPECT_NEAR(svd.values[at], known.values[at], 3e-6);
            EXPECT_LT(known.residual(svd, k), 3 * 0x1p-24 * (16 + std::sqrt(all)) * 2);
            double left = 0;
            double right = 0;
            for (std::int64_t i = 0; i < m; ++i)
                left += static_cast<double>(svd.left[static_cast<std::size_t>(k * m + i)]) *
                        known.u[static_cast<std::size_t>(k * m + i)];
            for (std::int64_t j = 0; j < n; ++j)
                right += static_cast<double>(svd.right[static_cast<std::size_t>(k * n + j)]) *
                         known.v[static_cast<std::size_t>(k * n + j)];
            EXPECT_NEAR(std::abs(left), 1, 1e-6);
            EXPECT_NEAR(left, right, 1e-6);  // of one sign
        }
    }
}

// A tail that hardly falls: what a few rounds cannot tell apart, they still take from the right subspace.
TEST(TruncatedSvd, FewRoundsAreNearAndMoreAreNearer) {
    Known known(120, 100, falling(100, 0.985));
    double before = 1e9;
    for (const std::int64_t rounds : {0, 2, 8}) {
        const TruncatedSvd svd = known.decompose(4, rounds);
        EXPECT_EQ(svd.rounds, rounds + 1);
        const double off = std::abs(svd.values[0] - known.values[0]);
        EXPECT_LE(off, before + 1e-6);
        EXPECT_LT(off, 0.5);
        before = off;
    }
    EXPECT_NEAR(known.decompose(4).values[3], known.values[3], 1e-5);
}

TEST(TruncatedSvd, LowRankAndZeroMatrices) {
    Known low(70, 50, {2, 1});
    const TruncatedSvd svd = low.decompose(5);
    EXPECT_NEAR(svd.values[0], 2, 1e-6);
    EXPECT_NEAR(svd.values[1], 1, 1e-6);
    for (std::size_t k = 2; k < 5; ++k)
        EXPECT_LT(svd.values[k], 1e-6);
    Known zero(40, 60, {0});
    const TruncatedSvd nothing = zero.decompose(3);
    for (const float value : nothing.left)
        EXPECT_EQ(value, 0);
    EXPECT_EQ(nothing.values, (std::vector<double>{0, 0, 0}));
}

TEST(TruncatedSvd, IsTheSameForAnyNumberOfThreads) {
    Known known(200, 300, falling(200, 0.97));
    const int threads = num_threads();
    set_num_threads(1);
    const TruncatedSvd one = known.decompose(20);
    set_num_threads(3);
    const TruncatedSvd three = known.decompose(20);
    set_num_threads(threads);
    EXPECT_EQ(one.left, three.left);
    EXPECT_EQ(one.right, three.right);
    EXPECT_EQ(one.values, three.values);
}

}  // namespace
}  // namespace garam
