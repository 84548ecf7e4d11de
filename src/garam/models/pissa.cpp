#include "garam/models/pissa.h"

#include <algorithm>
#include <cmath>

#include "garam/models/truncated_svd.h"

namespace garam {

void pissa_factors(HostProducts& products, const Tensor& w, double scaling,
                   std::optional<std::int64_t> iterations, DType place, std::uint64_t seed,
                   std::uint64_t number, const Tensor& A, const Tensor& B) {
    const std::int64_t r = A.extent(0);
    const std::int64_t in = A.extent(1);
    const std::int64_t out = B.extent(0);
    const TruncatedSvd svd = truncated_svd(products, w, r, iterations, seed, number);
    const auto rounded = [&](double value) {
        const auto single = static_cast<float>(value);
        return place == DType::f32 ? single : static_cast<float>(bfloat16(single));
    };
    for (std::int64_t k = 0; k < r; ++k) {
        const double root = std::sqrt(svd.values[static_cast<std::size_t>(k)] / scaling);
        const float* const right = svd.right.data() + k * in;
        const float* const left = svd.left.data() + k * out;
        for (std::int64_t i = 0; i < in; ++i)
            A.data<float>()[k * in + i] = rounded(root * static_cast<double>(right[i]));
        for (std::int64_t o = 0; o < out; ++o)
            B.data<float>()[o * r + k] = rounded(root * static_cast<double>(left[o]));
    }
}

void take_out(HostProducts& products, const Tensor& w, double scaling, const Tensor& A,
              const Tensor& B) {
    products.matmul(B, A, w, {.alpha = static_cast<float>(-scaling), .accumulate = true});
}

LoraSettings doubled(LoraSettings settings) {
    const double alpha = settings.use_rslora ? std::sqrt(2.0) : 2;
    settings.r *= 2;
    settings.lora_alpha *= alpha;
    for (auto& [pattern, rank] : settings.rank_pattern)
        rank *= 2;
    for (auto& [pattern, own] : settings.alpha_pattern)
        own *= alpha;
    return settings;
}

std::vector<float> doubled_a(const Tensor& A, const Tensor& A0) {
    std::vector<float> out(A.data<float>(), A.data<float>() + A.elements());
    out.insert(out.end(), A0.data<float>(), A0.data<float>() + A0.elements());
    return out;
}

std::vector<float> doubled_b(const Tensor& B, const Tensor& B0) {
    const std::int64_t r = B.extent(1);
    std::vector<float> out;
    out.reserve(static_cast<std::size_t>(2 * B.elements()));
    for (std::int64_t row = 0; row < B.extent(0); ++row) {
        const float* const now = B.data<float>() + row * r;
        const float* const before = B0.data<float>() + row * r;
        out.insert(out.end(), now, now + r);
        std::transform(before, before + r, std::back_inserter(out),
                       [](float value) { return -value; });
    }
    return out;
}

}  // namespace garam
