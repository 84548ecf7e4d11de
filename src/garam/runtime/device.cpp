#include "garam/runtime/device.h"

#include <utility>

namespace garam {

const char* name_of(Purpose purpose) {
    switch (purpose) {
        case Purpose::weights:
            return "weights";
        case Purpose::adapter:
            return "adapter";
        case Purpose::gradients:
            return "gradients";
        case Purpose::optimizer:
            return "optimizer";
        case Purpose::activations:
            return "activations";
        case Purpose::logits:
            return "logits";
        case Purpose::scratch:
            return "scratch";
        case Purpose::batch:
            return "batch";
        case Purpose::kv_cache:
            return "kv_cache";
        case Purpose::count_:
            break;
    }
    return "?";
}

const char* name_of(CpuIsa isa) {
    switch (isa) {
        case CpuIsa::generic:
            return "generic";
        case CpuIsa::avx2:
            return "avx2";
        case CpuIsa::avx512:
            return "avx512";
    }
    return "?";
}

void* Device::allocate(std::int64_t bytes, Purpose purpose) {
    GARAM_CHECK(bytes >= 0, "allocation of negative size");
    if (bytes == 0) return nullptr;
    bytes = align_up(bytes);
    void* pointer = take(bytes);
    use_.current += bytes;
    use_.current_by[static_cast<std::size_t>(purpose)] += bytes;
    if (use_.current > use_.peak) {
        use_.peak = use_.current;
        use_.peak_by = use_.current_by;
    }
    return pointer;
}

void Device::release(void* pointer, std::int64_t bytes, Purpose purpose) noexcept {
    if (pointer == nullptr) return;
    bytes = align_up(bytes);
    give_back(pointer, bytes);
    use_.current -= bytes;
    use_.current_by[static_cast<std::size_t>(purpose)] -= bytes;
}

Buffer::Buffer(Device& device, std::int64_t bytes, Purpose purpose)
    : device_(&device),
      pointer_(device.allocate(bytes, purpose)),
      bytes_(bytes),
      purpose_(purpose) {}

Buffer::~Buffer() {
    if (device_ != nullptr) device_->release(pointer_, bytes_, purpose_);
}

void Buffer::swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(pointer_, other.pointer_);
    std::swap(bytes_, other.bytes_);
    std::swap(purpose_, other.purpose_);
}

Tensor Buffer::tensor(DType dtype, const Shape& shape, std::int64_t offset) const {
    const std::int64_t wanted = shape.elements() * static_cast<std::int64_t>(size_of(dtype));
    GARAM_CHECK(offset >= 0 && offset + wanted <= bytes_, "tensor does not fit its buffer");
    return Tensor(static_cast<char*>(pointer_) + offset, dtype, shape, device_->kind());
}

OwnedTensor::OwnedTensor(Device& device, DType dtype, const Shape& shape, Purpose purpose)
    : buffer(device, shape.elements() * static_cast<std::int64_t>(size_of(dtype)), purpose) {
    tensor = buffer.tensor(dtype, shape);
}

}  // namespace garam
