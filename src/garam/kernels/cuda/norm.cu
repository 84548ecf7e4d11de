#include "garam/kernels/cuda/early_launch.cuh"
#include "garam/kernels/cuda/map_rows.cuh"
#include "garam/kernels/cuda/norm.h"

namespace garam::cuda {
namespace {

// N elements as they were loaded: bf16 stay two to a register.
template <typename T, int N>
struct alignas(sizeof(T) * N) Packed {
    T element[N];
    __device__ __forceinline__ float at(int k) const { return to_float(element[k]); }
};
template <int N>
requires(N % 2 == 0) struct alignas(2 * N) Packed<__nv_bfloat16, N> {
    std::uint32_t word[N / 2];
    __device__ __forceinline__ float at(int k) const {
        const std::uint32_t pair = word[k / 2];
        return __uint_as_float(k % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
    }
};
template <int N, typename T>
__device__ __forceinline__ Packed<T, N> load_packed(const T* from) {
    return *reinterpret_cast<const Packed<T, N>*>(from);
}

// A warp, or else all threads of a block, share a row. Each holds up to kHeldVectors vectors of
// kElements elements of it, stride() apart; 0: rows of any length, which are read again.
template <typename T, bool kWarpRows, int kHeldVectors, int kElements = kVector<T>>
struct Cut {
    using Element = T;
    static constexpr bool kByWarp = kWarpRows;
    static constexpr int kHeld = kHeldVectors;
    static constexpr int N = kElements;
    static constexpr int kThreads = kByWarp ? 128 : 256;  // of a block, at most
    static constexpr int kGroups = kByWarp ? kThreads / kWarp : 1;

    __device__ static __forceinline__ std::int64_t group() {
        if constexpr (kByWarp)
            return static_cast<std::int64_t>(blockIdx.x) * kGroups + threadIdx.x / kWarp;
        return blockIdx.x;
    }
    __device__ static __forceinline__ int column() {
        return static_cast<int>(kByWarp ? threadIdx.x % kWarp : threadIdx.x) * N;
    }
    __device__ static __forceinline__ int stride() {
        return (kByWarp ? kWarp : static_cast<int>(blockDim.x)) * N;
    }
    // Sum over the row, the same in all its threads; `shared` holds one float a warp.
    __device__ static __forceinline__ float sum(float x, float* shared) {
        x = warp_sum(x);
        if constexpr (kByWarp) return x;
        const int warps = static_cast<int>(blockDim.x) / kWarp;
        __syncthreads();  // the last sum has been read
        if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
        __syncthreads();
        float total = 0;
#pragma unroll
        for (int warp = 0; warp < kThreads / kWarp; ++warp)
            if (warp < warps) total += shared[warp];
        return total;
    }
    static unsigned blocks(std::int64_t groups) {
        return static_cast<unsigned>((groups + kGroups - 1) / kGroups);
    }
    // As many whole warps as a row of `hidden` elements needs.
    static unsigned threads(int hidden) {
        if (kByWarp) return kThreads;
        const int held = N * (kHeld > 0 ? kHeld : 1);
        const int needed = (hidden + held - 1) / held;
        return static_cast<unsigned>(std::min((needed + kWarp - 1) / kWarp * kWarp, kThreads));
    }
};

template <typename T, int N>
__device__ __forceinline__ float sum_of_squares(const Packed<T, N>& x, float sum) {
#pragma unroll
    for (int k = 0; k < N; ++k)
        sum = fmaf(x.at(k), x.at(k), sum);
    return sum;
}

// Where norm number `row` of `work` begins in one of its operands.
template <typename T, typename Work>
__device__ __forceinline__ T* row_of(const Work& work, const Rows& x, std::int64_t row) {
    T* const first = static_cast<T*>(x.data);
    if (work.heads == 1) return first + row * x.pitch;
    const auto number = static_cast<unsigned>(row);  // of a block or a warp: fits
    const auto heads = static_cast<unsigned>(work.heads);
    const unsigned token = number / heads;
    return first + token * x.pitch + static_cast<std::int64_t>(number % heads) * work.hidden;
}

template <typename T, int N>
__device__ __forceinline__ Vector<T, N> normed(const Packed<T, N>& x, const Packed<T, N>& weight,
                                               const NormWeight& by, float rstd) {
    Vector<T, N> y;
#pragma unroll
    for (int k = 0; k < N; ++k) {
        const float value = x.at(k) * rstd;
        const float factor = weight.at(k) + by.offset;
        y.at[k] = from_float<T>((by.rounds_once ? value : to_float(from_float<T>(value))) * factor);
    }
    return y;
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads)
    norm_forward(const __grid_constant__ NormForward work) {
    using T = typename C::Element;
    constexpr int N = C::N;
    __shared__ float sums[C::kThreads / kWarp];
    let_next_begin();
    wait_for_previous();
    const std::int64_t row = C::group();
    if (row >= work.rows) return;  // whole warps, and where a block shares a row, whole blocks
    const T* const x = row_of<T>(work, work.x, row);
    T* const y = row_of<T>(work, work.y, row);
    const T* const weight = static_cast<const T*>(work.weight.data);
    const int first = C::column();
    const int stride = C::stride();

    Packed<T, N> held[C::kHeld > 0 ? C::kHeld : 1];
    float squares = 0;
    if constexpr (C::kHeld > 0) {
#pragma unroll
        for (int u = 0; u < C::kHeld; ++u)
            if (first + u * stride < work.hidden) held[u] = load_packed<N>(x + first + u * stride);
#pragma unroll
        for (int u = 0; u < C::kHeld; ++u)
            if (first + u * stride < work.hidden) squares = sum_of_squares(held[u], squares);
    } else {
#pragma unroll 4
        for (int i = first; i < work.hidden; i += stride)
            squares = sum_of_squares(load_packed<N>(x + i), squares);
    }
    const float mean = C::sum(squares, sums) / static_cast<float>(work.hidden);
    const float rstd = 1.0f / sqrtf(mean + work.eps);
    if (work.rstd != nullptr && first == 0) work.rstd[row] = rstd;
    if constexpr (C::kHeld > 0) {
#pragma unroll
        for (int u = 0; u < C::kHeld; ++u) {
            const int i = first + u * stride;
            if (i < work.hidden)
                store_vector(y + i, normed(held[u], load_packed<N>(weight + i), work.weight, rstd));
        }
    } else {
#pragma unroll 4
        for (int i = first; i < work.hidden; i += stride)
            store_vector(y + i, normed(load_packed<N>(x + i), load_packed<N>(weight + i),
                                       work.weight, rstd));
    }
}

template <typename T, int N>
__device__ __forceinline__ float product_sum(const Packed<T, N>& dy, const Packed<T, N>& weight,
                                             float offset, const Packed<T, N>& x, float sum) {
#pragma unroll
    for (int k = 0; k < N; ++k)
        sum = fmaf(dy.at(k) * (weight.at(k) + offset), x.at(k), sum);
    return sum;
}

// rstd * (dy * (offset + weight) - x * c) + held
template <typename T, int N>
__device__ __forceinline__ Vector<T, N> input_gradient(const Packed<T, N>& dy,
                                                       const Packed<T, N>& weight, float offset,
                                                       const Packed<T, N>& x, float rstd, float c,
                                                       bool accumulate, const Packed<T, N>& held) {
    Vector<T, N> dx;
#pragma unroll
    for (int k = 0; k < N; ++k) {
        float value = rstd * (dy.at(k) * (weight.at(k) + offset) - x.at(k) * c);
        if (accumulate) value += held.at(k);
        dx.at[k] = from_float<T>(value);
    }
    return dx;
}

// Blocks a multiprocessor is to hold at once: enough that some load while others add up. What a
// thread keeps of its rows sets the limit.
template <typename C, bool kLearns>
constexpr int kBackwardBlocks = C::kByWarp      ? 6
                                : C::kHeld == 2 ? (kLearns ? 3 : 4)
                                : C::kHeld == 4 ? (kLearns ? 2 : 3)
                                                : 4;

// Rows of one group: all of one piece where the weight learns, else one.
template <typename C, bool kLearns>
__global__ void __launch_bounds__(C::kThreads, kBackwardBlocks<C, kLearns>)
    norm_backward(const __grid_constant__ NormBackward work, std::int64_t rows_a_group) {
    using T = typename C::Element;
    constexpr int N = C::N;
    constexpr int kHeld = C::kHeld > 0 ? C::kHeld : 1;
    __shared__ float sums[C::kThreads / kWarp];
    const std::int64_t group = C::group();
    const std::int64_t begin = group * rows_a_group;
    const std::int64_t end = min(begin + rows_a_group, work.rows);
    if (begin >= end) return;  // as in the forward
    const T* const weight = static_cast<const T*>(work.weight.data);
    const float offset = work.weight.offset;
    const int first = C::column();
    const int stride = C::stride();
    // Where the row is not held, a thread's sums are in its own columns of the partials.
    float* const partials = kLearns ? work.partials + group * work.hidden : nullptr;
    float learned[kLearns && C::kHeld > 0 ? kHeld : 1][N] = {};

    for (std::int64_t row = begin; row < end; ++row) {
        const T* const dy = row_of<T>(work, work.dy, row);
        const T* const x = row_of<T>(work, work.x, row);
        T* const dx = row_of<T>(work, work.dx, row);
        const float rstd = work.rstd[row];
        const auto factor = [&](float dot) {
            return C::sum(dot, sums) / static_cast<float>(work.hidden) * rstd * rstd;
        };
        if constexpr (C::kHeld > 0) {
            Packed<T, N> d[kHeld], in[kHeld], held[kHeld];
#pragma unroll
            for (int u = 0; u < kHeld; ++u) {
                const int i = first + u * stride;
                if (i < work.hidden) {
                    d[u] = load_packed<N>(dy + i);
                    in[u] = load_packed<N>(x + i);
                    if (work.accumulate) held[u] = load_packed<N>(dx + i);
                }
            }
            float dot = 0;
#pragma unroll
            for (int u = 0; u < kHeld; ++u) {
                const int i = first + u * stride;
                if (i < work.hidden)
                    dot = product_sum(d[u], load_packed<N>(weight + i), offset, in[u], dot);
            }
            const float c = factor(dot);
#pragma unroll
            for (int u = 0; u < kHeld; ++u) {
                const int i = first + u * stride;
                if (i >= work.hidden) break;
                if constexpr (kLearns) {
#pragma unroll
                    for (int k = 0; k < N; ++k)
                        learned[u][k] += d[u].at(k) * (in[u].at(k) * rstd);
                }
                store_vector(dx + i, input_gradient(d[u], load_packed<N>(weight + i), offset, in[u],
                                                    rstd, c, work.accumulate, held[u]));
            }
        } else {
            float dot = 0;
#pragma unroll 2
            for (int i = first; i < work.hidden; i += stride)
                dot = product_sum(load_packed<N>(dy + i), load_packed<N>(weight + i), offset,
                                  load_packed<N>(x + i), dot);
            const float c = factor(dot);
            for (int i = first; i < work.hidden; i += stride) {
                const Packed<T, N> d = load_packed<N>(dy + i);
                const Packed<T, N> in = load_packed<N>(x + i);
                Packed<T, N> held{};
                if (work.accumulate) held = load_packed<N>(dx + i);
                if constexpr (kLearns) {
#pragma unroll
                    for (int k = 0; k < N; ++k)
                        partials[i + k] =
                            (row == begin ? 0.0f : partials[i + k]) + d.at(k) * (in.at(k) * rstd);
                }
                store_vector(dx + i, input_gradient(d, load_packed<N>(weight + i), offset, in, rstd,
                                                    c, work.accumulate, held));
            }
        }
    }
    if constexpr (kLearns && C::kHeld > 0) {
#pragma unroll
        for (int u = 0; u < kHeld; ++u) {
            const int i = first + u * stride;
            if (i >= work.hidden) break;
#pragma unroll
            for (int k = 0; k < N; k += 4)
                *reinterpret_cast<float4*>(partials + i + k) = make_float4(
                    learned[u][k], learned[u][k + 1], learned[u][k + 2], learned[u][k + 3]);
        }
    }
}

// Calls run(cut) with the cut of rows of `hidden` elements, that may (`wide`) be accessed 16 bytes
// at a time.
template <typename T, typename Run>
void with_cut(int hidden, bool wide, const Run& run) {
    constexpr int N = kVector<T>;
    const int vectors = hidden / N;
    if (!wide)
        run(Cut<T, false, 0, 1>{});
    else if (vectors <= 2 * kWarp)
        run(Cut<T, true, 2>{});
    else if (vectors <= 2 * 256)
        run(Cut<T, false, 2>{});
    else if (vectors <= 4 * 256)
        run(Cut<T, false, 4>{});
    else
        run(Cut<T, false, 0>{});
}

template <typename T>
bool weight_allows(const void* weight, int hidden) {
    return hidden % kVector<T> == 0 && reinterpret_cast<std::uintptr_t>(weight) % 16 == 0;
}

template <typename T>
void forward_of(StreamHandle stream, const NormForward& work) {
    constexpr int N = kVector<T>;
    const bool wide = weight_allows<T>(work.weight.data, work.hidden) && rows_allow<T, N>(work.x) &&
                      rows_allow<T, N>(work.y);
    with_cut<T>(work.hidden, wide, [&](auto cut) {
        using C = decltype(cut);
        launch_early(norm_forward<C>, C::blocks(work.rows), C::threads(work.hidden), 0, stream,
                     work);
    });
    check_launch("rms_norm_forward");
}

void forward(StreamHandle stream, const NormForward& work) {
    if (work.rows == 0 || work.hidden == 0) return;
    if (work.dtype == DType::bf16)
        forward_of<__nv_bfloat16>(stream, work);
    else
        forward_of<float>(stream, work);
}

template <typename T>
void backward_of(StreamHandle stream, const NormBackward& work) {
    constexpr int N = kVector<T>;
    const bool wide = weight_allows<T>(work.weight.data, work.hidden) &&
                      rows_allow<T, N>(work.dy) && rows_allow<T, N>(work.x) &&
                      rows_allow<T, N>(work.dx);
    with_cut<T>(work.hidden, wide, [&](auto cut) {
        using C = decltype(cut);
        if (work.partials != nullptr)
            norm_backward<C, true>
                <<<C::blocks(norm_pieces(work.rows)), C::threads(work.hidden), 0, stream>>>(
                    work, norm_rows_in_piece(work.rows));
        else
            norm_backward<C, false>
                <<<C::blocks(work.rows), C::threads(work.hidden), 0, stream>>>(work, 1);
    });
    check_launch("rms_norm_backward");
    if (work.partials != nullptr)
        add_piece_sums(stream, work.partials, norm_pieces(work.rows), work.hidden,
                       work.weight_gradient);
}

void backward(StreamHandle stream, const NormBackward& work) {
    if (work.rows == 0 || work.hidden == 0) return;
    if (work.dtype == DType::bf16)
        backward_of<__nv_bfloat16>(stream, work);
    else
        backward_of<float>(stream, work);
}

}  // namespace

const NormKernels& norm_kernels() {
    static const NormKernels kKernels{forward, backward};
    return kKernels;
}

}  // namespace garam::cuda
