// Where a new adapter's A and B begin. Each leaves the model as it is (B A is zero, or taken out of the base), but for
// loftq, which brings a quantised model nearer to what it was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "garam/core/tensor.h"

namespace garam {

// PEFT's init_lora_weights:
//   kaiming     (true) A uniform within 1 / sqrt(in), which is kaiming_uniform(a = sqrt 5); B zero
//   gaussian    A normal with deviation 1 / r; B zero
//   orthogonal  rows of an orthogonal [r, r] shared out: A = (X Q_even)ᵀ / 10, B = Y Q_odd / 10 with X and Y
//               normal, so that the rows that A and B are made of meet none of each other's
//   pissa       (pissa, pissa_niter_N) the leading part of the weight itself: models/pissa.h
//   loftq       the leading part of what quantising takes away: models/loftq.h
struct LoraInit {
    enum class Kind : std::uint8_t { kaiming, gaussian, orthogonal, pissa, loftq };
    Kind kind = Kind::kaiming;
    std::optional<std::int64_t> iterations = {};  // of pissa_niter_N
    bool is_pissa() const { return kind == Kind::pissa; }
    bool is_loftq() const { return kind == Kind::loftq; }
};

LoraInit lora_init_from_name(const std::string& name);

// A [r, in] and B [out, r], f32 in host memory; B comes cleared. `seed` and `number` name the random
// stream. Throws Error when orthogonal meets an odd rank. Not for pissa
// and loftq.
void initialise_lora(LoraInit::Kind init, std::uint64_t seed, std::uint64_t number, const Tensor& A,
                     const Tensor& B);

// Of the token embedding, whichever is chosen: A zero, B [hidden, r] normal of deviation 1.
void initialise_embedding_lora(std::uint64_t seed, std::uint64_t number, const Tensor& B);

}  // namespace garam
