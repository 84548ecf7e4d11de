#include "garam/runtime/host_memory.h"

#include <sys/sysinfo.h>

namespace garam {

Error host_memory_error(const std::string& pool, std::int64_t wanted_bytes,
                        const std::string& reason) {
    struct sysinfo host {};
    sysinfo(&host);
    const auto mib = [&](unsigned long units) {
        return std::to_string(static_cast<std::uint64_t>(units) * host.mem_unit >> 20) + " MiB";
    };
    return Error(pool + ": " + std::to_string(wanted_bytes >> 20) +
                 " MiB wanted, could not be reserved (" + reason + "; " + mib(host.freeram) +
                 " free of " + mib(host.totalram) +
                 "): end other programs, lower train.per_device_train_batch_size or "
                 "train.max_length, or set train.gradient_checkpointing=true");
}

}  // namespace garam
