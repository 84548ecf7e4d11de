#include "garam/models/truncated_svd.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "garam/core/error.h"
#include "garam/core/parallel.h"
#include "garam/core/philox.h"

namespace garam {
namespace {

constexpr std::int64_t kRowGrain = 4;
constexpr std::int64_t kColumnGrain = 1024;

// Rows end to end.
template <typename T>
struct Rows {
    std::int64_t rows, columns;
    std::vector<T> values;

    Rows(std::int64_t rows_, std::int64_t columns_)
        : rows(rows_), columns(columns_), values(static_cast<std::size_t>(rows_ * columns_)) {}
    T* row(std::int64_t r) { return values.data() + r * columns; }
    const T* row(std::int64_t r) const { return values.data() + r * columns; }
    Tensor tensor() { return {values.data(), DType::f32, {rows, columns}, DeviceKind::cpu}; }
};

double dot(const double* a, const double* b, std::int64_t n) {
    double sums[4] = {};  // of every fourth, so that they do not wait for each other
    std::int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int lane = 0; lane < 4; ++lane)
            sums[lane] += a[i + lane] * b[i + lane];
    for (; i < n; ++i)
        sums[0] += a[i] * b[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Gram and Schmidt, twice. A row that the ones before leave nothing of becomes zero.
void orthonormalise(Rows<double>& x) {
    constexpr double kNothing = 1e-12;
    std::vector<double> lengths(static_cast<std::size_t>(x.rows));
    for (int pass = 0; pass < 2; ++pass) {
        for (std::int64_t r = 0; r < x.rows; ++r)
            lengths[static_cast<std::size_t>(r)] = std::sqrt(dot(x.row(r), x.row(r), x.columns));
        for (std::int64_t r = 0; r < x.rows; ++r) {
            double* const own = x.row(r);
            const double length = std::sqrt(dot(own, own, x.columns));
            const bool vanishes = !(length > kNothing * lengths[static_cast<std::size_t>(r)]);
            for (std::int64_t i = 0; i < x.columns; ++i)
                own[i] = vanishes ? 0 : own[i] / length;
            parallel_for(x.rows - r - 1, kRowGrain, [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t later = r + 1 + begin; later < r + 1 + end; ++later) {
                    double* const other = x.row(later);
                    const double share = dot(own, other, x.columns);
                    for (std::int64_t i = 0; i < x.columns; ++i)
                        other[i] -= share * own[i];
                }
            });
        }
    }
}

template <typename To, typename From>
Rows<To> converted(const Rows<From>& x) {
    Rows<To> out(x.rows, x.columns);
    for (std::size_t i = 0; i < x.values.size(); ++i)
        out.values[i] = static_cast<To>(x.values[i]);
    return out;
}

// a bᵀ
Rows<double> products_of(const Rows<double>& a, const Rows<double>& b) {
    Rows<double> out(a.rows, b.rows);
    parallel_for(a.rows, kRowGrain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r)
            for (std::int64_t s = 0; s < b.rows; ++s)
                out.row(r)[s] = dot(a.row(r), b.row(s), a.columns);
    });
    return out;
}

// The first `count` rows of a x.
Rows<double> mixed(const Rows<double>& a, const Rows<double>& x, std::int64_t count) {
    Rows<double> out(count, x.columns);
    parallel_for(x.columns, kColumnGrain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = 0; r < count; ++r)
            for (std::int64_t s = 0; s < x.rows; ++s) {
                const double share = a.row(r)[s];
                for (std::int64_t i = begin; i < end; ++i)
                    out.row(r)[i] += share * x.row(s)[i];
            }
    });
    return out;
}

