#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include "garam/core/card_error.h"
#include "garam/core/error.h"
#include "garam/runtime/device.h"
#include "garam/runtime/host_memory.h"

namespace garam {
namespace {

constexpr int kOldestCapability = 80;  // bf16 tensor cores

std::string mib(std::size_t bytes) {
    return std::to_string(bytes >> 20) + " MiB";
}

static_assert(static_cast<int>(cudaErrorMemoryAllocation) == card_status::kOutOfMemory);
static_assert(static_cast<int>(cudaErrorPriorLaunchFailure) == card_status::kPriorLaunchFailure);
static_assert(static_cast<int>(cudaErrorDevicesUnavailable) == card_status::kDevicesUnavailable);
static_assert(static_cast<int>(cudaErrorECCUncorrectable) == card_status::kEccUncorrectable);
static_assert(static_cast<int>(cudaErrorNvlinkUncorrectable) == card_status::kNvlinkUncorrectable);
static_assert(static_cast<int>(cudaErrorContained) == card_status::kContained);
static_assert(static_cast<int>(cudaErrorIllegalAddress) == card_status::kIllegalAddress);
static_assert(static_cast<int>(cudaErrorLaunchTimeout) == card_status::kLaunchTimeout);
static_assert(static_cast<int>(cudaErrorContextIsDestroyed) == card_status::kContextIsDestroyed);
static_assert(static_cast<int>(cudaErrorAssert) == card_status::kAssert);
static_assert(static_cast<int>(cudaErrorHardwareStackError) == card_status::kHardwareStackError);
static_assert(static_cast<int>(cudaErrorIllegalInstruction) == card_status::kIllegalInstruction);
static_assert(static_cast<int>(cudaErrorMisalignedAddress) == card_status::kMisalignedAddress);
static_assert(static_cast<int>(cudaErrorInvalidAddressSpace) == card_status::kInvalidAddressSpace);
static_assert(static_cast<int>(cudaErrorInvalidPc) == card_status::kInvalidPc);
static_assert(static_cast<int>(cudaErrorLaunchFailure) == card_status::kLaunchFailure);
static_assert(static_cast<int>(cudaErrorMpsConnectionFailed) == card_status::kMpsConnectionFailed);
static_assert(static_cast<int>(cudaErrorMpsRpcFailure) == card_status::kMpsRpcFailure);
static_assert(static_cast<int>(cudaErrorMpsClientTerminated) == card_status::kMpsClientTerminated);
static_assert(static_cast<int>(cudaErrorUnknown) == card_status::kUnknown);

[[noreturn]] void fail(cudaError_t status, const char* doing) {
    int ordinal = 0;  // of the card that this thread uses
    if (cudaGetDevice(&ordinal) != cudaSuccess) ordinal = 0;
    throw_card_error(static_cast<int>(status), "cuda:" + std::to_string(ordinal), doing,
                     std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status));
}

void check(cudaError_t status, const char* doing) {
    if (status != cudaSuccess) fail(status, doing);
}

cudaStream_t stream_of(QueueHandle queue) {
    return queue;
}

class CudaGraph final : public RecordedWork {
  public:
    explicit CudaGraph(cudaGraph_t graph) {
        const cudaError_t status = cudaGraphInstantiate(&instance_, graph, 0);
        cudaGraphDestroy(graph);
        check(status, "instantiating a graph");
    }
    ~CudaGraph() override { cudaGraphExecDestroy(instance_); }
    CudaGraph(const CudaGraph&) = delete;
    CudaGraph& operator=(const CudaGraph&) = delete;
    void enqueue(QueueHandle queue) override {
        check(cudaGraphLaunch(instance_, stream_of(queue)), "launching a graph");
    }

