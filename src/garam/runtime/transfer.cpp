#include "garam/runtime/transfer.h"

namespace garam {

void copy_to_device(Stream& stream, const void* host, const Tensor& tensor) {
    GARAM_CHECK(tensor.is_dense(), "copy to a tensor with gaps");
    const auto bytes = static_cast<double>(tensor.bytes());
    const OpScope op(stream, "copy_to_device", {.bytes_read = bytes, .bytes_written = bytes});
    if (op.dry() || tensor.bytes() == 0) return;
    stream.device().copy_in(stream.queue(), tensor.raw(), host, tensor.bytes());
}

void copy_to_host(Stream& stream, const Tensor& tensor, void* host) {
    GARAM_CHECK(tensor.is_dense(), "copy of a tensor with gaps");
    const auto bytes = static_cast<double>(tensor.bytes());
    const OpScope op(stream, "copy_to_host", {.bytes_read = bytes, .bytes_written = bytes});
    if (op.dry() || tensor.bytes() == 0) return;
    stream.device().copy_out(stream.queue(), host, tensor.raw(), tensor.bytes());
    stream.synchronize();
}

float read_scalar(Stream& stream, const Tensor& tensor) {
    float value = 0;
    GARAM_CHECK(tensor.dtype() == DType::f32 && tensor.elements() == 1, "not one f32 value");
    copy_to_host(stream, tensor, &value);
    return value;
}

}  // namespace garam
