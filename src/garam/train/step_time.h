// How long a step would take, from what its ops cost: to choose between plans, not to promise.
//
// Each op takes the longer of its arithmetic at the card's rate and its bytes at the memory's, and its launch; all of
// it is stretched for small passes, whose products leave multiprocessors idle,
//
//   seconds = (1 + kIdleTokens multiprocessors / tokens) sum of max(flops / rate, bytes / bandwidth)
//             + launches kLaunchSeconds
//
// where on a card attention's rate is kAttention of the products' (an H200's forward and backward reach 0.50 and 0.44 of
// it; other generations are taken to be alike).
// (Measured on an H100 in the shape of EXAONE-3.5-2.4B: passes of 1,024 tokens take 1.16 times as long a token as
// those of 8,192.) Decoding weights runs beside the products by a queue of its own, but takes memory's and
// multiprocessors' time from them: kExposed of it counts. Copies of inputs of blocks to and from pinned memory
// count where they take longer than the rest.
//
// Rates are those of a multiprocessor of each generation, measured or published, times their number.
#pragma once

#include <cstdint>

#include "garam/runtime/device.h"
#include "garam/runtime/meter.h"

namespace garam {

struct StepTime {
    double ops = 0;       // without decoding
    double decoding = 0;  // weights, alone
    double copies = 0;    // of inputs of blocks, alone
    double seconds() const;
};

// Of the ops of a pass or more of `tokens` tokens each.
StepTime step_time(const DeviceProfile& profile, const Meter::Table& ops, std::int64_t tokens);
// Of bytes to or from pinned memory.
double copy_seconds(const DeviceProfile& profile, double bytes);

}  // namespace garam
