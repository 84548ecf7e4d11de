// How much memory the host has, and what is said when none is left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "garam/core/error.h"

namespace garam {

// Bytes that this process may have: what is installed, or less where its control group (of a container, a batch system)
// allows less. 0: the system did not tell.
std::int64_t host_memory_bytes();

// The least limit of the control groups that /proc/self/cgroup names in `membership`, and of those above them, below
// where their file systems are mounted (/sys/fs/cgroup; version 1 in its folder `memory`). INT64_MAX: none.
std::int64_t memory_limit_of_groups(const std::filesystem::path& mount,
                                    const std::string& membership);

// Names the pool ("host memory", "pinned host memory"), what was wanted, why it was refused, what is free, what of it
// this process may have where that is less, and what to change.
Error host_memory_error(const std::string& pool, std::int64_t wanted_bytes,
                        const std::string& reason, std::int64_t allowed = host_memory_bytes());

}  // namespace garam
