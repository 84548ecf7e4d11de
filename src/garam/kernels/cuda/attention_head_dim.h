// The bf16 kernels by head_dim, rounded up to one of the instantiations 64, 80, 96, 128 and 256: one
// source file each (attention_head_*.cu, attention_groups_*.cu).
#pragma once

#include "garam/kernels/cuda/attention.h"

namespace garam::cuda {

// kVector: all rows begin at multiples of 16 bytes, and head_dim is a multiple of 8. Without, only 64,
// 128 and 256 exist.
template <int kHeadDim, bool kVector>
void launch_attention_forward(StreamHandle stream, const AttentionWork& work);
template <int kHeadDim, bool kVector>
void launch_attention_backward(StreamHandle stream, const AttentionWork& work,
                               const AttentionGradients& gradients);
template <int kHeadDim, bool kVector>
void launch_attention_chunks(StreamHandle stream, const AttentionWork& work,
                             const AttentionSplits& splits);

// By products of warp groups, rows that allow vectors, head_dim <= 128. Of the backward's two kernels, those
// that gain by it; no soft cap there.
template <int kHeadDim>
void launch_group_forward(StreamHandle stream, const AttentionWork& work);
template <int kHeadDim>
void launch_group_backward(StreamHandle stream, const AttentionWork& work,
                           const AttentionGradients& gradients);

}  // namespace garam::cuda
