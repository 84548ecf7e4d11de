#include <sched.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

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
#endif
    profile.name = cpu_model_name() + ", " + std::to_string(profile.threads) +
                   (profile.threads == 1 ? " thread" : " threads");
    struct sysinfo info {};
    if (sysinfo(&info) == 0)
        profile.memory_bytes = static_cast<std::int64_t>(info.totalram) * info.mem_unit;
    return profile;
}

std::unique_ptr<Device> make_cpu_device(const DeviceProfile& profile) {
    return std::make_unique<CpuDevice>(profile);
}

}  // namespace garam
