// Bytes between host memory and a device. On the CPU a plain copy; on a dry device only metered.
#pragma once

#include "garam/runtime/stream.h"

namespace garam {

// `host` holds tensor.bytes() bytes; the tensor is dense. `host` may be reused on return unless it is
// pinned memory.
void copy_to_device(Stream& stream, const void* host, const Tensor& tensor);
// Waits for the stream.
void copy_to_host(Stream& stream, const Tensor& tensor, void* host);

// One f32 value of a device tensor [1]. On a dry device: 0.
float read_scalar(Stream& stream, const Tensor& tensor);

}  // namespace garam
