#include <algorithm>

#include "garam/kernels/cuda/cross_entropy.h"
#include "garam/kernels/cuda/device_code.cuh"

namespace garam::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kUnroll = 4;  // accesses in flight a thread
// Of a block, besides what it keeps of its row.
constexpr std::int64_t kOtherShared = 1024;

// e^t by the card's power of two: within some |t| + 2 units, exact at 0.
__device__ __forceinline__ float exp_of(float t) {
    float e = 0;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(t * 1.4426950408889634f));
    return e;
}

// Sum of e^(x - base()) over the values seen. The base is the maximum so far; before there is one
// (all values -inf) it is 0, under which they count nothing.
struct RunningSum {
    float maximum = -INFINITY;
    float sum = 0;

    __device__ __forceinline__ float base() const { return maximum == -INFINITY ? 0.0f : maximum; }
    __device__ __forceinline__ void raise(float to) {
        if (to <= maximum) return;
        sum *= exp_of(maximum - to);
        maximum = to;
    }
};

// N elements of a vector of `dtype`s G, rounded.
template <typename G, int N>
__device__ __forceinline__ void store_gradient(G* to, const float (&e)[N]) {
    Vector<G, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i)
        out.at[i] = from_float<G>(e[i]);
    *reinterpret_cast<Vector<G, N>*>(to) = out;
}

// T: of the logits, G: of the gradient; N elements an access. `most_kept`: steps of kThreads
// accesses that the shared memory holds.
template <typename T, typename G, int N>
__global__ void __launch_bounds__(kThreads, 1)
    cross_entropy(const T* logits, std::int64_t logits_pitch, const std::int32_t* targets,
                  float* losses, G* gradient, std::int64_t gradient_pitch, int vocab,
                  int most_kept) {
    constexpr int kStride = kThreads * N;
    constexpr int kChunk = kStride * kUnroll;
    __shared__ float maxima[kThreads / kWarp];
    __shared__ float sums[kThreads / kWarp];
    const std::int64_t row = blockIdx.x;
    const int thread = static_cast<int>(threadIdx.x);
    const T* const x = logits + row * logits_pitch;
    G* const d = gradient == nullptr ? nullptr : gradient + row * gradient_pitch;
    const int target = targets[row];
    const int whole = vocab / N * N;  // the rest is done one by one
    const int chunks = (whole + kChunk - 1) / kChunk;
    // The last steps of the row stay here for the second pass; a thread reads what it wrote itself.
    extern __shared__ uint4 shared[];
    Vector<T, N>* const kept = reinterpret_cast<Vector<T, N>*>(shared) + thread;
    const int steps = (whole + kStride - 1) / kStride;
    const int first_kept = d == nullptr ? steps : max(steps - most_kept, 0);

    if (target == -1) {
        if (thread == 0) losses[row] = 0;
        if (d == nullptr) return;
        const float zeros[N] = {};
        for (int i = thread * N; i < whole; i += kStride)
            store_gradient<G, N>(d + i, zeros);
        if (whole + thread < vocab) d[whole + thread] = from_float<G>(0.0f);
        return;
    }
    const bool known = target >= 0 && target < vocab;
    // Before the barriers below, behind which the gradient may overwrite it.
    const float hot = known && thread == 0 ? to_float(x[target]) : NAN;

    RunningSum running;
    for (int chunk = 0; chunk < chunks; ++chunk) {
        Vector<T, N> part[kUnroll];
        const int begin = chunk * kChunk + thread * N;
        if ((chunk + 1) * kChunk <= whole) {
#pragma unroll
            for (int u = 0; u < kUnroll; ++u)
                part[u] = *reinterpret_cast<const Vector<T, N>*>(x + begin + u * kStride);
        } else {
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                if (begin + u * kStride < whole) {
                    part[u] = *reinterpret_cast<const Vector<T, N>*>(x + begin + u * kStride);
                } else {
#pragma unroll
                    for (int i = 0; i < N; ++i)
                        part[u].at[i] = from_float<T>(-INFINITY);
                }
            }
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const int step = chunk * kUnroll + u;
            if (step >= first_kept && step < steps) kept[(step - first_kept) * kThreads] = part[u];
        }
        float highest = -INFINITY;  // a NaN is lost here, but not in the sum
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
#pragma unroll
            for (int i = 0; i < N; ++i)
                highest = fmaxf(highest, to_float(part[u].at[i]));
        running.raise(highest);
        const float base = running.base();
        float sum[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            sum[u] = 0;
#pragma unroll
            for (int i = 0; i < N; ++i)
                sum[u] += exp_of(to_float(part[u].at[i]) - base);
        }
        running.sum += (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
    if (whole + thread < vocab) {
        const float value = to_float(x[whole + thread]);
        running.raise(value);
        running.sum += exp_of(value - running.base());
    }

    const int warp = thread / kWarp;
    const int lane = thread % kWarp;
    const float warp_maximum = warp_max(running.maximum);
    if (lane == 0) maxima[warp] = warp_maximum;
    __syncthreads();
    const float maximum = warp_max(maxima[lane]);  // as many warps as lanes
    const float base = maximum == -INFINITY ? 0.0f : maximum;
    const float warp_total = warp_sum(running.sum * exp_of(running.base() - base));
    if (lane == 0) sums[warp] = warp_total;
    __syncthreads();
    const float total = warp_sum(sums[lane]);
    if (thread == 0) losses[row] = maximum + logf(total) - hot;
    if (d == nullptr) return;

    const float inverse = known ? 1.0f / total : NAN;
    const auto gradient_of = [&](float value, int column) {
        const float probability = __fmul_rn(exp_of(value - maximum), inverse);
        return column == target ? probability - 1.0f : probability;
    };
    if (whole + thread < vocab)
        d[whole + thread] = from_float<G>(gradient_of(to_float(x[whole + thread]), whole + thread));
    for (int chunk = chunks - 1; chunk >= 0; --chunk) {
        Vector<T, N> part[kUnroll];
        const int begin = chunk * kChunk + thread * N;
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const int step = chunk * kUnroll + u;
            if (begin + u * kStride >= whole) break;
            part[u] = step >= first_kept
                          ? kept[(step - first_kept) * kThreads]
                          : *reinterpret_cast<const Vector<T, N>*>(x + begin + u * kStride);
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const int at = begin + u * kStride;
            if (at >= whole) break;
            float out[N];
#pragma unroll
            for (int i = 0; i < N; ++i)
                out[i] = gradient_of(to_float(part[u].at[i]), at + i);
            store_gradient<G, N>(d + at, out);
        }
    }
}

