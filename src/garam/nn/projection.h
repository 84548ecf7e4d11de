// Linears that read the same input, computed together: q, k and v; gate and up; or one alone.
//
// y [tokens, out] has the parts' outputs beside each other. On the CPU each part is multiplied by itself
// (nn/linear.h), unless the weights were copied and have no adapter. On a card the weights of all parts lie
// in one matrix with the adapters around them,
//
//   packed = [ W | sB ]   [out + tail, in + tail]        (tail: see ops/lora.h)
//            [ A |  . ]
//
// so that y = [x | u] [W | sB]ᵀ and dx = [dy | dh] [W ; A] are one product each (or two, where a table says
// that these are faster for the shape: MatmulOptions::tail). For this x and dy have
// `tail` columns of their own behind the features: make them with projection_input() and
// projection_output(), and take the features with features(). Without an adapter, and on the CPU, tail
// is 0. With DoRA y is the product with its columns scaled, and dz = c ⊙ dy takes dy's place (ops/dora.h);
// with DoRA and dropout, where each part has an input of its own beside the adapter's, parts are multiplied
// by themselves.
#pragma once

#include <array>
#include <vector>

#include "garam/core/activation.h"
#include "garam/nn/linear.h"
#include "garam/nn/norm.h"
#include "garam/ops/lora.h"

namespace garam {

struct PassContext;

struct Projection {
    std::vector<Linear> parts;  // at most kMostParts, in the order of y's columns
    Tensor packed;              // empty: part by part
    Tensor bias;                // [out], all parts'; empty: none, or on the CPU
    LoraGroup lora;             // on a card
    Tensor dora_scale;          // f32 [out] of packed DoRA, 1 where a part has none; empty: plain
    std::int64_t tail = 0;
    // Of a base that is decoded when a pass needs it: its number in PassContext::weights, whose slot is the
    // memory of `packed` and of the parts' weights. -1: these are always there.
    int streamed = -1;
    // Of a streamed one that is only served: its A and sB where they stay, for single rows, which go by codes
    // (ops/quantized_row_matmul.h). Empty: a row goes as many do.
    Tensor row_A, row_B;

    static constexpr std::size_t kMostParts = 3;
    std::int64_t in_features() const { return parts.front().in_features(); }
    std::int64_t out_features() const;
    std::int64_t column(std::size_t part) const;  // where y's columns of a part begin
};

// Sets the columns that this projection's adapters take on a card: for `adapters` of rank `rank`.
std::int64_t projection_tail(std::int64_t adapters, std::int64_t rank);

struct ProjectionSaved {
    std::array<LinearSaved, Projection::kMostParts> parts;  // where they are not packed
    Tensor z;     // [tokens, out] of packed DoRA: before its columns are scaled
    Tensor kept;  // dropout's masks on a card (ops/lora.h)
    bool kept_is_written = false;
};

// [tokens, in + tail] for an input that the backward needs, [tokens, out + tail] for y and its gradient.
// Inputs are dropped under Recompute::norms_and_activation, outputs under gate_up.
Tensor projection_input(Stream& stream, const PassContext& pass, DType dtype, std::int64_t tokens,
                        const Projection& projection);
Tensor projection_output(Stream& stream, const PassContext& pass, DType dtype, std::int64_t tokens,
                         const Projection& projection);
inline Tensor features(const Tensor& wide, std::int64_t count) {
    return wide.slice_columns(0, count);
}

// x wide; y [tokens, out]; y = projection of x, plus `addend` (empty: nothing), a residual stream.
// Writes x's tail.
void projection_forward(Stream& stream, const Projection& projection, const PassContext& pass,
                        const Tensor& x, const Tensor& y, const Tensor& addend,
                        ProjectionSaved& saved);

// What of the above a backward needs: without the product, unless DoRA's backward reads it.
void projection_prepare(Stream& stream, const Projection& projection, const PassContext& pass,
                        const Tensor& x, ProjectionSaved& saved);

// Whether a pass takes the two below instead: one token of a card's decoding, whose input is made on the way
// to the product (ops/row_matmul.h), with codes where the matrix is streamed.
bool projects_one_row(const Projection& projection, const PassContext& pass, const Tensor& x);
// y [1, out] = projection of norm(x), or of activation(gate) * up, plus `addend`.
void project_norm(Stream& stream, const Projection& projection, const Tensor& x,
                  const RmsNorm& norm, const Tensor& y);
void project_activation(Stream& stream, const Projection& projection, Activation activation,
                        const Tensor& gate, const Tensor& up, const Tensor& y,
                        const Tensor& addend);

// Makes the tail of an input again whose features were made again.
void projection_refill(Stream& stream, const Projection& projection, const PassContext& pass,
                       const Tensor& x, const ProjectionSaved& saved);

// x and saved as the forward left them; dy wide, its tail is overwritten. Adds to the gradients of
// whatever is trained; writes dx [tokens, in] unless it is empty.
void projection_backward(Stream& stream, const Projection& projection, const PassContext& pass,
                         const Tensor& x, const ProjectionSaved& saved, const Tensor& dy,
                         const Tensor& dx);

}  // namespace garam
