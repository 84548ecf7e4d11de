#include "garam/core/error.h"
#include "garam/kernels/cuda/attention_decode.cuh"
#include "garam/kernels/cuda/attention_step.h"

namespace garam::cuda {
namespace {

void run(StreamHandle stream, const AttentionWork& work, const AttentionSplits& splits,
         const AttentionStep& step) {
    if (work.head_dim <= 64) return launch_attention_step<64>(stream, work, splits, step);
    if (work.head_dim <= 80) return launch_attention_step<80>(stream, work, splits, step);
    if (work.head_dim <= 96) return launch_attention_step<96>(stream, work, splits, step);
    if (work.head_dim <= 128) return launch_attention_step<128>(stream, work, splits, step);
    if (work.head_dim <= 256) return launch_attention_step<256>(stream, work, splits, step);
    throw Bug("attention: head_dim beyond 256");
}

}  // namespace

const AttentionStepKernels& attention_step_kernels() {
    static const AttentionStepKernels kKernels{run};
    return kKernels;
}

}  // namespace garam::cuda
