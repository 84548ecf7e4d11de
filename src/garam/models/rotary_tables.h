// The tables of models/rope.h in a device's memory.
#pragma once

#include "garam/models/rope_config.h"
#include "garam/nn/pass_context.h"
#include "garam/runtime/transfer.h"

namespace garam {

// A row a position; with `long_too` as many rows of sequences that are longer than the pretraining's follow.
// Returns the memory of `tables`; a dry device's is not filled.
Buffer make_rotary_tables(Device& device, Stream& stream, const RopeConfig& rope,
                          std::int64_t rotary_dim, std::int64_t positions, bool long_too,
                          RotaryTables& tables);

}  // namespace garam