  private:
    cudaGraphExec_t instance_ = nullptr;
};

class CudaEvent final : public DeviceEvent {
  public:
    CudaEvent() { check(cudaEventCreate(&event_), "making an event"); }
    ~CudaEvent() override { cudaEventDestroy(event_); }
    CudaEvent(const CudaEvent&) = delete;
    CudaEvent& operator=(const CudaEvent&) = delete;
    void record(QueueHandle queue) override {
        check(cudaEventRecord(event_, stream_of(queue)), "recording an event");
    }
    void wait_in(QueueHandle queue) override {
        check(cudaStreamWaitEvent(stream_of(queue), event_, 0), "waiting for an event");
    }
    double seconds_since(const DeviceEvent& earlier) const override {
        float milliseconds = 0;
        synchronize();
        const auto& begin = dynamic_cast<const CudaEvent&>(earlier);
        check(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "reading an event");
        return static_cast<double>(milliseconds) * 1e-3;
    }
    void synchronize() const override { check(cudaEventSynchronize(event_), "computing"); }

  private:
    cudaEvent_t event_ = nullptr;
};

class CudaDevice final : public Device {
  public:
    explicit CudaDevice(const DeviceProfile& profile) : Device(DeviceKind::cuda, profile) { use(); }

    QueueHandle open_queue() override {
        use();
        cudaStream_t stream = nullptr;
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "opening a stream");
        return stream;
    }
    void close_queue(QueueHandle queue) noexcept override {
        // Memory that enqueued work still uses may be released next.
        cudaStreamSynchronize(stream_of(queue));
        cudaStreamDestroy(stream_of(queue));
    }
    void synchronize(QueueHandle queue) override {
        check(cudaStreamSynchronize(stream_of(queue)), "computing");
    }
    void synchronize_all() override { check(cudaDeviceSynchronize(), "computing"); }
    void copy_in(QueueHandle queue, void* device, const void* host, std::int64_t bytes) override {
        check(cudaMemcpyAsync(device, host, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice,
                              stream_of(queue)),
              "copying to the card");
    }
    void copy_out(QueueHandle queue, void* host, const void* device, std::int64_t bytes) override {
        check(cudaMemcpyAsync(host, device, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost,
                              stream_of(queue)),
              "copying from the card");
    }
    void copy_rows_in(QueueHandle queue, void* device, std::int64_t pitch_bytes, const void* host,
                      std::int64_t row_bytes, std::int64_t rows) override {
        const auto width = static_cast<std::size_t>(row_bytes);
        check(cudaMemcpy2DAsync(device, static_cast<std::size_t>(pitch_bytes), host, width, width,
                                static_cast<std::size_t>(rows), cudaMemcpyHostToDevice,
                                stream_of(queue)),
              "copying to the card");
    }
    void copy_rows_out(QueueHandle queue, void* host, const void* device, std::int64_t pitch_bytes,
                       std::int64_t row_bytes, std::int64_t rows) override {
        const auto width = static_cast<std::size_t>(row_bytes);
        check(cudaMemcpy2DAsync(host, width, device, static_cast<std::size_t>(pitch_bytes), width,
                                static_cast<std::size_t>(rows), cudaMemcpyDeviceToHost,
                                stream_of(queue)),
              "copying from the card");
    }
    void clear(QueueHandle queue, void* device, std::int64_t bytes) override {
        check(cudaMemsetAsync(device, 0, static_cast<std::size_t>(bytes), stream_of(queue)),
              "clearing memory");
    }
    std::int64_t free_memory() override {
        use();
        std::size_t free = 0;
        std::size_t total = 0;
        check(cudaMemGetInfo(&free, &total), "asking for free card memory");
        return static_cast<std::int64_t>(free);
    }

    bool can_record() const override { return true; }
    void begin_recording(QueueHandle queue) override {
        check(cudaStreamBeginCapture(stream_of(queue), cudaStreamCaptureModeThreadLocal),
              "recording a graph");
    }
    std::unique_ptr<RecordedWork> end_recording(QueueHandle queue) override {
        cudaGraph_t graph = nullptr;
        check(cudaStreamEndCapture(stream_of(queue), &graph), "recording a graph");
        return std::make_unique<CudaGraph>(graph);
    }
    std::unique_ptr<DeviceEvent> make_event() override { return std::make_unique<CudaEvent>(); }
    void open_range(const char* name) override { nvtxRangePushA(name); }
    void close_range() override { nvtxRangePop(); }

