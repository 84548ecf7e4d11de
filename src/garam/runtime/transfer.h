// Bytes between host memory and a device. On the CPU a plain copy; on a dry device only metered.
#pragma once

#include <cstddef>
#include <vector>

#include "garam/runtime/stream.h"

namespace garam {

// `host` holds tensor.bytes() bytes, row after row; the tensor may have a pitch. `host` may be reused on
// return unless it is pinned memory.
void copy_to_device(Stream& stream, const void* host, const Tensor& tensor);
// Waits for the stream.
void copy_to_host(Stream& stream, const Tensor& tensor, void* host);
// Does not: `host`, which is pinned, holds a dense tensor's bytes once the stream has passed this.
void copy_to_host_later(Stream& stream, const Tensor& tensor, void* host);

// Zero bytes; dense tensors.
void clear(Stream& stream, const Tensor& tensor);

// A tensor as the host reads and writes it: on the CPU the tensor itself, for one on a card a copy.
class HostTensor {
  public:
    // `read`: begin with the tensor's values.
    HostTensor(Stream& stream, const Tensor& tensor, bool read = true);
    const Tensor& tensor() const { return host_; }
    void write();  // puts the copy back

  private:
    Stream& stream_;
    Tensor device_;
    Tensor host_;
    std::vector<std::byte> memory_;
};

// A stream for work before or between steps that needs no step memory, or `scratch` bytes; its costs are nobody's.
struct SetupStream {
    explicit SetupStream(Device& device, std::int64_t scratch = 0)
        : arena(device, scratch), stream(device, arena, meter) {}
    Arena arena;
    Meter meter;
    Stream stream;
};

// One f32 value of a device tensor [1]. On a dry device: 0.
float read_scalar(Stream& stream, const Tensor& tensor);

}  // namespace garam
