#include "garam/models/loftq.h"

#include <vector>

#include "garam/models/four_bit_base.h"
#include "garam/models/pissa.h"

namespace garam {

void loftq_factors(HostProducts& products, const StoredTensor& weight,
                   const BaseQuantization& quantize, double scaling, std::uint64_t seed,
                   std::uint64_t number, const Tensor& A, const Tensor& B) {
    const auto elements = static_cast<std::size_t>(weight.shape.elements());
    std::vector<float> residual(elements);
    read_tensor(weight, residual.data());
    {
        std::vector<float> seen(elements);
        read_tensor(quantised(weight, quantize), seen.data());
        for (std::size_t i = 0; i < elements; ++i)
            residual[i] -= seen[i];
    }
    const Tensor w(residual.data(), DType::f32, weight.shape, DeviceKind::cpu);
    pissa_factors(products, w, scaling, kLoftqRounds, DType::f32, seed, number, A, B);
}

}  // namespace garam
