#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "garam/core/error.h"
#include "garam/runtime/device.h"

namespace garam {
namespace {

// Memory of a dry device is address space without access: pointer arithmetic works, a touch is a
// crash, so a plan cannot compute by accident. It costs no physical memory.
class DryDevice final : public Device {
  public:
    explicit DryDevice(const DeviceProfile& target) : Device(DeviceKind::dry, target) {}

  protected:
    void* take(std::int64_t bytes) override {
        void* pointer = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (pointer == MAP_FAILED)
            throw Error("plan: " + std::to_string(bytes >> 30) +
                        " GiB is more address space than this machine gives (" +
                        std::strerror(errno) + "); a limit set by ulimit -v must go");
        return pointer;
    }
    void give_back(void* pointer, std::int64_t bytes) noexcept override {
        munmap(pointer, static_cast<std::size_t>(bytes));
    }
};

}  // namespace

std::int64_t dry_address_space() {
    constexpr std::int64_t kPlenty = std::int64_t{1} << 42;
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kPlenty;
    // Half: weights, files and the program itself need the rest.
    return std::min(kPlenty, static_cast<std::int64_t>(limit.rlim_cur / 2));
}

std::unique_ptr<Device> make_dry_device(const DeviceProfile& target) {
    return std::make_unique<DryDevice>(target);
}

}  // namespace garam
