// How a pass through the layers runs: which positions, which segments, whether what the backward needs is
// kept.
#pragma once

#include <algorithm>

#include "garam/nn/linear.h"
#include "garam/ops/attention.h"

namespace garam {

struct RotaryTables {
    Tensor cos;  // f32 [rows, rotary_dim / 2]
    Tensor sin;
};

// What of a block's activations the forward does not keep for the backward, which then makes it again by
// the same ops: each value includes the ones before.
enum class Recompute : std::uint8_t {
    nothing,
    norms_and_activation,  // normed inputs and silu(gate) * up: no product
    gate_up,               // one product: half of the MLP's forward
    block,                 // all but the block's input
    offload,               // the same, and the input waits in pinned host memory
};
// Names of train.gradient_checkpointing: "none", "norms+activation", "gate_up", "block", "offload".
const char* name_of(Recompute recompute);

class WeightStream;

struct PassContext {
    AttentionSegments segments;
    Tensor positions;    // i32 [tokens]
    Tensor rotary_rows;  // i32 [tokens]: of the rotary tables, where there is no cache
    // With a cache: the row of position 0.
    std::int64_t first_rotary_row = 0;
    DropoutContext dropout;
    bool keep = false;      // keep activations on the arena's low end
    bool decoding = false;  // no backward follows; one token goes by kernels of its own
    Recompute recompute = Recompute::nothing;
    WeightStream* weights = nullptr;  // of projections that are decoded when they are used
    // What looks at each token by itself runs over so many at a time, so that nothing as wide as an MLP is as
    // long as the batch; 0: over all. Only sums over tokens, gradients of parameters, change their order.
    std::int64_t tile = 0;
    bool keeps(Recompute from) const { return keep && recompute < from; }
};

// Tokens [begin, end) of a pass as one tile, for what looks at each by itself: without segments.
PassContext tokens_of(const PassContext& pass, std::int64_t begin, std::int64_t end);
// run(begin, end) for each tile of a pass.
template <typename Run>
void for_tiles(const PassContext& pass, std::int64_t tokens, Run run) {
    const std::int64_t tile = pass.tile > 0 ? pass.tile : tokens;
    for (std::int64_t begin = 0; begin < tokens; begin += tile)
        run(begin, std::min(tokens, begin + tile));
}

// Memory for what a forward makes: kept for the backward, or scratch of the enclosing scope. `dropped_from`:
// the first policy under which the backward makes it again.
Tensor make_activation(Stream& stream, const PassContext& pass, DType dtype, const Shape& shape,
                       Recompute dropped_from = Recompute::block);

}  // namespace garam