template <typename T, typename G, int N>
void launch(StreamHandle stream, const CrossEntropy& work) {
    static_assert(kThreads / kWarp == kWarp);
    constexpr std::int64_t kStepBytes = kThreads * N * static_cast<std::int64_t>(sizeof(T));
    const std::int64_t steps = work.vocab / (kThreads * N) + 1;
    const std::int64_t held = std::max<std::int64_t>(work.shared_bytes - kOtherShared, 0);
    const std::int64_t most_kept =
        work.gradient.data == nullptr ? 0 : std::min(held / kStepBytes, steps);
    const auto kernel = cross_entropy<T, G, N>;
    const auto bytes = static_cast<int>(most_kept * kStepBytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<static_cast<unsigned>(work.rows), kThreads, static_cast<unsigned>(bytes), stream>>>(
        static_cast<const T*>(work.logits.data), work.logits.pitch, work.targets, work.losses,
        static_cast<G*>(work.gradient.data), work.gradient.pitch, static_cast<int>(work.vocab),
        static_cast<int>(most_kept));
    check_launch("cross_entropy");
}

template <typename T, int N>
bool is_aligned(const Rows& x) {
    constexpr std::int64_t kBytes = N * static_cast<std::int64_t>(sizeof(T));
    return reinterpret_cast<std::uintptr_t>(x.data) % kBytes == 0 && x.pitch % N == 0;
}

template <typename T, typename G>
void choose_width(StreamHandle stream, const CrossEntropy& work) {
    constexpr int N = kVector<T>;
    if (is_aligned<T, N>(work.logits) &&
        (work.gradient.data == nullptr || is_aligned<G, N>(work.gradient)))
        launch<T, G, N>(stream, work);
    else
        launch<T, G, 1>(stream, work);
}

void run(StreamHandle stream, const CrossEntropy& work) {
    if (work.rows == 0) return;
    if (work.logits_dtype == DType::bf16)
        choose_width<__nv_bfloat16, __nv_bfloat16>(stream, work);
    else if (work.gradient_dtype == DType::bf16)
        choose_width<float, __nv_bfloat16>(stream, work);
    else
        choose_width<float, float>(stream, work);
}

}  // namespace

const CrossEntropyKernels& cross_entropy_kernels() {
    static const CrossEntropyKernels kKernels{run};
    return kKernels;
}

}  // namespace garam::cuda
