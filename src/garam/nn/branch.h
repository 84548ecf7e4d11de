// The two ends of a branch of a block, of attention or MLP: what its first projection reads of the residual
// stream, and how the output of its last one is added to it,
//
//   input = norm(x)                            x itself where there is no norm
//   out   = x + factor * norm(projection(…))   or without that norm, or with a factor of 1
//
// Tensors [tokens, …] of the compute dtype.
#pragma once

#include "garam/nn/norm.h"
#include "garam/nn/pass_context.h"
#include "garam/nn/projection.h"

namespace garam {

// The wide input of `next`; `rstd` where a norm's backward follows.
void begin_branch(Stream& stream, const RmsNorm& norm, const PassContext& pass, const Tensor& x,
                  const Projection& next, Tensor& input, Tensor& rstd);
// What begin_branch() made, or the same again in scratch memory where the pass's policy dropped it.
Tensor begin_branch_again(Stream& stream, const RmsNorm& norm, const PassContext& pass,
                          const Tensor& x, const Projection& next, const Tensor& kept);
// dinput [tokens, features]; adds to dx [tokens, features], which holds the residual stream's gradient.
void begin_branch_backward(Stream& stream, const RmsNorm& norm, const Tensor& dinput,
                           const Tensor& x, const Tensor& rstd, const Tensor& dx);

struct BranchEnd {
    RmsNorm norm;
    float factor = 1;
    // The projection adds to the residual stream by itself.
    bool is_sum() const { return !norm && factor == 1; }
};
struct BranchEndSaved {
    Tensor projected, rstd;
};

// input: the wide input of `last`. x and out must be different memory.
void end_branch(Stream& stream, const BranchEnd& end, const Projection& last,
                const PassContext& pass, const Tensor& input, const Tensor& x, const Tensor& out,
                ProjectionSaved& last_saved, BranchEndSaved& saved);
// What of the above a backward needs, where it was not kept.
void end_branch_again(Stream& stream, const BranchEnd& end, const Projection& last,
                      const PassContext& pass, const Tensor& input, const Tensor& x,
                      ProjectionSaved& last_saved, BranchEndSaved& saved);
// The same of one row (projects_one_row()), made by `project(y, addend)`.
template <typename Project>
void end_branch_of_row(Stream& stream, const BranchEnd& end, const PassContext& pass,
                       const Tensor& x, const Tensor& out, Project project);
// out = x + factor * norm(projected), where the end is no sum.
void add_branch(Stream& stream, const BranchEnd& end, const PassContext& pass, const Tensor& x,
                const Tensor& out, BranchEndSaved& saved);
// Memory for saved.projected.
Tensor branch_output(Stream& stream, const BranchEnd& end, const PassContext& pass,
                     const Tensor& x);

// The gradient of the projection's output, wide: in dx (d(out), wide) itself, or in scratch memory.
Tensor end_branch_backward(Stream& stream, const BranchEnd& end, const Projection& last,
                           const BranchEndSaved& saved, const Tensor& dx);

template <typename Project>
void end_branch_of_row(Stream& stream, const BranchEnd& end, const PassContext& pass,
                       const Tensor& x, const Tensor& out, Project project) {
    if (end.is_sum()) return project(out, x);
    BranchEndSaved saved;
    saved.projected = branch_output(stream, end, pass, x);
    project(saved.projected, Tensor());
    add_branch(stream, end, pass, x, out, saved);
}

}  // namespace garam
