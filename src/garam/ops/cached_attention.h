// Attention of the next tokens of one sequence, whose keys and values are in a cache. As three ops in a row:
//
//   rotary             of q and k, by `positions`
//   store_rows         k and v to the rows `positions` of the cache
//   attention_forward  of q against the cache's keys and values
//
// qkv [tokens, (num_heads + 2 num_kv_heads) * head_dim]: q, k and v beside each other; overwritten. cache
// [capacity, 2 num_kv_heads * head_dim]: keys and values beside each other. cos, sin, positions as in
// ops/rotary.h; the positions end with cu_k.back() - 1, one each. out [tokens, num_heads * head_dim]. One
// dtype, f32 or bf16, but for the tables. Empty tables: q and k are not turned.
//
// One token of bf16 is one kernel on a card, which does not write qkv. It needs `arrivals`, i32 [num_heads],
// zero before and after (empty: three ops), and may read what the cache, the tables and the segments hold
// while the work ahead still runs: only qkv may be that work's.
//
// Cost: as of the three ops, with qkv read once and the cache's older rows once.
#pragma once

#include "garam/ops/attention.h"

namespace garam {

struct AttentionCache {
    Tensor keys_and_values;
    Tensor arrivals;
};

void cached_attention(Stream& stream, const AttentionShape& shape,
                      const AttentionSegments& segments, const Tensor& qkv, const Tensor& cos,
                      const Tensor& sin, const Tensor& positions, const AttentionCache& cache,
                      const Tensor& out);

}  // namespace garam
