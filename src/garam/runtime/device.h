// Where work runs and memory lies. Three kinds (see docs/architecture.md): `cpu` computes, `cuda`
// enqueues (not in this build), `dry` only counts: it stands for a target device, hands out address
// space that must not be touched, and adds up what the real device would hold and do.
//
// Policy code asks the profile ("is bf16 fast here?"), never the kind, so that a dry device plans
// exactly what its target would run.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "garam/core/tensor.h"

namespace garam {

// What a byte of device memory is for. Every allocation names one; plans and summaries add up by it.
enum class Purpose : std::uint8_t {
    weights,      // base weights and tables in device memory (mapped files are not allocated)
    adapter,      // trained parameters: masters and their copies in the compute dtype
    gradients,    // one per trained parameter, fp32
    optimizer,    // optimiser states
    activations,  // what the forward keeps for the backward
    logits,       // chunk of logits of the head
    scratch,      // lives within one op or one block
    batch,        // token ids, targets, positions of the micro-batch
    kv_cache,     // keys and values of a decoded sequence
    count_
};
constexpr int kPurposes = static_cast<int>(Purpose::count_);
const char* name_of(Purpose purpose);

// Instruction sets that the CPU kernels are compiled for; each includes the ones before.
enum class CpuIsa : std::uint8_t { generic, avx2, avx512 };
const char* name_of(CpuIsa isa);

// What the program needs to know of a device to decide how to run on it and how long it takes.
struct DeviceProfile {
    std::string name;  // "AMD EPYC 9B45, 2 threads"
    DeviceKind kind = DeviceKind::cpu;
    CpuIsa isa = CpuIsa::generic;   // cpu only
    bool fast_bf16 = false;         // bf16 matrix products are faster than fp32 ones
    int threads = 1;                // cpu only
    std::int64_t memory_bytes = 0;  // installed
};

// Profile of the processor that this program runs on.
DeviceProfile detect_cpu_profile();

// Bytes held, now and at the peak, by purpose. `peak_by` is the split at the moment of the peak.
struct MemoryUse {
    std::int64_t current = 0;
    std::int64_t peak = 0;
    std::array<std::int64_t, kPurposes> current_by{};
    std::array<std::int64_t, kPurposes> peak_by{};
};

class Device {
  public:
    virtual ~Device() = default;
    DeviceKind kind() const { return kind_; }
    const DeviceProfile& profile() const { return profile_; }
    const MemoryUse& memory() const { return use_; }

    // `bytes` of uninitialised memory, aligned to 256. Zero bytes give nullptr. Throws Error naming
    // the pool, what was asked for and what is free. Not thread-safe: memory is taken at start-up.
    void* allocate(std::int64_t bytes, Purpose purpose);
    void release(void* pointer, std::int64_t bytes, Purpose purpose) noexcept;

  protected:
    Device(DeviceKind kind, DeviceProfile profile) : kind_(kind), profile_(std::move(profile)) {}
    virtual void* take(std::int64_t bytes) = 0;
    virtual void give_back(void* pointer, std::int64_t bytes) noexcept = 0;

  private:
    DeviceKind kind_;
    DeviceProfile profile_;
    MemoryUse use_;
};

// The host processor. Tests pass a profile of their own to run the paths of lesser processors.
std::unique_ptr<Device> make_cpu_device(const DeviceProfile& profile = detect_cpu_profile());
// A device that counts as `target` would.
std::unique_ptr<Device> make_dry_device(const DeviceProfile& target);
// What a dry arena may reserve so as to be beyond every plan: address space, not memory. Less where
// the process's address space is limited (ulimit -v).
std::int64_t dry_address_space();

// Every size handed out is rounded up to this, on every device, so that plans are exact.
constexpr std::int64_t kAlignment = 256;
constexpr std::int64_t align_up(std::int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Owns device memory of one purpose. Movable.
class Buffer {
  public:
    Buffer() = default;
    Buffer(Device& device, std::int64_t bytes, Purpose purpose);
    Buffer(Buffer&& other) noexcept { swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
        swap(other);
        return *this;
    }
    ~Buffer();

    void* raw() const { return pointer_; }
    std::int64_t bytes() const { return bytes_; }
    // A dense tensor at byte `offset` of the buffer; checks that it fits.
    Tensor tensor(DType dtype, const Shape& shape, std::int64_t offset = 0) const;

  private:
    void swap(Buffer& other) noexcept;
    Device* device_ = nullptr;
    void* pointer_ = nullptr;
    std::int64_t bytes_ = 0;
    Purpose purpose_ = Purpose::scratch;
};

// A buffer made for one tensor.
struct OwnedTensor {
    Buffer buffer;
    Tensor tensor;

    OwnedTensor() = default;
    OwnedTensor(Device& device, DType dtype, const Shape& shape, Purpose purpose);
};

}  // namespace garam