  protected:
    void* take(std::int64_t bytes) override {
        use();
        void* pointer = nullptr;
        const cudaError_t status = cudaMalloc(&pointer, static_cast<std::size_t>(bytes));
        if (status == cudaSuccess) return pointer;
        cudaGetLastError();  // an allocation that failed leaves nothing behind
        if (status != cudaErrorMemoryAllocation) fail(status, "reserving card memory");
        std::size_t free = 0;
        std::size_t total = 0;
        cudaMemGetInfo(&free, &total);
        throw Error("card memory: " + mib(static_cast<std::size_t>(bytes)) + " wanted, " +
                    mib(free) + " of " + mib(total) + " free on " + profile().name +
                    ": lower train.per_device_train_batch_size or train.max_length, set "
                    "train.gradient_checkpointing=true, or end other programs on the card "
                    "(nvidia-smi)");
    }
    void give_back(void* pointer, std::int64_t /*bytes*/) noexcept override { cudaFree(pointer); }
    void* take_pinned(std::int64_t bytes) override {
        use();
        void* pointer = nullptr;
        const cudaError_t status =
            cudaHostAlloc(&pointer, static_cast<std::size_t>(bytes), cudaHostAllocDefault);
        if (status == cudaSuccess) return pointer;
        cudaGetLastError();  // an allocation that failed leaves nothing behind
        if (is_lost_card(static_cast<int>(status))) fail(status, "reserving pinned host memory");
        throw host_memory_error("pinned host memory", bytes, cudaGetErrorString(status));
    }
    void give_back_pinned(void* pointer, std::int64_t /*bytes*/) noexcept override {
        cudaFreeHost(pointer);
    }

  private:
    void use() const { check(cudaSetDevice(profile().ordinal), "choosing the card"); }
};

}  // namespace

CudaCards detect_cuda_cards() {
    CudaCards found;
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0) {
        cudaGetLastError();
        if (status == cudaErrorInsufficientDriver) {
            int driver = 0;
            cudaDriverGetVersion(&driver);
            found.unusable = driver == 0
                                 ? "no NVIDIA driver was found"
                                 : "the NVIDIA driver is too old (it speaks CUDA " +
                                       std::to_string(driver / 1000) + "." +
                                       std::to_string(driver % 1000 / 10) + ", this build needs " +
                                       std::to_string(CUDART_VERSION / 1000) + "." +
                                       std::to_string(CUDART_VERSION % 1000 / 10) + ")";
        } else if (status == cudaErrorNoDevice || status == cudaSuccess) {
            found.unusable = "no NVIDIA card was found";
        } else {
            found.unusable = std::string("the NVIDIA driver says: ") + cudaGetErrorString(status);
        }
        return found;
    }
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        cudaDeviceProp properties{};
        if (cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess) continue;
        DeviceProfile card;
        card.kind = DeviceKind::cuda;
        card.name = properties.name;
        card.ordinal = ordinal;
        card.compute_capability = properties.major * 10 + properties.minor;
        card.multiprocessors = properties.multiProcessorCount;
        card.shared_bytes = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin);
        card.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
        card.fast_bf16 = true;
        card.host_bytes = host_memory_bytes();
        std::size_t free = 0;
        std::size_t total = 0;
        if (cudaSetDevice(ordinal) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess)
            card.free_bytes = static_cast<std::int64_t>(free);
        if (card.compute_capability < kOldestCapability) {
            found.unusable = card.name + " is older than garam's kernels (compute capability " +
                             std::to_string(properties.major) + "." +
                             std::to_string(properties.minor) + ", needed 8.0)";
            continue;
        }
        found.cards.push_back(card);
    }
    if (found.cards.empty() && found.unusable.empty()) found.unusable = "no card answered";
    return found;
}

std::unique_ptr<Device> make_cuda_device(const DeviceProfile& profile) {
    GARAM_CHECK(profile.is_cuda(), "a card's profile");
    return std::make_unique<CudaDevice>(profile);
}

}  // namespace garam
