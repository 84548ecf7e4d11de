// The processor with its stream, and tensors filled with numbers of an ordinary size, for benchmarks of ops.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "garam/core/philox.h"
#include "garam/runtime/stream.h"

namespace garam::bench {

class CpuTensors {
  public:
    explicit CpuTensors(std::int64_t scratch)
        : device_(make_cpu_device()),
          arena_(*device_, scratch),
          stream_(*device_, arena_, meter_) {}
    Stream& stream() { return stream_; }
    Meter& meter() { return meter_; }

    Tensor floats(DType dtype, std::int64_t rows, std::int64_t columns) {
        const Tensor x = allocate(dtype, {rows, columns});
        Random random(owned_.size());
        for (std::int64_t i = 0; i < x.elements(); ++i) {
            const auto value = static_cast<float>(random.uniform(-1, 1));
            if (dtype == DType::f32)
                x.data<float>()[i] = value;
            else
                x.data<bfloat16>()[i] = bfloat16(value);
        }
        return x;
    }

  protected:
    Tensor allocate(DType dtype, const Shape& shape) {
        owned_.emplace_back(*device_, dtype, shape, Purpose::scratch);
        return owned_.back().tensor;
    }

  private:
    std::unique_ptr<Device> device_;
    Arena arena_;
    Meter meter_;
    Stream stream_;
    std::vector<OwnedTensor> owned_;
};

}  // namespace garam::bench
