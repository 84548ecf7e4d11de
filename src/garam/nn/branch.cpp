#include "garam/nn/branch.h"

#include "garam/ops/elementwise.h"

namespace garam {
namespace {

// Where there is no norm and the input needs no columns of its own, it is x.
bool is_x(const RmsNorm& norm, const Projection& next) {
    return !norm && next.tail == 0;
}

void make_input(Stream& stream, const RmsNorm& norm, const Tensor& x, const Tensor& wide,
                const Tensor& rstd) {
    const Tensor input = features(wide, x.columns());
    if (norm) {
        norm_forward(stream, norm, x, input, rstd);
    } else {
        cast(stream, x, input);
    }
}

}  // namespace

void begin_branch(Stream& stream, const RmsNorm& norm, const PassContext& pass, const Tensor& x,
                  const Projection& next, Tensor& input, Tensor& rstd) {
    rstd = Tensor();
    if (is_x(norm, next)) {
        input = x;
        return;
    }
    input = projection_input(stream, pass, x.dtype(), x.rows(), next);
    if (norm && pass.keep) rstd = make_activation(stream, pass, DType::f32, {x.rows()});
    make_input(stream, norm, x, input, rstd);
}

Tensor begin_branch_again(Stream& stream, const RmsNorm& norm, const PassContext& pass,
                          const Tensor& x, const Projection& next, const Tensor& kept) {
    if (is_x(norm, next)) return x;
    if (pass.recompute < Recompute::norms_and_activation) return kept;
    const Tensor input =
        stream.arena().scratch(x.dtype(), {x.rows(), next.in_features() + next.tail});
    make_input(stream, norm, x, input, {});
    return input;
}

void begin_branch_backward(Stream& stream, const RmsNorm& norm, const Tensor& dinput,
                           const Tensor& x, const Tensor& rstd, const Tensor& dx) {
    if (norm) {
        norm_backward(stream, norm, dinput, x, rstd, dx, true);
    } else {
        add(stream, dx, dinput, dx);
    }
}

Tensor branch_output(Stream& stream, const BranchEnd& end, const PassContext& pass,
                     const Tensor& x) {
    // Only a norm's backward reads it.
    return end.norm ? make_activation(stream, pass, x.dtype(), x.shape())
                    : stream.arena().scratch(x.dtype(), x.shape());
}

void add_branch(Stream& stream, const BranchEnd& end, const PassContext& pass, const Tensor& x,
                const Tensor& out, BranchEndSaved& saved) {
    if (end.norm) {
        saved.rstd = pass.keep ? make_activation(stream, pass, DType::f32, {x.rows()}) : Tensor();
        norm_forward(stream, end.norm, saved.projected, out, saved.rstd);
    }
    if (end.factor != 1) scale(stream, end.norm ? out : saved.projected, end.factor, out);
    add(stream, x, out, out);
}

void end_branch(Stream& stream, const BranchEnd& end, const Projection& last,
                const PassContext& pass, const Tensor& input, const Tensor& x, const Tensor& out,
                ProjectionSaved& last_saved, BranchEndSaved& saved) {
    if (end.is_sum()) {
        projection_forward(stream, last, pass, input, out, x, last_saved);
        return;
    }
    saved.projected = branch_output(stream, end, pass, x);
    projection_forward(stream, last, pass, input, saved.projected, {}, last_saved);
    add_branch(stream, end, pass, x, out, saved);
}

void end_branch_again(Stream& stream, const BranchEnd& end, const Projection& last,
                      const PassContext& pass, const Tensor& input, const Tensor& x,
                      ProjectionSaved& last_saved, BranchEndSaved& saved) {
    if (!end.norm) {
        projection_prepare(stream, last, pass, input, last_saved);
        return;
    }
    const ScratchScope scope(stream.arena());
    const Tensor out = stream.arena().scratch(x.dtype(), x.shape());
    end_branch(stream, end, last, pass, input, x, out, last_saved, saved);
}

Tensor end_branch_backward(Stream& stream, const BranchEnd& end, const Projection& last,
                           const BranchEndSaved& saved, const Tensor& dx) {
    const std::int64_t hidden = last.out_features();
    if (end.is_sum()) return features(dx, hidden + last.tail);
    const Tensor wide = stream.arena().scratch(dx.dtype(), {dx.rows(), hidden + last.tail});
    const Tensor dprojected = features(wide, hidden);
    Tensor from = features(dx, hidden);
    if (end.factor != 1) {
        scale(stream, from, end.factor, dprojected);
        from = dprojected;
    }
    if (end.norm)
        norm_backward(stream, end.norm, from, saved.projected, saved.rstd, dprojected, false);
    return wide;
}

}  // namespace garam
