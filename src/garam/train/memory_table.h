// The plan of a run's memory in words: a table in which every byte has a purpose.
#pragma once

#include <cstdint>
#include <string>

#include "garam/train/engine.h"

namespace garam {

// What memory.limit (or another `key`) says in bytes: "auto" is 0, for what is free; else a number and GB, GiB, MB or
// MiB ("6GB", "5.5 GiB"). Throws Error naming the key.
std::int64_t memory_limit_bytes(const std::string& limit, const std::string& key = "memory.limit");

// Lines that end in a newline, the first of which names the device that the plan is for
// (DeviceProfile::name); `limit` in bytes, 0: none.
std::string memory_table(const MemoryPlan& plan, const std::string& device, std::int64_t limit);

}  // namespace garam
