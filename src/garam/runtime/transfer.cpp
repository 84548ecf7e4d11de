#include "garam/runtime/transfer.h"

#include <cstring>

namespace garam {

void copy_to_device(Stream& stream, const void* host, const Tensor& tensor) {
    GARAM_CHECK(tensor.is_dense(), "copy to a tensor with gaps");
    const auto bytes = static_cast<double>(tensor.bytes());
    const OpScope op(stream, "copy_to_device", {.bytes_read = bytes, .bytes_written = bytes});
    if (op.dry() || tensor.bytes() == 0) return;
    std::memcpy(tensor.raw(), host, static_cast<std::size_t>(tensor.bytes()));
}

void copy_to_host(Stream& stream, const Tensor& tensor, void* host) {
    GARAM_CHECK(tensor.is_dense(), "copy of a tensor with gaps");
    const auto bytes = static_cast<double>(tensor.bytes());
    const OpScope op(stream, "copy_to_host", {.bytes_read = bytes, .bytes_written = bytes});
    if (op.dry() || tensor.bytes() == 0) return;
    std::memcpy(host, tensor.raw(), static_cast<std::size_t>(tensor.bytes()));
}

float read_scalar(Stream& stream, const Tensor& tensor) {
    float value = 0;
    GARAM_CHECK(tensor.dtype() == DType::f32 && tensor.elements() == 1, "not one f32 value");
    copy_to_host(stream, tensor, &value);
    return value;
}

}  // namespace garam
