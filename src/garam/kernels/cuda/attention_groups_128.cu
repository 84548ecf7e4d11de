#include "garam/kernels/cuda/attention_group_backward.cuh"
#include "garam/kernels/cuda/attention_group_forward.cuh"
#include "garam/kernels/cuda/attention_head_dim.h"

namespace garam::cuda {

template void launch_group_forward<128>(StreamHandle, const AttentionWork&);
template void launch_group_backward<128>(StreamHandle, const AttentionWork&,
                                         const AttentionGradients&);

}  // namespace garam::cuda
