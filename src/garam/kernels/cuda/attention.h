// Attention on a card (see ops/attention.h). bf16 runs in tiles on the tensor cores: by wgmma where the card
// and the compiled code have it (sm_90a) and rows allow vectors, by mma.sync from sm_80 on elsewhere; f32 in
// plain products, exact and slow, for tests.
//
// The cut into tiles depends only on a segment's own lengths, and every sum has one order: the bits of a
// row do not depend on what lies beside its segment, nor on how the queries before it were batched.
#pragma once

#include <cstdint>

#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

struct AttentionWork {
    DType dtype = DType::f32;  // of all Rows
    Rows q, k, v, out;
    float* lse = nullptr;
    std::int64_t lse_pitch = 0;
    const std::int32_t* cu_q = nullptr;  // device memory, [segments + 1]
    const std::int32_t* cu_k = nullptr;
    std::int64_t segments = 0;
    std::int64_t q_tokens = 0, k_tokens = 0;  // rows of q and of k: bounds of cu_q and cu_k
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
    float scale = 0;
    std::int64_t window = 0;  // 0: none
    float softcap = 0;        // 0: none
    int multiprocessors = 1;
    std::int64_t shared_bytes = 0;  // that a block may have
};

struct AttentionGradients {
    Rows dout, dq, dk, dv;
    float* delta = nullptr;  // [q_tokens, heads], scratch: row sums of dout * out
    // Scratch for more than one part: [parts, 2 (dk, dv), q_tokens, kv_heads * head_dim], and the rows of
    // 2 x kv_heads * head_dim that it has.
    float* part_sums = nullptr;
    std::int64_t part_rows = 0;
    std::int64_t parts = 0;  // 0: as attention_parts says
};

// A block sums dk and dv of one tile of keys over the query heads that share them. Where these are too few
// blocks for the card, the query heads are divided into parts, summed apart and then added.
constexpr std::int64_t kAttentionKeyTile = 64;        // by mma.sync
constexpr std::int64_t kAttentionGroupKeyTile = 128;  // by wgmma
constexpr std::int64_t attention_parts(std::int64_t q_tokens, std::int64_t heads,
                                       std::int64_t kv_heads, std::int64_t multiprocessors,
                                       std::int64_t key_tile) {
    const std::int64_t group = heads / kv_heads;
    const std::int64_t blocks = (q_tokens + key_tile - 1) / key_tile * kv_heads;
    std::int64_t parts = 1;
    while (parts < group && (blocks * parts < 2 * multiprocessors || group % parts != 0))
        ++parts;
    return parts;
}

// Rows that the parts take with either tile, or fewer tokens would: what is planned for a large batch covers
// the smaller ones.
constexpr std::int64_t attention_part_rows(DType dtype, std::int64_t q_tokens, std::int64_t heads,
                                           std::int64_t kv_heads, std::int64_t multiprocessors) {
    const std::int64_t group = heads / kv_heads;
    if (dtype != DType::bf16 || group == 1) return 0;
    // With more tokens there is one part, since its blocks are enough.
    const std::int64_t blocks = (2 * multiprocessors + kv_heads - 1) / kv_heads;
    const std::int64_t most = blocks * kAttentionGroupKeyTile;
    return group * (q_tokens < most ? q_tokens : most);
}

// Few queries against long caches: the keys of a segment are cut into chunks of kAttentionChunk, each
// chunk gives its own softmax, and a second kernel joins the chunks in their order.
constexpr std::int64_t kAttentionChunk = 128;
// Query rows of a segment up to which the chunks pay: beyond, the tiles are full enough.
constexpr std::int64_t kMostSplitQueries = 8;

// Room for the chunks of all segments: chunks, and queries of a segment at most.
struct AttentionSplits {
    std::int64_t chunks = 0;
    std::int64_t queries = 0;
    float* sums = nullptr;  // [chunks, queries, heads, head_dim]: softmax of the chunk times v
    float* lse = nullptr;   // [chunks, queries, heads]: log sum exp of the chunk's scores, base 2
};
constexpr std::int64_t attention_chunks(std::int64_t k_tokens, std::int64_t segments) {
    return k_tokens / kAttentionChunk + segments;
}

constexpr std::int64_t kMostHeadDim = 256;

struct AttentionKernels {
    void (*forward)(StreamHandle stream, const AttentionWork& work);
    // lq == lk in every segment. dq may lie over out, which only the block that writes a row of dq reads,
    // before; dk and dv over k and v, likewise of their block, after dq is done.
    void (*backward)(StreamHandle stream, const AttentionWork& work,
                     const AttentionGradients& gradients);
    // The forward of segments of at most splits.queries queries.
    void (*decode)(StreamHandle stream, const AttentionWork& work, const AttentionSplits& splits);
};
const AttentionKernels& attention_kernels();

}  // namespace garam::cuda
