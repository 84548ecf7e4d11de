#include "garam/models/loftq.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "garam/core/philox.h"
#include "garam/models/four_bit_base.h"
#include "garam/models/truncated_svd.h"

namespace garam {
namespace {

double squares(const std::vector<float>& values) {
    double sum = 0;
    for (const float value : values)
        sum += static_cast<double>(value) * static_cast<double>(value);
    return sum;
}

// What is left of W after the quantised base and the adapter is what the best matrix of that rank leaves: the
// squares of W - Q less those of its largest singular values.
TEST(Loftq, TheAdapterTakesUpWhatQuantisingLost) {
    const Shape shape{96, 160};
    constexpr std::int64_t kRank = 8;
    std::vector<float> values;
    Random random(3, 0);
    for (std::int64_t i = 0; i < shape.elements(); ++i)
        values.push_back(static_cast<float>(random.normal()));
    StoredTensor weight;
    weight.name = "model.layers.0.self_attn.q_proj.weight";
    weight.shape = shape;
    weight.data = reinterpret_cast<const std::byte*>(values.data());
    weight.bytes = values.size() * sizeof(float);
    BaseQuantization quantize;
    quantize.format = QuantFormat::nf4;

    std::vector<float> seen(values.size());
    read_tensor(quantised(weight, quantize), seen.data());
    std::vector<float> lost(values.size());
    for (std::size_t i = 0; i < lost.size(); ++i)
        lost[i] = values[i] - seen[i];
    HostProducts products;
    const Tensor w(lost.data(), DType::f32, shape, DeviceKind::cpu);
    const TruncatedSvd svd = truncated_svd(products, w, kRank, std::nullopt, 1, 1);
    double leading = 0;
    for (const double value : svd.values)
        leading += value * value;

    for (const double scaling : {1.0, 2.0}) {
        std::vector<float> a(kRank * 160), b(96 * kRank);
        loftq_factors(products, weight, quantize, scaling, 5, 0,
                      Tensor(a.data(), DType::f32, {kRank, 160}, DeviceKind::cpu),
                      Tensor(b.data(), DType::f32, {96, kRank}, DeviceKind::cpu));
        std::vector<float> left = lost;
        for (std::size_t o = 0; o < 96; ++o)
            for (std::size_t i = 0; i < 160; ++i)
                for (std::size_t k = 0; k < kRank; ++k)
                    left[o * 160 + i] -=
                        static_cast<float>(scaling) * b[o * kRank + k] * a[k * 160 + i];
        const double best = squares(lost) - leading;
        EXPECT_LT(squares(left), squares(lost) - 0.9 * leading);
        EXPECT_GT(squares(left), best * (1 - 1e-4));
        EXPECT_LT(squares(left), best * 1.01);
    }
}

}  // namespace
}  // namespace garam
