// Where work runs and memory lies. Three kinds (see docs/architecture.md): `cpu` computes, `cuda`
// enqueues, `dry` only counts: it stands for a target device, hands out address space that must not
// be touched, and adds up what the real device would hold and do.
//
// Policy code asks the profile ("is bf16 fast here?"), never the kind, so that a dry device plans
// exactly what its target would run.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "garam/core/tensor.h"

struct CUstream_st;  // at global scope, where CUDA has it

namespace garam {

struct ProductTable;

// What a byte of device memory is for. Every allocation names one; plans and summaries add up by it.
enum class Purpose : std::uint8_t {
    weights,            // base weights and tables in device memory (mapped files are not allocated)
    quantized_weights,  // codes and scales of a quantised base
    decoded_weights,    // of a quantised base, as products read them, for the whole run
    weight_slots,       // … of a part of it, while a pass needs it
    adapter,            // trained parameters: masters and their copies in the compute dtype
    gradients,          // one per trained parameter, fp32
    optimizer,          // optimiser states
    activations,        // what the forward keeps for the backward
    logits,             // chunk of logits of the head
    scratch,            // lives within one op or one block
    batch,              // token ids, targets, positions of the micro-batch
    kv_cache,           // keys and values of a decoded sequence
    count_
};
constexpr int kPurposes = static_cast<int>(Purpose::count_);
const char* name_of(Purpose purpose);

// Instruction sets that the CPU kernels are compiled for; each includes the ones before.
enum class CpuIsa : std::uint8_t { generic, avx2, avx512 };
const char* name_of(CpuIsa isa);

// What the program needs to know of a device to decide how to run on it and how long it takes.
struct DeviceProfile {
    std::string name;  // "AMD EPYC 9B45, 2 threads", "NVIDIA H100 80GB HBM3"
    DeviceKind kind = DeviceKind::cpu;
    CpuIsa isa = CpuIsa::generic;   // cpu only
    bool fast_bf16 = false;         // bf16 matrix products are faster than fp32 ones
    bool bf16_tiles = false;        // cpu only: … and are multiplied in tiles (AMX)
    int threads = 1;                // cpu only
    std::int64_t memory_bytes = 0;  // that this process may have

    // cuda only
    int ordinal = 0;              // which card
    std::int64_t free_bytes = 0;  // memory that nobody held when the card was looked at
    std::int64_t host_bytes = 0;  // memory that its host lets this process have
    int compute_capability = 0;   // 80, 86, 89, 90, 120
    int multiprocessors = 0;
    std::int64_t shared_bytes = 0;  // shared memory that one block may have
    bool tf32 = false;              // fp32 matrix products in tf32 (train.tf32)
    // How products are multiplied; none: as the library's heuristic has it (train.tuned_products).
    std::shared_ptr<const ProductTable> products;
    bool is_cuda() const { return kind == DeviceKind::cuda; }
};

// Profile of the processor that this program runs on.
DeviceProfile detect_cpu_profile();

// What is known of NVIDIA cards here. `unusable` says in one clause why `cards` is empty ("this build
// has no CUDA", "no NVIDIA driver was found", …).
struct CudaCards {
    std::vector<DeviceProfile> cards;
    std::string unusable;
};
CudaCards detect_cuda_cards();

// The profile that a user's `device` names: auto (the first usable card, else the processor), cpu, cuda,
// cuda:N. Throws Error, offering device=cpu, when there is no such card.
DeviceProfile profile_of_device(const std::string& name);

// Bytes held, now and at the peak, by purpose. `peak_by` is the split at the moment of the peak.
struct MemoryUse {
    std::int64_t current = 0;
    std::int64_t peak = 0;
    std::array<std::int64_t, kPurposes> current_by{};
    std::array<std::int64_t, kPurposes> peak_by{};
};

// Bytes of pinned host memory held.
struct PinnedUse {
    std::int64_t current = 0;
    std::int64_t peak = 0;
};

// A queue of a device's work, in the order of its entries; nullptr where work is done at once.
using QueueHandle = CUstream_st*;

// Work of a queue that was recorded once and can be enqueued again as a whole.
class RecordedWork {
  public:
    virtual ~RecordedWork() = default;
    virtual void enqueue(QueueHandle queue) = 0;
};

// A point in a queue, for timing and for order between queues.
class DeviceEvent {
  public:
    virtual ~DeviceEvent() = default;
    virtual void record(QueueHandle queue) = 0;
    virtual void wait_in(QueueHandle queue) = 0;  // later work of `queue` waits
    virtual double seconds_since(
        const DeviceEvent& earlier) const = 0;  // both reached; waits for them
    virtual void synchronize() const = 0;
};

class Device {
  public:
    virtual ~Device() = default;
    DeviceKind kind() const { return kind_; }
    const DeviceProfile& profile() const { return profile_; }
    const MemoryUse& memory() const { return use_; }
    const PinnedUse& pinned() const { return pinned_; }

