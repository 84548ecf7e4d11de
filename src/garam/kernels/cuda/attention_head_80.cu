#include "garam/kernels/cuda/attention_backward.cuh"
#include "garam/kernels/cuda/attention_decode.cuh"
#include "garam/kernels/cuda/attention_forward.cuh"
#include "garam/kernels/cuda/attention_head_dim.h"

namespace garam::cuda {

template void launch_attention_forward<80, true>(StreamHandle, const AttentionWork&);
template void launch_attention_backward<80, true>(StreamHandle, const AttentionWork&,
                                                  const AttentionGradients&);
template void launch_attention_chunks<80, true>(StreamHandle, const AttentionWork&,
                                                const AttentionSplits&);

}  // namespace garam::cuda
