#include "garam/runtime/transfer.h"

namespace garam {
namespace {

std::int64_t bytes_of(const Tensor& tensor, std::int64_t elements) {
    return elements * static_cast<std::int64_t>(size_of(tensor.dtype()));
}

}  // namespace

void copy_to_device(Stream& stream, const void* host, const Tensor& tensor) {
    const auto bytes = static_cast<double>(tensor.bytes());
    const OpScope op(stream, "copy_to_device", {.bytes_read = bytes, .bytes_written = bytes});
    if (op.dry() || tensor.bytes() == 0) return;
    Device& device = stream.device();
    if (tensor.is_dense()) {
        device.copy_in(stream.queue(), tensor.raw(), host, tensor.bytes());
    } else {
        device.copy_rows_in(stream.queue(), tensor.raw(), bytes_of(tensor, tensor.pitch()), host,
                            bytes_of(tensor, tensor.columns()), tensor.rows());
    }
}

void copy_to_host(Stream& stream, const Tensor& tensor, void* host) {
    const auto bytes = static_cast<double>(tensor.bytes());
    const OpScope op(stream, "copy_to_host", {.bytes_read = bytes, .bytes_written = bytes});
    if (op.dry() || tensor.bytes() == 0) return;
    Device& device = stream.device();
    if (tensor.is_dense()) {
        device.copy_out(stream.queue(), host, tensor.raw(), tensor.bytes());
    } else {
        device.copy_rows_out(stream.queue(), host, tensor.raw(), bytes_of(tensor, tensor.pitch()),
                             bytes_of(tensor, tensor.columns()), tensor.rows());
    }
    stream.synchronize();
}

void copy_to_host_later(Stream& stream, const Tensor& tensor, void* host) {
    GARAM_CHECK(tensor.is_dense(), "copying a tensor with gaps");
    const auto bytes = static_cast<double>(tensor.bytes());
    const OpScope op(stream, "copy_to_host", {.bytes_read = bytes, .bytes_written = bytes});
    if (op.dry() || tensor.bytes() == 0) return;
    stream.device().copy_out(stream.queue(), host, tensor.raw(), tensor.bytes());
}

void clear(Stream& stream, const Tensor& tensor) {
    GARAM_CHECK(tensor.is_dense(), "clearing a tensor with gaps");
    const OpScope op(stream, "clear", {.bytes_written = static_cast<double>(tensor.bytes())});
    if (op.dry() || tensor.bytes() == 0) return;
    stream.device().clear(stream.queue(), tensor.raw(), tensor.bytes());
}

HostTensor::HostTensor(Stream& stream, const Tensor& tensor, bool read)
    : stream_(stream), device_(tensor), host_(tensor) {
    if (tensor.device() != DeviceKind::cuda) return;
    memory_.resize(static_cast<std::size_t>(tensor.bytes()));
    host_ = Tensor(memory_.data(), tensor.dtype(), tensor.shape(), DeviceKind::cpu);
    if (read) copy_to_host(stream, tensor, memory_.data());
}

void HostTensor::write() {
    if (memory_.empty()) return;
    copy_to_device(stream_, memory_.data(), device_);
    stream_.synchronize();
}

float read_scalar(Stream& stream, const Tensor& tensor) {
    float value = 0;
    GARAM_CHECK(tensor.dtype() == DType::f32 && tensor.elements() == 1, "not one f32 value");
    copy_to_host(stream, tensor, &value);
    return value;
}

}  // namespace garam