    // `bytes` of uninitialised memory, aligned to 256. Zero bytes give nullptr. Throws Error naming
    // the pool, what was asked for and what is free. Not thread-safe: memory is taken at start-up.
    void* allocate(std::int64_t bytes, Purpose purpose);
    void release(void* pointer, std::int64_t bytes, Purpose purpose) noexcept;

    // Queues. On devices that work at once there are none: handles are null, copies are done on return.
    virtual QueueHandle open_queue() { return nullptr; }
    virtual void close_queue(QueueHandle /*queue*/) noexcept {}
    // Returns when all work of the queue is done. Throws Error when some of it failed.
    virtual void synchronize(QueueHandle /*queue*/) {}
    virtual void synchronize_all() {}  // of all queues

    // What nobody holds of the card's memory; without a card no number that matters.
    virtual std::int64_t free_memory() { return std::numeric_limits<std::int64_t>::max(); }
    // Copies of bytes between host and device. Of pinned memory they are enqueued, and the memory must
    // stay as it is until the queue has passed them; of other memory it may be reused on return.
    virtual void copy_in(QueueHandle queue, void* device, const void* host, std::int64_t bytes);
    // Enqueued; complete after synchronize().
    virtual void copy_out(QueueHandle queue, void* host, const void* device, std::int64_t bytes);
    // `rows` rows of `row_bytes`, dense in host memory, `pitch_bytes` apart on the device.
    virtual void copy_rows_in(QueueHandle queue, void* device, std::int64_t pitch_bytes,
                              const void* host, std::int64_t row_bytes, std::int64_t rows);
    virtual void copy_rows_out(QueueHandle queue, void* host, const void* device,
                               std::int64_t pitch_bytes, std::int64_t row_bytes, std::int64_t rows);
    virtual void clear(QueueHandle queue, void* device, std::int64_t bytes);  // zero bytes
    // Records what the queue is given between the two calls instead of running it. False: this device
    // cannot.
    virtual bool can_record() const { return false; }
    virtual void begin_recording(QueueHandle queue);
    virtual std::unique_ptr<RecordedWork> end_recording(QueueHandle queue);
    virtual std::unique_ptr<DeviceEvent> make_event();  // nullptr where work is done at once
    // Page-locked host memory; plain memory where there is no need. A pool of its own, with its own
    // ledger; otherwise as allocate().
    void* allocate_pinned(std::int64_t bytes);
    void release_pinned(void* pointer, std::int64_t bytes) noexcept;
    // Named ranges for a profiler of the device's vendor.
    virtual void open_range(const char* /*name*/) {}
    virtual void close_range() {}

  protected:
    Device(DeviceKind kind, DeviceProfile profile) : kind_(kind), profile_(std::move(profile)) {}
    virtual void* take(std::int64_t bytes) = 0;
    virtual void give_back(void* pointer, std::int64_t bytes) noexcept = 0;
    virtual void* take_pinned(std::int64_t bytes);
    virtual void give_back_pinned(void* pointer, std::int64_t bytes) noexcept;

  private:
    DeviceKind kind_;
    DeviceProfile profile_;
    MemoryUse use_;
    PinnedUse pinned_;
};

// The host processor. Tests pass a profile of their own to run the paths of lesser processors.
std::unique_ptr<Device> make_cpu_device(const DeviceProfile& profile = detect_cpu_profile());
// An NVIDIA card. Throws Error when it cannot be used.
std::unique_ptr<Device> make_cuda_device(const DeviceProfile& profile);
// The device of a profile: cpu or cuda.
std::unique_ptr<Device> make_device(const DeviceProfile& profile);
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

// Owns page-locked host memory (see Device::allocate_pinned). Movable.
class PinnedBuffer {
  public:
    PinnedBuffer() = default;
    PinnedBuffer(Device& device, std::int64_t bytes)
        : device_(&device), pointer_(device.allocate_pinned(bytes)), bytes_(bytes) {}
    PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
    PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
        swap(other);
        return *this;
    }
    ~PinnedBuffer() {
        if (pointer_ != nullptr) device_->release_pinned(pointer_, bytes_);
    }
    void* raw() const { return pointer_; }
    std::int64_t bytes() const { return bytes_; }

  private:
    void swap(PinnedBuffer& other) noexcept {
        std::swap(device_, other.device_);
        std::swap(pointer_, other.pointer_);
        std::swap(bytes_, other.bytes_);
    }
    Device* device_ = nullptr;
    void* pointer_ = nullptr;
    std::int64_t bytes_ = 0;
};

// A buffer made for one tensor.
struct OwnedTensor {
    Buffer buffer;
    Tensor tensor;

    OwnedTensor() = default;
    OwnedTensor(Device& device, DType dtype, const Shape& shape, Purpose purpose);
};

}  // namespace garam
