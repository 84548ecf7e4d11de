// Causal multi-head attention over samples laid end to end (packed), with grouped key/value heads.
//
//   out[t] = sum over allowed s of softmax_s(score(t, s)) * v[s]
//   score  = scale * q[t] . k[s], or softcap * tanh(scale * q[t] . k[s] / softcap)
//
// q, out [q_tokens, num_heads * head_dim]; k, v [k_tokens, num_kv_heads * head_dim]; f32 or bf16,
// all the same; rows may have a pitch. Query head h uses key/value head h / (num_heads /
// num_kv_heads). Softmax and sums in fp32; on a card, and where the processor multiplies tiles of
// bf16, probabilities and score gradients of bf16 operands are rounded to bf16 for the products
// that follow. Memory is linear in the tokens (Dao, 2023: FlashAttention-2): only lse f32
// [q_tokens, num_heads] = log sum exp of the scores is kept for the backward.
//
// A card takes head_dim up to 256 (best 64, 80, 96, 128 and 256; others cost as much as the next of
// these) and scale > 0.
//
// Cost: 4 (forward) and 10 (backward) flops for each allowed (query, key) pair, head and head_dim entry,
// that is the products alone, without what flash recomputes; every operand moved once, of a cache the
// rows that are filled.
#pragma once

#include <cstdint>
#include <vector>

#include "garam/runtime/stream.h"

namespace garam {

// Segment i: queries [cu_q[i], cu_q[i+1]) attend to keys [cu_k[i], cu_k[i+1]). In training both are the
// batch's cu_seqlens. With more keys than queries (a KV cache) the queries are the last positions: query
// j of lq sees keys 0 … lk - lq + j. Host arrays: the op's cost depends on them.
// k and v may hold more rows than cu_k.back(): a cache that is not full.
//
// A card reads the same numbers from its own memory (`device_cu_q`, `device_cu_k`), so that work recorded
// once serves other lengths: of the host arrays it then needs only the number of segments, and grids are
// cut for tokens / block + segments tiles, of which those past the end do nothing.
struct AttentionSegments {
    std::vector<std::int32_t> cu_q;  // [segments + 1]
    std::vector<std::int32_t> cu_k;  // [segments + 1]
    Tensor device_cu_q;              // i32 [segments + 1]; empty on the CPU
    Tensor device_cu_k;
    // Most queries of one segment, now and in later lengths; 0: no promise. With few a card cuts the keys
    // of a long cache into pieces that many blocks share (Dao et al., 2023: Flash-Decoding), with
    // scratch for this many queries a segment.
    std::int64_t max_queries = 0;
};

struct AttentionShape {
    std::int64_t num_heads = 0;
    std::int64_t num_kv_heads = 0;
    std::int64_t head_dim = 0;
    float scale = 0;
    std::int64_t window = 0;  // query at position i sees keys i - window + 1 … i; 0: all up to i
    float softcap = 0;        // 0: none
};

void attention_forward(Stream& stream, const AttentionShape& shape,
                       const AttentionSegments& segments, const Tensor& q, const Tensor& k,
                       const Tensor& v, const Tensor& out, const Tensor& lse);

// Writes dq, dk, dv (dtype of q; overwritten). Needs q_tokens == k_tokens per segment. Fixed order of all
// sums. Scratch from the stream's arena. dq may be the memory of out, dk that of k, and dv that of v.
void attention_backward(Stream& stream, const AttentionShape& shape,
                        const AttentionSegments& segments, const Tensor& dout, const Tensor& q,
                        const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse,
                        const Tensor& dq, const Tensor& dk, const Tensor& dv);

}  // namespace garam
