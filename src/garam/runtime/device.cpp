#include "garam/runtime/device.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "garam/core/error.h"

namespace garam {

const char* name_of(Purpose purpose) {
    switch (purpose) {
        case Purpose::weights:
            return "weights";
        case Purpose::quantized_weights:
            return "quantized_weights";
        case Purpose::decoded_weights:
            return "decoded_weights";
        case Purpose::weight_slots:
            return "weight_slots";
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

void Device::copy_in(QueueHandle /*queue*/, void* device, const void* host, std::int64_t bytes) {
    std::memcpy(device, host, static_cast<std::size_t>(bytes));
}

void Device::copy_out(QueueHandle /*queue*/, void* host, const void* device, std::int64_t bytes) {
    std::memcpy(host, device, static_cast<std::size_t>(bytes));
}

void Device::copy_rows_in(QueueHandle queue, void* device, std::int64_t pitch_bytes,
                          const void* host, std::int64_t row_bytes, std::int64_t rows) {
    for (std::int64_t row = 0; row < rows; ++row)
        copy_in(queue, static_cast<char*>(device) + row * pitch_bytes,
                static_cast<const char*>(host) + row * row_bytes, row_bytes);
}

void Device::copy_rows_out(QueueHandle queue, void* host, const void* device,
                           std::int64_t pitch_bytes, std::int64_t row_bytes, std::int64_t rows) {
    for (std::int64_t row = 0; row < rows; ++row)
        copy_out(queue, static_cast<char*>(host) + row * row_bytes,
                 static_cast<const char*>(device) + row * pitch_bytes, row_bytes);
}

void Device::clear(QueueHandle /*queue*/, void* device, std::int64_t bytes) {
    std::memset(device, 0, static_cast<std::size_t>(bytes));
}

void Device::begin_recording(QueueHandle /*queue*/) {
    throw Bug("this device records no work");
}

std::unique_ptr<RecordedWork> Device::end_recording(QueueHandle /*queue*/) {
    throw Bug("this device records no work");
}

std::unique_ptr<DeviceEvent> Device::make_event() {
    return nullptr;
}

void* Device::allocate_pinned(std::int64_t bytes) {
    GARAM_CHECK(bytes >= 0, "allocation of negative size");
    if (bytes == 0) return nullptr;
    void* pointer = take_pinned(bytes);
    pinned_.current += bytes;
    pinned_.peak = std::max(pinned_.peak, pinned_.current);
    return pointer;
}

void Device::release_pinned(void* pointer, std::int64_t bytes) noexcept {
    if (pointer == nullptr) return;
    give_back_pinned(pointer, bytes);
    pinned_.current -= bytes;
}

void* Device::take_pinned(std::int64_t bytes) {
    return take(bytes);
}

void Device::give_back_pinned(void* pointer, std::int64_t bytes) noexcept {
    give_back(pointer, bytes);
}

DeviceProfile profile_of_device(const std::string& name) {
    if (name == "cpu") return detect_cpu_profile();
    const bool any = name == "auto";
    int ordinal = 0;
    if (!any && name != "cuda") {
        const std::string prefix = "cuda:";
        const char* const end = name.data() + name.size();
        const bool numbered =
            name.starts_with(prefix) && name.size() > prefix.size() &&
            std::from_chars(name.data() + prefix.size(), end, ordinal).ptr == end && ordinal >= 0;
        if (!numbered)
            throw Error("device: \"" + name + "\" is not one of auto, cpu, cuda, cuda:N");
    }
    const CudaCards found = detect_cuda_cards();
    if (found.cards.empty()) {
        if (any) return detect_cpu_profile();
        throw Error("device: " + name + " cannot be used, " + found.unusable +
                    "; device=cpu runs on the processor");
    }
    for (const DeviceProfile& card : found.cards)
        if (any || card.ordinal == ordinal) return card;
    std::string usable;
    for (const DeviceProfile& card : found.cards)
        usable += (usable.empty() ? "cuda:" : ", cuda:") + std::to_string(card.ordinal);
    throw Error("device: there is no usable card " + std::to_string(ordinal) +
                " (usable: " + usable + "); device=cpu runs on the processor");
}

std::unique_ptr<Device> make_device(const DeviceProfile& profile) {
    return profile.is_cuda() ? make_cuda_device(profile) : make_cpu_device(profile);
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
