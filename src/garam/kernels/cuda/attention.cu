#include <cstdint>

#include "garam/core/error.h"
#include "garam/kernels/cuda/attention.h"
#include "garam/kernels/cuda/attention_delta.cuh"
#include "garam/kernels/cuda/attention_f32.cuh"
#include "garam/kernels/cuda/attention_head_dim.h"
#include "garam/kernels/cuda/attention_join.cuh"
#include "garam/kernels/cuda/warp_group.cuh"

namespace garam::cuda {
namespace {

bool is_vector(const Rows& rows, std::int64_t element) {
    return reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 && rows.pitch * element % 16 == 0;
}
template <typename... More>
bool are_vectors(const AttentionWork& work, const More&... more) {
    const std::int64_t element = static_cast<std::int64_t>(size_of(work.dtype));
    return work.head_dim * element % 16 == 0 && is_vector(work.q, element) &&
           is_vector(work.k, element) && is_vector(work.v, element) &&
           is_vector(work.out, element) && (... && is_vector(more, element));
}

// Which code of this file runs on the card shows in what is known of a kernel: with wgmma (sm_90a) or
// without (compiled from PTX of an older architecture, or for another card).
constexpr int kMarkedThreads = 64;
__global__ void
#ifdef GARAM_WARP_GROUPS
__launch_bounds__(kMarkedThreads)
#endif
    warp_groups_marker() {
}
bool has_warp_groups(const AttentionWork& work) {
    static const bool kCompiled = [] {
        cudaFuncAttributes attributes{};
        return cudaFuncGetAttributes(&attributes, warp_groups_marker) == cudaSuccess &&
               attributes.maxThreadsPerBlock == kMarkedThreads;
    }();
    constexpr std::int64_t kSharedBytes = 227 * 1024;
    return kCompiled && work.shared_bytes >= kSharedBytes;
}

// Calls body with the instantiation for this head_dim.
template <int kHeadDim, bool kVector>
struct Instance {
    static constexpr int head_dim = kHeadDim;
    static constexpr bool vector = kVector;
};
template <typename Body>
void for_head_dim(std::int64_t head_dim, bool vector, const Body& body) {
    if (head_dim > kMostHeadDim) throw Bug("attention: head_dim beyond 256");
    if (vector) {
        if (head_dim <= 64) return body(Instance<64, true>{});
        if (head_dim <= 80) return body(Instance<80, true>{});
        if (head_dim <= 96) return body(Instance<96, true>{});
        if (head_dim <= 128) return body(Instance<128, true>{});
        return body(Instance<256, true>{});
    }
    if (head_dim <= 64) return body(Instance<64, false>{});
    if (head_dim <= 128) return body(Instance<128, false>{});
    return body(Instance<256, false>{});
}

template <typename Body>
void for_group_head_dim(std::int64_t head_dim, const Body& body) {
    if (head_dim <= 64) return body(Instance<64, true>{});
    if (head_dim <= 80) return body(Instance<80, true>{});
    if (head_dim <= 96) return body(Instance<96, true>{});
    body(Instance<128, true>{});
}
constexpr std::int64_t kMostGroupHeadDim = 128;

void forward(StreamHandle stream, const AttentionWork& work) {
    if (work.q_tokens == 0) return;
    if (work.dtype == DType::f32) return launch_plain_forward(stream, work);
    if (work.head_dim <= kMostGroupHeadDim && are_vectors(work) && has_warp_groups(work))
        return for_group_head_dim(work.head_dim, [&](auto instance) {
            launch_group_forward<instance.head_dim>(stream, work);
        });
    for_head_dim(work.head_dim, are_vectors(work), [&](auto instance) {
        launch_attention_forward<instance.head_dim, instance.vector>(stream, work);
    });
}

void backward(StreamHandle stream, const AttentionWork& work, const AttentionGradients& requested) {
    if (work.q_tokens == 0) return;
    AttentionGradients gradients = requested;
    const bool vector = are_vectors(work, gradients.dout, gradients.dq, gradients.dk, gradients.dv);
    if (work.dtype == DType::f32) {
        launch_attention_delta<float>(stream, work, gradients, vector);
        return launch_plain_backward(stream, work, gradients);
    }
    const bool groups =
        work.head_dim <= kMostGroupHeadDim && vector && work.softcap == 0 && has_warp_groups(work);
    if (gradients.parts == 0)
        gradients.parts =
            attention_parts(work.q_tokens, work.heads, work.kv_heads, work.multiprocessors,
                            groups ? kAttentionGroupKeyTile : kAttentionKeyTile);
    if (gradients.parts > 1 && gradients.parts * work.q_tokens > gradients.part_rows)
        throw Bug("attention_backward: parts beyond their scratch");
    if (groups)
        for_group_head_dim(work.head_dim, [&](auto instance) {
            launch_group_backward<instance.head_dim>(stream, work, gradients);
        });
    else
        for_head_dim(work.head_dim, vector, [&](auto instance) {
            launch_attention_backward<instance.head_dim, instance.vector>(stream, work, gradients);
        });
    if (gradients.parts > 1) launch_attention_parts(stream, work, gradients, vector);
}

void decode(StreamHandle stream, const AttentionWork& work, const AttentionSplits& splits) {
    if (work.q_tokens == 0) return;
    if (work.dtype == DType::f32) {
        launch_plain_chunks(stream, work, splits);
        return launch_attention_join<float>(stream, work, splits);
    }
    for_head_dim(work.head_dim, are_vectors(work), [&](auto instance) {
        launch_attention_chunks<instance.head_dim, instance.vector>(stream, work, splits);
    });
    launch_attention_join<Bf16>(stream, work, splits);
}

}  // namespace

const AttentionKernels& attention_kernels() {
    static const AttentionKernels kKernels{forward, backward, decode};
    return kKernels;
}

}  // namespace garam::cuda
