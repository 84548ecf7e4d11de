// A stream of the processor or a card, and random tensors for layer tests. Tensors may lie on a card: read
// them with values().
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "garam/core/philox.h"
#include "garam/runtime/transfer.h"
#include "testing/cards.h"

namespace garam::testing {

class LayerHarness {
  public:
    explicit LayerHarness(const DeviceProfile& profile)
        : device_(make_device(profile)),
          arena(*device_, 128 << 20),
          stream(*device_, arena, meter_) {}

    // Random values around zero (never all zero), kept as long as the harness.
    Tensor random(const Shape& shape) {
        Random random(17, owned_.size() + 1);
        std::vector<float> values(static_cast<std::size_t>(shape.elements()));
        for (float& value : values)
            value = static_cast<float>(0.5 * random.normal());
        return keep(values, shape);
    }
    Tensor zeros(const Shape& shape) { return all(0, shape); }
    Tensor all(float value, const Shape& shape) {
        return keep(std::vector<float>(static_cast<std::size_t>(shape.elements()), value), shape);
    }
    template <typename T>
    Tensor of(const std::vector<T>& values) {
        return keep(values, Shape{static_cast<std::int64_t>(values.size())});
    }
    Tensor copy_of(const Tensor& tensor) { return keep(floats(tensor), tensor.shape()); }

    std::vector<float> floats(const Tensor& tensor) {
        std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
        copy_to_host(stream, tensor, values.data());
        return values;
    }
    std::vector<double> values(const Tensor& tensor) {
        const std::vector<float> single = floats(tensor);
        return {single.begin(), single.end()};
    }

  private:
    template <typename T>
    Tensor keep(const std::vector<T>& values, const Shape& shape) {
        owned_.emplace_back(*device_, dtype_of<T>::value, shape, Purpose::scratch);
        copy_to_device(stream, values.data(), owned_.back().tensor);
        stream.synchronize();
        return owned_.back().tensor;
    }

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
double difference_error(std::vector<double> values, const std::vector<double>& gradient,
                        Loss loss) {
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
        error += (gradient[i] - want) * (gradient[i] - want);
        norm += want * want;
    }
    return std::sqrt(error / norm);
}

}  // namespace garam::testing
