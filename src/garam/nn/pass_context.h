// How a pass through the layers runs: which positions, which segments, whether what the backward needs is
// kept.
#pragma once

#include "garam/nn/linear.h"
#include "garam/ops/attention.h"

namespace garam {

struct RotaryTables {
    Tensor cos;  // f32 [positions, rotary_dim / 2]
    Tensor sin;
};

struct PassContext {
    AttentionSegments segments;
    Tensor positions;  // i32 [tokens]
    RotaryTables rotary;
    DropoutContext dropout;
    bool keep = false;  // keep activations on the arena's low end
};

// Memory for what a forward makes: kept for the backward, or scratch of the enclosing scope.
Tensor make_activation(Stream& stream, const PassContext& pass, DType dtype, const Shape& shape);

}  // namespace garam
