// One query of one sequence against its cache, with what decoding does ahead of it: q and k are turned, and k
// and v appended to the cache (ops/cached_attention.h has the contract). bf16, rows in vectors of 16 bytes.
//
// Floor: keys and values of the cache read once.
#pragma once

#include "garam/kernels/cuda/attention.h"

namespace garam::cuda {

struct AttentionStep {
    const void* key = nullptr;    // the new token's k [kv_heads * head_dim], not turned
    const void* value = nullptr;  // and v
    Rows cos, sin;                // f32 [table_rows, half]
    std::int64_t table_rows = 0, half = 0;
    // i32 [heads], zero before and after: blocks that are done with their chunk of a head's keys.
    std::int32_t* arrivals = nullptr;
};

// half 0: nothing turns. Tables are read in vectors.
constexpr bool attention_step_takes(std::int64_t head_dim, std::int64_t half) {
    return head_dim <= kMostHeadDim && head_dim % 8 == 0 && half % 8 == 0;
}

struct AttentionStepKernels {
    // work.q is the row of q, not turned; work.k and work.v the cache, whose last filled row becomes the new
    // token's; of the lengths only cu_k[1] counts; lse is not written. All that older work wrote into
    // the cache, cu_k and the tables may be read before the work ahead has ended.
    void (*run)(StreamHandle stream, const AttentionWork& work, const AttentionSplits& splits,
                const AttentionStep& step);
};
const AttentionStepKernels& attention_step_kernels();

}  // namespace garam::cuda
