// A CPU stream and random tensors for layer tests.
#pragma once

#include <memory>
#include <vector>

#include "garam/core/philox.h"
#include "garam/runtime/stream.h"

namespace garam::testing {

class LayerHarness {
  public:
    LayerHarness()
        : device_(make_cpu_device()), arena(*device_, 64 << 20), stream(*device_, arena, meter_) {}

    // Random values around zero (never all zero), kept as long as the harness.
    Tensor random(const Shape& shape) {
        owned_.emplace_back(*device_, DType::f32, shape, Purpose::scratch);
        Random random(17, owned_.size());
        for (std::int64_t i = 0; i < shape.elements(); ++i)
            owned_.back().tensor.data<float>()[i] = static_cast<float>(0.5 * random.normal());
        return owned_.back().tensor;
    }
    Tensor zeros(const Shape& shape) {
        const Tensor tensor = random(shape);
        std::fill_n(tensor.data<float>(), shape.elements(), 0.0f);
        return tensor;
    }
    template <typename T>
    Tensor of(const std::vector<T>& values) {
        owned_.emplace_back(*device_, dtype_of<T>::value,
                            Shape{static_cast<std::int64_t>(values.size())}, Purpose::batch);
        std::copy(values.begin(), values.end(), owned_.back().tensor.data<T>());
        return owned_.back().tensor;
    }

  private:
    std::unique_ptr<Device> device_;
    Meter meter_;
    std::vector<OwnedTensor> owned_;

  public:
    Arena arena;
    Stream stream;
};

// The gradient of `loss` (a function of all inputs, in double precision) by two-sided differences,
// compared with what the layer computed. The step 1e-4 leaves a truncation error of some 1e-8 of the
// third derivative and a cancellation error of 1e-16 / 1e-4 of the loss: both far below the fp32
// layer's own rounding, for which 1e-4 of the gradient's norm is allowed.
template <typename Loss>
double difference_error(const Tensor& variable, const Tensor& gradient, Loss loss) {
    std::vector<double> values(variable.data<float>(),
                               variable.data<float>() + variable.elements());
    double error = 0;
    double norm = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double kept = values[i];
        values[i] = kept + 1e-4;
        const double above = loss(values);
        values[i] = kept - 1e-4;
        const double below = loss(values);
        values[i] = kept;
        const double want = (above - below) / 2e-4;
        const double got = gradient.data<float>()[i];
        error += (got - want) * (got - want);
        norm += want * want;
    }
    return std::sqrt(error / norm);
}

}  // namespace garam::testing
