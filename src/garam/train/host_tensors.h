// Named tensors as files need them: in host memory. Those on a card are copied.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "garam/runtime/transfer.h"

namespace garam {

class HostTensors {
  public:
    // Waits for all work of the device: the tensors are what it leaves.
    explicit HostTensors(Device& device) : setup_(device) { device.synchronize_all(); }
    HostTensors(const HostTensors&) = delete;
    HostTensors& operator=(const HostTensors&) = delete;

    // `read`: with the tensor's values.
    void add(const std::string& name, const Tensor& tensor, bool read = true) {
        named_.emplace_back(name, copies_.emplace_back(setup_.stream, tensor, read).tensor());
    }
    const std::vector<std::pair<std::string, Tensor>>& named() const { return named_; }
    // Puts all of them back where they came from.
    void write() {
        for (HostTensor& copy : copies_)
            copy.write();
    }

  private:
    SetupStream setup_;
    std::deque<HostTensor> copies_;
    std::vector<std::pair<std::string, Tensor>> named_;
};

}  // namespace garam
