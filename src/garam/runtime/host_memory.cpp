#include "garam/runtime/host_memory.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace garam {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

// "max", or a number; version 1 writes a number near the largest for none.
std::int64_t limit_of(const std::filesystem::path& file) {
    std::ifstream stream(file);
    std::int64_t bytes = 0;
    return stream >> bytes && bytes > 0 ? bytes : kUnlimited;
}

}  // namespace

std::int64_t memory_limit_of_groups(const std::filesystem::path& mount,
                                    const std::string& membership) {
    std::int64_t least = kUnlimited;
    std::istringstream lines(membership);
    for (std::string line; std::getline(lines, line);) {
        // number:controllers:group; no controllers in version 2.
        const std::size_t first = line.find(':');
        const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        const bool unified = controllers == ",,";
        if (!unified && controllers.find(",memory,") == std::string::npos) continue;
        const std::filesystem::path root = unified ? mount : mount / "memory";
        const char* const name = unified ? "memory.max" : "memory.limit_in_bytes";
        // A container that has its own view of groups may name one above its root.
        std::filesystem::path group =
            ("/" / std::filesystem::path(line.substr(second + 1))).lexically_normal();
        for (group = group.relative_path();; group = group.parent_path()) {
            least = std::min(least, limit_of(root / group / name));
            if (group.empty()) break;
        }
    }
    return least;
}

std::int64_t host_memory_bytes() {
    struct sysinfo host {};
    if (sysinfo(&host) != 0) return 0;
    const std::int64_t installed = static_cast<std::int64_t>(host.totalram) * host.mem_unit;
    std::ifstream file("/proc/self/cgroup");
    std::ostringstream membership;
    membership << file.rdbuf();
    return std::min(installed, memory_limit_of_groups("/sys/fs/cgroup", membership.str()));
}

Error host_memory_error(const std::string& pool, std::int64_t wanted_bytes,
                        const std::string& reason, std::int64_t allowed) {
    struct sysinfo host {};
    sysinfo(&host);
    const auto mib = [](std::int64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; };
    const auto bytes_of = [&](unsigned long units) {
        return static_cast<std::int64_t>(units) * host.mem_unit;
    };
    const std::int64_t installed = bytes_of(host.totalram);
    const std::string of_process = allowed > 0 && allowed < installed
                                       ? ", of which this process may have " + mib(allowed)
                                       : std::string();
    return Error(pool + ": " + mib(wanted_bytes) + " wanted, could not be reserved (" + reason +
                 "; " + mib(bytes_of(host.freeram)) + " free of " + mib(installed) + of_process +
                 "): end other programs, lower train.per_device_train_batch_size or "
                 "train.max_length, or set train.gradient_checkpointing=true");
}

}  // namespace garam