// x = leftᵀ diag(values) right of a small square matrix: its rows are turned in pairs until each is orthogonal
// to all others (Hestenes 1958).
struct SmallSvd {
    std::vector<double> values;
    Rows<double> left, right;
};
SmallSvd small_svd(Rows<double> x) {
    constexpr double kOrthogonal = 1e-15;
    constexpr int kMostSweeps = 60;
    const std::int64_t n = x.rows;
    Rows<double> turns(n, n);
    for (std::int64_t r = 0; r < n; ++r)
        turns.row(r)[r] = 1;
    bool turned = true;
    for (int sweep = 0; turned && sweep < kMostSweeps; ++sweep) {
        turned = false;
        for (std::int64_t p = 0; p < n; ++p) {
            for (std::int64_t q = p + 1; q < n; ++q) {
                const double pp = dot(x.row(p), x.row(p), n);
                const double qq = dot(x.row(q), x.row(q), n);
                const double pq = dot(x.row(p), x.row(q), n);
                if (!(std::abs(pq) > kOrthogonal * std::sqrt(pp * qq))) continue;
                turned = true;
                const double zeta = (qq - pp) / (2 * pq);
                const double tangent =
                    std::copysign(1, zeta) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
                const double cosine = 1 / std::sqrt(1 + tangent * tangent);
                const double sine = cosine * tangent;
                for (Rows<double>* const rows : {&x, &turns}) {
                    double* const first = rows->row(p);
                    double* const second = rows->row(q);
                    for (std::int64_t i = 0; i < n; ++i) {
                        const double before = first[i];
                        first[i] = cosine * before - sine * second[i];
                        second[i] = sine * before + cosine * second[i];
                    }
                }
            }
        }
    }
    std::vector<double> lengths;
    for (std::int64_t r = 0; r < n; ++r)
        lengths.push_back(std::sqrt(dot(x.row(r), x.row(r), n)));
    std::vector<std::int64_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        return lengths[static_cast<std::size_t>(a)] > lengths[static_cast<std::size_t>(b)];
    });
    SmallSvd out{{}, Rows<double>(n, n), Rows<double>(n, n)};
    for (std::int64_t r = 0; r < n; ++r) {
        const std::int64_t from = order[static_cast<std::size_t>(r)];
        const double value = lengths[static_cast<std::size_t>(from)];
        out.values.push_back(value);
        for (std::int64_t i = 0; value > 0 && i < n; ++i) {
            out.left.row(r)[i] = turns.row(from)[i];
            out.right.row(r)[i] = x.row(from)[i] / value;
        }
    }
    return out;
}

// The largest |w v - s u|, where y are the right basis' rows times wᵀ.
double residual(const SmallSvd& svd, const Rows<double>& left, const Rows<double>& y,
                std::int64_t r) {
    const Rows<double> wv = mixed(svd.right, y, r);
    const Rows<double> u = mixed(svd.left, left, r);
    double largest = 0;
    for (std::int64_t j = 0; j < r; ++j) {
        double squares = 0;
        for (std::int64_t i = 0; i < y.columns; ++i) {
            const double off = wv.row(j)[i] - svd.values[static_cast<std::size_t>(j)] * u.row(j)[i];
            squares += off * off;
        }
        largest = std::max(largest, std::sqrt(squares));
    }
    return largest;
}

}  // namespace

TruncatedSvd truncated_svd(HostProducts& products, const Tensor& w, std::int64_t r,
                           std::optional<std::int64_t> iterations, std::uint64_t seed,
                           std::uint64_t number) {
    const std::int64_t m = w.extent(0);
    const std::int64_t n = w.extent(1);
    const std::int64_t least = std::min(m, n);
    GARAM_CHECK(r >= 1 && r <= least, "rank of a decomposition");
    const std::int64_t block = std::min(least, r + std::max<std::int64_t>(16, r / 2));
    const double tolerance = 0x1p-24 * (16 + std::sqrt(static_cast<double>(least)));
    // Looking costs about as much as a round.
    constexpr std::int64_t kLookEvery = 4;

    Rows<float> right(block, n);
    Random random(seed, number);
    for (float& value : right.values)
        value = static_cast<float>(random.normal());
    Rows<float> y32(block, m);
    Rows<float> z32(block, n);
    Rows<double> left(block, m);
    Rows<double> basis(block, n);
    SmallSvd svd{{}, Rows<double>(0, 0), Rows<double>(0, 0)};
    const std::int64_t most = iterations ? *iterations + 1 : kMostSvdRounds;
    TruncatedSvd out;
    for (;;) {
        products.matmul(right.tensor(), w, y32.tensor(), {.transpose_b = true});
        Rows<double> y = converted<double>(y32);
        if (!iterations && out.rounds > 0 && out.rounds % kLookEvery == 0 &&
            residual(svd, left, y, r) <= tolerance * svd.values[0])
            break;
        orthonormalise(y);
        left = std::move(y);
        y32 = converted<float>(left);
        products.matmul(y32.tensor(), w, z32.tensor());
        const Rows<double> z = converted<double>(z32);
        basis = z;
        orthonormalise(basis);
        right = converted<float>(basis);
        ++out.rounds;
        // A block of all rows or columns has the whole matrix in it.
        const bool last = out.rounds == most || (!iterations && block == least);
        if (last || out.rounds % kLookEvery == 0) svd = small_svd(products_of(z, basis));
        if (last) break;
    }
    out.values.assign(svd.values.begin(), svd.values.begin() + r);
    out.left = converted<float>(mixed(svd.left, left, r)).values;
    out.right = converted<float>(mixed(svd.right, basis, r)).values;
    return out;
}

}  // namespace garam
