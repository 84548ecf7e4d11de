// A root-mean-square norm with its weight: of rows, or of the heads within them.
#pragma once

#include "garam/ops/rms_norm.h"

namespace garam {

struct RmsNorm {
    Tensor weight;           // empty: there is no norm here
    Tensor weight_gradient;  // f32, or empty
    float eps = 1e-6f;
    RmsNormOptions options;
    explicit operator bool() const { return static_cast<bool>(weight); }
};

// The ops of ops/rms_norm.h.
inline void norm_forward(Stream& stream, const RmsNorm& norm, const Tensor& x, const Tensor& y,
                         const Tensor& rstd) {
    rms_norm_forward(stream, x, norm.weight, norm.eps, y, rstd, norm.options);
}
inline void norm_backward(Stream& stream, const RmsNorm& norm, const Tensor& dy, const Tensor& x,
                          const Tensor& rstd, const Tensor& dx, bool accumulate_dx) {
    rms_norm_backward(stream, dy, x, norm.weight, rstd, dx, accumulate_dx, norm.weight_gradient,
                      norm.options);
}

}  // namespace garam
