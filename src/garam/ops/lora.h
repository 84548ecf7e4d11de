// The adapters of linears that read one input, computed together, as a card likes them (on the CPU
// nn/linear.h multiplies part by part). Layout and sums: docs/architecture.md, "LoRA on a card".
//
// `tail` columns follow x, y's gradient and the weights: part m owns columns [m r, (m + 1) r) of them,
// the rest is zero. With A and B so laid out
//   u  = [mask_0(x) A_0ᵀ | mask_1(x) A_1ᵀ | … | 0]          y  = [x | u] [W | sB]ᵀ      (nn/projection.h)
//   dh = dy (sB)                                            dx = [dy | dh] [W ; A]
// mask_m is dropout with module m's key and scale (ops/dropout.h), or nothing. All matrices f32 or bf16, one dtype;
// rows may have a pitch; sums in fp32, in a fixed order; gradients f32. tail is a multiple of 16.
//
// Cost: 2 flops for each multiply-add of the parts (not of zeros), 2 for each masked element; x or dy
// moved once.
#pragma once

#include <cstdint>
#include <vector>

#include "garam/runtime/stream.h"

namespace garam {

struct LoraPart {
    std::int64_t begin = 0;  // its rows of the stacked output: [begin, end)
    std::int64_t end = 0;
    std::uint32_t module = 0;  // dropout key
    Tensor A_gradient;         // f32 [r, in]; empty when nothing is trained
    Tensor B_gradient;         // f32 [end - begin, r]
};

struct LoraGroup {
    std::int64_t rank = 0;
    float scaling = 1;
    float dropout = 0;
    std::vector<LoraPart> parts;
    Tensor A;  // [tail, in]; rows of no part are zero
    Tensor B;  // [out, tail], times scaling; zero outside the parts' blocks
};

// The mask of this pass; `active` false: mask_m(x) = x.
//
// Where `kept` is given, lora_down leaves the masks there as bits and returns true; with `kept_is_written`
// the backward of the same tokens and group reads them in one kernel. Without, it is composed of dropout()
// and products, and so is whatever the kernels are not made for.
struct LoraMask {
    bool active = false;
    std::uint64_t seed = 0;
    Tensor step;       // i32 [1]
    Tensor positions;  // i32 [tokens]
    Tensor samples;    // i64 [tokens]
    Tensor kept = {};  // u8 [tokens, lora_kept_bytes()], dense; empty: not kept
    bool kept_is_written = false;
};
// Bytes a token of LoraMask::kept; 0: the masks of this group and width are not kept.
std::int64_t lora_kept_bytes(const LoraGroup& group, std::int64_t in);

// u [tokens, tail], all columns written; whether mask.kept is. (With kept_is_written it makes the same masks
// again.) Dropout's scale multiplies sums, not each masked element, where one kernel does it all (bf16, ranks
// 8 to 64 that are powers of two: kernels/cuda/lora.h); so in the others.
bool lora_down(Stream& stream, const LoraGroup& group, const LoraMask& mask, const Tensor& x,
               const Tensor& u);

// dh [tokens, tail] = dy B, all columns written; B_gradient_m += scaling * dy_mᵀ u_m. One read of dy.
void lora_up_backward(Stream& stream, const LoraGroup& group, const Tensor& dy, const Tensor& u,
                      const Tensor& dh);

// A_gradient_m += dh_mᵀ mask_m(x). One read of x.
void lora_down_backward(Stream& stream, const LoraGroup& group, const LoraMask& mask,
                        const Tensor& x, const Tensor& dh);

// dx [tokens, in] += sum over parts of mask_m(dh_m A_m). Where no mask is active the product
// [dy | dh] [W ; A] has this term already.
void lora_input_backward(Stream& stream, const LoraGroup& group, const LoraMask& mask,
                         const Tensor& dh, const Tensor& dx);

}  // namespace garam
