#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "garam/core/parallel.h"
#include "garam/runtime/device.h"
#include "garam/runtime/host_memory.h"

namespace garam {
namespace {

std::string cpu_model_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        if (line.rfind("model name", 0) != 0) continue;
        const std::size_t colon = line.find(": ");
        if (colon != std::string::npos) return line.substr(colon + 2);
    }
    return "CPU";
}

#if defined(__x86_64__)
// Whether the processor multiplies tiles of bf16 and the system lets this process use them, which it
// must be asked once (for all threads; children inherit it).
bool has_bf16_tiles() {
    unsigned int a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
    constexpr unsigned int kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
    if ((d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
    constexpr long kRequestState = 0x1023, kTileData = 18;  // of arch_prctl
    return syscall(SYS_arch_prctl, kRequestState, kTileData) == 0;
}
#endif

// Page-granular anonymous mappings: a freed reservation really goes back to the system, and a fresh
// one costs nothing until it is written.
class CpuDevice final : public Device {
  public:
    explicit CpuDevice(const DeviceProfile& profile) : Device(DeviceKind::cpu, profile) {}

  protected:
    void* take(std::int64_t bytes) override {
        void* pointer = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pointer == MAP_FAILED)
            throw host_memory_error("host memory", bytes, std::strerror(errno));
        // Large pages where the system has them: reading many small ones waits for their addresses.
        constexpr std::int64_t kLargePage = 2 << 20;
        if (bytes >= kLargePage) madvise(pointer, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
        return pointer;
    }
    void give_back(void* pointer, std::int64_t bytes) noexcept override {
        munmap(pointer, static_cast<std::size_t>(bytes));
    }
};

}  // namespace

DeviceProfile detect_cpu_profile() {
    DeviceProfile profile;
    profile.kind = DeviceKind::cpu;
    profile.threads = num_threads();
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512dq");
    profile.isa = avx512 ? CpuIsa::avx512 : avx2 ? CpuIsa::avx2 : CpuIsa::generic;
    profile.fast_bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
    profile.bf16_tiles = profile.fast_bf16 && has_bf16_tiles();
#endif
    profile.name = cpu_model_name() + ", " + std::to_string(profile.threads) +
                   (profile.threads == 1 ? " thread" : " threads");
    profile.memory_bytes = host_memory_bytes();
    return profile;
}

std::unique_ptr<Device> make_cpu_device(const DeviceProfile& profile) {
    return std::make_unique<CpuDevice>(profile);
}

}  // namespace garam
