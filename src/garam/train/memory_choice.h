// How a run uses the memory that there is: what the backward makes again, how many of the micro-batches that an
// optimiser step accumulates are run as one, in what tiles of tokens, how many projections of a quantised base stay
// decoded, and whether the optimiser's states and the masters of what is trained wait on the host. None changes what is
// computed, but for merging and tiles the order of sums.
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
    EvaluationBounds evaluation;
    std::int64_t accumulation = 1;
    bool chooses_recompute = false;  // gradient_checkpointing=auto; else engine.recompute holds
    std::int64_t merged = 0;         // micro-batches run as one; 0: choose
    std::int64_t limit = 0;          // bytes that garam may reserve on the device; 0: what is free
    std::int64_t host_limit = 0;     // of pinned memory; 0: half of the host's
    bool in_tiles = false;           // a named policy is to run in tiles (…+tiles)
    // PassContext::tile as an earlier part of the run had it; empty: choose.
    std::optional<std::int64_t> tile = {};
};

struct MemoryChoice {
    Recompute recompute = Recompute::nothing;
    std::int64_t tile = 0;
    std::int64_t merged = 1;
    std::int64_t resident_projections = Decoder::kAllProjections;
    MemoryPlan plan;
    std::int64_t room = 0;         // what the plan may have
    std::int64_t pinned_room = 0;  // … of pinned host memory
    bool fits = true;
    bool paged_states = false;  // the optimiser's, whether it was named so or not
    bool masters_on_host = false;

    // Sets what was chosen, but for the merging.
    void apply_to(EngineOptions& engine) const;
};

// Of the plans that fit the room (the limit, or what is free less what the driver needs) and the host's (host_limit, or
// half of its memory), the one whose step is expected to be the fastest (train/step_time.h); of
// such within a percent that which recomputes less. Inputs of blocks wait in pinned host memory
// (Recompute::offload) on a card only. As many projections stay decoded as fit. On a card AdamW's
// states are paged where nothing fits otherwise but in tiles of tokens, which are the last resort;
// where not even these fit, the masters of what is trained wait in pinned host memory, too. Where
// still nothing fits, the smallest plan: of those that the host has room for, or else the one that pins least.
MemoryChoice choose_memory(const MemoryQuestion& question);

// Tokens of the longest sample that fits as the only one of a micro-batch, all of them targets; 0: not even a
// short one does. To a multiple of 64, and a tenth of a percent.
std::int64_t longest_sample(MemoryQuestion question);

// Bounds of `merged` micro-batches run as one.
BatchBounds merged_bounds(const BatchBounds& bounds, std::int64_t merged);

// Micro-batches end to end, `merged` in each; the last may have fewer.
std::vector<TokenBatch> merge_micro_batches(std::vector<TokenBatch> batches, std::int64_t merged);

}  // namespace garam
