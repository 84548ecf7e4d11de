// How a run uses the memory that there is: what the backward makes again, and how many of the
// micro-batches that an optimiser step accumulates are run as one. Neither changes what is computed but
// for the order of sums; merging fills a card that small micro-batches leave idle.
#pragma once

#include <cstdint>
#include <optional>

#include "garam/train/engine.h"

namespace garam {

struct MemoryQuestion {
    const DeviceProfile& profile;
    const ModelFiles& files;
    EngineOptions engine;
    BatchBounds training;
    BatchBounds evaluation;
    std::int64_t accumulation = 1;
    bool chooses_recompute = false;  // gradient_checkpointing=auto; else engine.recompute holds
    std::int64_t merged = 0;         // micro-batches run as one; 0: choose
    bool in_tiles = false;           // a named policy is to run in tiles (…+tiles)
    // PassContext::tile as an earlier part of the run had it; empty: choose.
    std::optional<std::int64_t> tile = {};
};

struct MemoryChoice {
    Recompute recompute = Recompute::nothing;
    std::int64_t tile = 0;
    std::int64_t merged = 1;
    MemoryPlan plan;
    bool fits = true;
};

// The least recomputing, then the largest merged micro-batch, whose plan fits the free memory of the
// device and half of its host's; on a card the last resort but one is that inputs of blocks wait in pinned
// host memory, and the last one on every device are tiles of tokens. Where nothing fits, the smallest plan
// (the allocation then says what is missing).
MemoryChoice choose_memory(const MemoryQuestion& question);

// Tokens of the longest sample that fits as the only one of a micro-batch, all of them targets; 0: not even a
// short one does. To a multiple of 64, and some hundredths of a percent.
std::int64_t longest_sample(MemoryQuestion question);

// Bounds of `merged` micro-batches run as one.
BatchBounds merged_bounds(const BatchBounds& bounds, std::int64_t merged);

// Micro-batches end to end, `merged` in each; the last may have fewer.
std::vector<TokenBatch> merge_micro_batches(std::vector<TokenBatch> batches, std::int64_t merged);

}  // namespace garam
