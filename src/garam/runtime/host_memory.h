// What is said when the host has no memory left.
#pragma once

#include <cstdint>
#include <string>

#include "garam/core/error.h"

namespace garam {

// Names the pool ("host memory", "pinned host memory"), what was wanted, why it was refused, what is free,
// and what to change.
Error host_memory_error(const std::string& pool, std::int64_t wanted_bytes,
                        const std::string& reason);

}  // namespace garam
