#include "garam/kernels/cuda/map_rows.cuh"
#include "garam/kernels/cuda/rotary.h"

namespace garam::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kHeadsAThread = 4;  // share the entries of the tables

// A thread turns the same N pairs of up to kHeadsAThread heads of one token. Neighbouring threads
// have neighbouring pairs, then the next head.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    turn(const __grid_constant__ Rotary work, int groups, int slots) {
    let_next_begin();
    wait_for_previous();
    const std::int64_t row_threads = static_cast<std::int64_t>(groups) * slots;
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (index >= work.tokens * row_threads) return;
    std::int64_t token = 0;
    int place = 0;
    if (index <= 0x7fffffff) {  // a division of 32 bits takes a fraction of the time
        token = static_cast<std::uint32_t>(index) / static_cast<std::uint32_t>(row_threads);
        place = static_cast<int>(index - token * row_threads);
    } else {
        token = index / row_threads;
        place = static_cast<int>(index % row_threads);
    }
    const int slot = place / groups;
    const int pair = (place - slot * groups) * N;

    const std::int64_t position = work.positions[token];
    float c[N], s[N];
    if (position >= 0 && position < work.table_rows) {
        const float* const cos =
            static_cast<const float*>(work.cos.data) + position * work.cos.pitch + pair;
        const float* const sin =
            static_cast<const float*>(work.sin.data) + position * work.sin.pitch + pair;
        constexpr int M = N < 4 ? N : 4;
#pragma unroll
        for (int k = 0; k < N; k += M) {
            const auto cos_part = load_vector<M>(cos + k);
            const auto sin_part = load_vector<M>(sin + k);
#pragma unroll
            for (int i = 0; i < M; ++i) {
                c[k + i] = cos_part.at[i];
                s[k + i] = work.inverse ? -sin_part.at[i] : sin_part.at[i];
            }
        }
    } else {
#pragma unroll
        for (int k = 0; k < N; ++k)
            c[k] = s[k] = NAN;
    }

    T* const row = static_cast<T*>(work.x.data) + token * work.x.pitch + pair;
    Vector<T, N> first[kHeadsAThread], second[kHeadsAThread];
#pragma unroll
    for (int u = 0; u < kHeadsAThread; ++u) {
        const std::int64_t head = slot + static_cast<std::int64_t>(u) * slots;
        if (head >= work.heads) break;
        first[u] = load_vector<N>(row + head * work.head_dim);
        second[u] = load_vector<N>(row + head * work.head_dim + work.half);
    }
#pragma unroll
    for (int u = 0; u < kHeadsAThread; ++u) {
        const std::int64_t head = slot + static_cast<std::int64_t>(u) * slots;
        if (head >= work.heads) break;
#pragma unroll
        for (int k = 0; k < N; ++k) {
            const float a = to_float(first[u].at[k]);
            const float b = to_float(second[u].at[k]);
            first[u].at[k] = from_float<T>(a * c[k] - b * s[k]);
            second[u].at[k] = from_float<T>(b * c[k] + a * s[k]);
        }
        store_vector(row + head * work.head_dim, first[u]);
        store_vector(row + head * work.head_dim + work.half, second[u]);
    }
}

template <typename T, int N>
void launch(StreamHandle stream, const Rotary& work) {
    const std::int64_t groups = work.half / N;
    const std::int64_t slots = (work.heads + kHeadsAThread - 1) / kHeadsAThread;
    const std::int64_t blocks = (work.tokens * groups * slots + kThreads - 1) / kThreads;
    launch_early(turn<T, N>, static_cast<unsigned>(blocks), kThreads, 0, stream, work,
                 static_cast<int>(groups), static_cast<int>(slots));
    check_launch("rotary");
}

template <typename T>
void run_of(StreamHandle stream, const Rotary& work) {
    constexpr int N = kVector<T>;
    const bool wide = work.half % N == 0 && work.head_dim % N == 0 && rows_allow<T, N>(work.x) &&
                      rows_allow<float, 4>(work.cos) && rows_allow<float, 4>(work.sin);
    if (wide)
        launch<T, N>(stream, work);
    else
        launch<T, 1>(stream, work);
}

void run(StreamHandle stream, const Rotary& work) {
    if (work.tokens == 0 || work.heads == 0 || work.half == 0) return;
    if (work.dtype == DType::bf16)
        run_of<__nv_bfloat16>(stream, work);
    else
        run_of<float>(stream, work);
}

}  // namespace

const RotaryKernels& rotary_kernels() {
    static const RotaryKernels kKernels{run};
    return kKernels;
}

}  // namespace garam::cuda
