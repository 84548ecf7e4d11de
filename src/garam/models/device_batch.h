// A micro-batch in device memory.
//
// On a card it may be larger than the batch: extra tokens form a sample of their own that has no target,
// extra samples are empty, extra targets are -1 at row -1. None of them changes a loss or a gradient, so
// that batches of many sizes share few shapes, and work recorded for a shape serves them all.
#pragma once

#include <cstdint>

#include "garam/core/token_batch.h"
#include "garam/ops/attention.h"
#include "garam/runtime/stream.h"

namespace garam {

struct BatchShape {
    std::int64_t tokens = 0;
    std::int64_t samples = 0;
    std::int64_t targets = 0;
    auto operator<=>(const BatchShape&) const = default;
};
BatchShape shape_of(const TokenBatch& batch);
// The shape whose recorded work serves this one: each extent rounded up, tokens and targets by at most an
// eighth and 2048, samples to a power of two and one more. Grows with each extent.
BatchShape shared_shape(const BatchShape& shape);

// All of it lies in one piece of memory, and is copied at once.
struct DeviceBatch {
    BatchShape shape;
    AttentionSegments segments;
    Tensor memory;       // u8
    Tensor ids;          // i32 [tokens]
    Tensor positions;    // i32 [tokens]
    Tensor rotary_rows;  // i32 [tokens]: of the rotary tables
    Tensor samples;      // i64 [tokens]: row number of each token's sample
    Tensor step;         // i32 [1]: optimiser steps done, keys dropout
    Tensor target_rows;  // i32 [targets]: tokens that have a target
    Tensor targets;      // i32 [targets]
    std::int64_t tokens() const { return shape.tokens; }
};

// Memory for a batch of that shape on the arena's low end, until the caller rewinds.
DeviceBatch reserve_batch(Stream& stream, const BatchShape& shape);
// What a batch is padded and counted with.
struct BatchPlace {
    std::uint32_t steps_done = 0;
    std::int64_t cached = 0;  // keys of its one sample that are in a cache already
    // Samples of more than `longest_short` tokens turn by rows of the rotary tables that begin at
    // `long_rows`; 0: all are alike.
    std::int64_t longest_short = 0;
    std::int64_t long_rows = 0;
};
// The bytes of `batch.memory`: `tokens` padded to its shape, written to `bytes`; and the host's side of the
// segments.
void lay_out_batch(const TokenBatch& tokens, const BatchPlace& place, DeviceBatch& batch,
                   std::byte* bytes);
// Both, and the copy.
DeviceBatch upload(Stream& stream, const TokenBatch& batch, const BatchShape& shape,
                   const BatchPlace& place = {});

}  // namespace garam
