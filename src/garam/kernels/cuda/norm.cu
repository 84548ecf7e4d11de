#include "garam/kernels/cuda/map_rows.cuh"
#include "garam/kernels/cuda/norm.h"

namespace garam::cuda {
namespace {

// kGroup threads (a warp or a block) share a row; each holds kHeld vectors of N elements of it, kGroup
// vectors apart. kHeld 0: rows of any length, one element an access when N is 1.
template <typename T, int kGroupThreads, int kHeldVectors, int kElements = kVector<T>>
struct Cut {
    using Element = T;
    static constexpr int kGroup = kGroupThreads;
    static constexpr int kHeld = kHeldVectors;
    static constexpr int N = kElements;
    static constexpr int kThreads = kGroup == kWarp ? 128 : kGroup;  // of a block
    static constexpr int kGroups = kThreads / kGroup;
    static constexpr int kStride = kGroup * N;

    __device__ static __forceinline__ std::int64_t group() {
        return static_cast<std::int64_t>(blockIdx.x) * kGroups + threadIdx.x / kGroup;
    }
    __device__ static __forceinline__ int column() {
        return static_cast<int>(threadIdx.x) % kGroup * N;
    }
    __device__ static __forceinline__ float sum(float x, float* shared) {
        return block_sum<kGroup>(x, shared);
    }
    static unsigned blocks(std::int64_t groups) {
        return static_cast<unsigned>((groups + kGroups - 1) / kGroups);
    }
};

template <typename T, int N>
__device__ __forceinline__ float sum_of_squares(const Vector<T, N>& x, float sum) {
#pragma unroll
    for (int k = 0; k < N; ++k)
        sum = fmaf(to_float(x.at[k]), to_float(x.at[k]), sum);
    return sum;
}

template <typename T, int N>
__device__ __forceinline__ Vector<T, N> normed(const Vector<T, N>& x, const Vector<T, N>& weight,
                                               float rstd) {
    Vector<T, N> y;
#pragma unroll
    for (int k = 0; k < N; ++k) {
        const T rounded = from_float<T>(to_float(x.at[k]) * rstd);
        y.at[k] = from_float<T>(to_float(rounded) * to_float(weight.at[k]));
    }
    return y;
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads)
    norm_forward(const __grid_constant__ NormForward work) {
    using T = typename C::Element;
    constexpr int N = C::N;
    __shared__ float sums[C::kThreads / kWarp];
    const std::int64_t row = C::group();
    if (row >= work.rows) return;  // whole warps, and where a block shares a row, whole blocks
    const T* const x = static_cast<const T*>(work.x.data) + row * work.x.pitch;
    T* const y = static_cast<T*>(work.y.data) + row * work.y.pitch;
    const T* const weight = static_cast<const T*>(work.weight);
    const int first = C::column();

    Vector<T, N> held[C::kHeld > 0 ? C::kHeld : 1];
    float squares = 0;
    if constexpr (C::kHeld > 0) {
#pragma unroll
        for (int u = 0; u < C::kHeld; ++u)
            if (first + u * C::kStride < work.hidden)
                held[u] = load_vector<N>(x + first + u * C::kStride);
#pragma unroll
        for (int u = 0; u < C::kHeld; ++u)
            if (first + u * C::kStride < work.hidden) squares = sum_of_squares(held[u], squares);
    } else {
#pragma unroll 4
        for (int i = first; i < work.hidden; i += C::kStride)
            squares = sum_of_squares(load_vector<N>(x + i), squares);
    }
    const float mean = C::sum(squares, sums) / static_cast<float>(work.hidden);
    const float rstd = 1.0f / sqrtf(mean + work.eps);
    if (work.rstd != nullptr && first == 0) work.rstd[row] = rstd;
    if constexpr (C::kHeld > 0) {
#pragma unroll
        for (int u = 0; u < C::kHeld; ++u) {
            const int i = first + u * C::kStride;
            if (i < work.hidden)
                store_vector(y + i, normed(held[u], load_vector<N>(weight + i), rstd));
        }
    } else {
#pragma unroll 4
        for (int i = first; i < work.hidden; i += C::kStride)
            store_vector(y + i, normed(load_vector<N>(x + i), load_vector<N>(weight + i), rstd));
    }
}

template <typename T, int N>
__device__ __forceinline__ float product_sum(const Vector<T, N>& dy, const Vector<T, N>& weight,
                                             const Vector<T, N>& x, float sum) {
#pragma unroll
    for (int k = 0; k < N; ++k)
        sum = fmaf(to_float(dy.at[k]) * to_float(weight.at[k]), to_float(x.at[k]), sum);
    return sum;
}

// rstd * (dy * weight - x * c) + held
template <typename T, int N>
__device__ __forceinline__ Vector<T, N> input_gradient(const Vector<T, N>& dy,
                                                       const Vector<T, N>& weight,
                                                       const Vector<T, N>& x, float rstd, float c,
                                                       bool accumulate, const Vector<T, N>& held) {
    Vector<T, N> dx;
#pragma unroll
    for (int k = 0; k < N; ++k) {
        float value = rstd * (to_float(dy.at[k]) * to_float(weight.at[k]) - to_float(x.at[k]) * c);
        if (accumulate) value += to_float(held.at[k]);
        dx.at[k] = from_float<T>(value);
    }
    return dx;
}

// Rows of one group: all of one piece where the weight learns, else one.
template <typename C, bool kLearns>
__global__ void __launch_bounds__(C::kThreads)
    norm_backward(const __grid_constant__ NormBackward work, std::int64_t rows_a_group) {
    using T = typename C::Element;
    constexpr int N = C::N;
    constexpr int kHeld = C::kHeld > 0 ? C::kHeld : 1;
    __shared__ float sums[C::kThreads / kWarp];
    const std::int64_t group = C::group();
    const std::int64_t begin = group * rows_a_group;
    const std::int64_t end = min(begin + rows_a_group, work.rows);
    if (begin >= end) return;  // as in the forward
    const T* const weight = static_cast<const T*>(work.weight);
    const int first = C::column();
    // Where the row is not held, a thread's sums are in its own columns of the partials.
    float* const partials = kLearns ? work.partials + group * work.hidden : nullptr;
    float learned[kLearns && C::kHeld > 0 ? kHeld : 1][N] = {};

    for (std::int64_t row = begin; row < end; ++row) {
        const T* const dy = static_cast<const T*>(work.dy.data) + row * work.dy.pitch;
        const T* const x = static_cast<const T*>(work.x.data) + row * work.x.pitch;
        T* const dx = static_cast<T*>(work.dx.data) + row * work.dx.pitch;
        const float rstd = work.rstd[row];
        const auto factor = [&](float dot) {
            return C::sum(dot, sums) / static_cast<float>(work.hidden) * rstd * rstd;
        };
        if constexpr (C::kHeld > 0) {
            Vector<T, N> d[kHeld], in[kHeld], held[kHeld];
#pragma unroll
            for (int u = 0; u < kHeld; ++u) {
                const int i = first + u * C::kStride;
                if (i < work.hidden) {
                    d[u] = load_vector<N>(dy + i);
                    in[u] = load_vector<N>(x + i);
                    if (work.accumulate) held[u] = load_vector<N>(dx + i);
                }
            }
            float dot = 0;
#pragma unroll
            for (int u = 0; u < kHeld; ++u) {
                const int i = first + u * C::kStride;
                if (i < work.hidden)
                    dot = product_sum(d[u], load_vector<N>(weight + i), in[u], dot);
            }
            const float c = factor(dot);
#pragma unroll
            for (int u = 0; u < kHeld; ++u) {
                const int i = first + u * C::kStride;
                if (i >= work.hidden) break;
                if constexpr (kLearns) {
#pragma unroll
                    for (int k = 0; k < N; ++k)
                        learned[u][k] += to_float(d[u].at[k]) * (to_float(in[u].at[k]) * rstd);
                }
                store_vector(dx + i, input_gradient(d[u], load_vector<N>(weight + i), in[u], rstd,
                                                    c, work.accumulate, held[u]));
            }
        } else {
            float dot = 0;
#pragma unroll 2
            for (int i = first; i < work.hidden; i += C::kStride)
                dot = product_sum(load_vector<N>(dy + i), load_vector<N>(weight + i),
                                  load_vector<N>(x + i), dot);
            const float c = factor(dot);
            for (int i = first; i < work.hidden; i += C::kStride) {
                const Vector<T, N> d = load_vector<N>(dy + i);
                const Vector<T, N> in = load_vector<N>(x + i);
                Vector<T, N> held{};
                if (work.accumulate) held = load_vector<N>(dx + i);
                if constexpr (kLearns) {
#pragma unroll
                    for (int k = 0; k < N; ++k)
                        partials[i + k] = (row == begin ? 0.0f : partials[i + k]) +
                                          to_float(d.at[k]) * (to_float(in.at[k]) * rstd);
                }
                store_vector(dx + i, input_gradient(d, load_vector<N>(weight + i), in, rstd, c,
                                                    work.accumulate, held));
            }
        }
    }
    if constexpr (kLearns && C::kHeld > 0) {
#pragma unroll
        for (int u = 0; u < kHeld; ++u) {
            const int i = first + u * C::kStride;
            if (i >= work.hidden) break;
#pragma unroll
            for (int k = 0; k < N; k += 4)
                *reinterpret_cast<float4*>(partials + i + k) = make_float4(
                    learned[u][k], learned[u][k + 1], learned[u][k + 2], learned[u][k + 3]);
        }
    }
}

// Calls run(cut) with the cut of rows of `hidden` elements, that may (`wide`) be accessed 16 bytes at a
// time.
template <typename T, typename Run>
void with_cut(int hidden, bool wide, const Run& run) {
    constexpr int N = kVector<T>;
    const int vectors = hidden / N;
    if (!wide)
        run(Cut<T, 128, 0, 1>{});
    else if (vectors <= 2 * kWarp)
        run(Cut<T, kWarp, 2>{});
    else if (vectors <= 2 * 128)
        run(Cut<T, 128, 2>{});
    else if (vectors <= 2 * 256)
        run(Cut<T, 256, 2>{});
    else if (vectors <= 4 * 256)
        run(Cut<T, 256, 4>{});
    else
        run(Cut<T, 256, 0>{});
}

template <typename T>
bool weight_allows(const void* weight, int hidden) {
    return hidden % kVector<T> == 0 && reinterpret_cast<std::uintptr_t>(weight) % 16 == 0;
}

template <typename T>
void forward_of(StreamHandle stream, const NormForward& work) {
    constexpr int N = kVector<T>;
    const bool wide = weight_allows<T>(work.weight, work.hidden) && rows_allow<T, N>(work.x) &&
                      rows_allow<T, N>(work.y);
    with_cut<T>(work.hidden, wide, [&](auto cut) {
        using C = decltype(cut);
        norm_forward<C><<<C::blocks(work.rows), C::kThreads, 0, stream>>>(work);
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
    const bool wide = weight_allows<T>(work.weight, work.hidden) && rows_allow<T, N>(work.dy) &&
                      rows_allow<T, N>(work.x) && rows_allow<T, N>(work.dx);
    with_cut<T>(work.hidden, wide, [&](auto cut) {
        using C = decltype(cut);
        if (work.partials != nullptr)
            norm_backward<C, true><<<C::blocks(norm_pieces(work.rows)), C::kThreads, 0, stream>>>(
                work, norm_rows_in_piece(work.rows));
        else
            norm_backward<C, false><<<C::blocks(work.rows), C::kThreads, 0, stream>>>(work, 1);
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
