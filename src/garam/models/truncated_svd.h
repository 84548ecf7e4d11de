// The largest singular values of a matrix with their vectors, by subspace iteration from random rows
// (Halko, Martinsson, Tropp: "Finding structure with randomness", SIAM Review 2011, algorithm 4.4).
//
// Products are those of ops/matmul.h in f32, all else in f64 in a fixed order: the same bits again for any
// number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "garam/models/host_products.h"

namespace garam {

struct TruncatedSvd {
    std::vector<double> values;  // [r], falling
    std::vector<float> left;     // [r, m]: rows of unit length; zero where the value is
    std::vector<float> right;    // [r, n]
    std::int64_t rounds = 0;     // products by w and its transpose
};

// w [m, n] f32 in host memory, r at most min(m, n). A block of r rows and half as many again, 16 at least, is
// iterated: so often, or, where `iterations` is nothing, until |w v - s u| of every vector is within the
// rounding of an f32 decomposition, 2^-24 (16 + sqrt(min(m, n))) times the largest value, or
// kMostSvdRounds have been made, which only matrices without a leading part need. `seed` and `number` name
// the random stream.
constexpr std::int64_t kMostSvdRounds = 100;
TruncatedSvd truncated_svd(HostProducts& products, const Tensor& w, std::int64_t r,
                           std::optional<std::int64_t> iterations, std::uint64_t seed,
                           std::uint64_t number);

}  // namespace garam
