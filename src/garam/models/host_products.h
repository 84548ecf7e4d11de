// Matrix products of host memory, for work before the first step whatever the model's device is.
#pragma once

#include <memory>
#include <optional>

#include "garam/ops/matmul.h"
#include "garam/runtime/device.h"

namespace garam {

class HostProducts {
  public:
    explicit HostProducts(const DeviceProfile& profile = detect_cpu_profile());
    // ops/matmul.h; f32 tensors of the host. Takes what scratch it needs and keeps it.
    void matmul(const Tensor& a, const Tensor& b, const Tensor& c,
                const MatmulOptions& options = {});

  private:
    std::unique_ptr<Device> cpu_;
    std::optional<Arena> arena_;
    Meter meter_;
};

}  // namespace garam
