// PiSSA (Meng, Wang, Zhang: "PiSSA: principal singular values and singular vectors adaptation", NeurIPS 2024):
// an adapter that begins as the leading part of its weight, which is taken out of the base:
//
//   W = U S Vᵀ,  A = diag(sqrt(S_r / s)) V_rᵀ,  B = U_r diag(sqrt(S_r / s)),  base = W - s B A
//
// so that the model is as it was. What has learned belongs to that base; for the base on the disk it is an
// ordinary adapter of twice the rank, [B, -B0] [A; A0] with the A0 and B0 that it began with, as PEFT's
// path_initial_model_for_weight_conversion writes it.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "garam/io/lora_settings.h"
#include "garam/models/host_products.h"

namespace garam {

// Writes A [r, in] and B [out, r] of w [out, in]: f32 in host memory. Their values are ones that `place`, the
// dtype that the model computes in, holds exactly: what it computes is then what was taken out.
void pissa_factors(HostProducts& products, const Tensor& w, double scaling,
                   std::optional<std::int64_t> iterations, DType place, std::uint64_t seed,
                   std::uint64_t number, const Tensor& A, const Tensor& B);

// w -= s B A
void take_out(HostProducts& products, const Tensor& w, double scaling, const Tensor& A,
              const Tensor& B);

// Settings of the ordinary adapter: ranks are doubled, and alphas so that no scale changes.
LoraSettings doubled(LoraSettings settings);

// [A; A0] and [B, -B0]
std::vector<float> doubled_a(const Tensor& A, const Tensor& A0);
std::vector<float> doubled_b(const Tensor& B, const Tensor& B0);

}  // namespace garam
