#include <algorithm>

#include "garam/kernels/cuda/cross_entropy.h"
#include "garam/kernels/cuda/device_code.cuh"
#include "garam/kernels/cuda/map_rows.cuh"

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

// What a logit counts as, and the derivative of that by the logit. Both grow with the logit.
struct Scaled {
    static constexpr bool kBounded = false;  // -inf stays -inf
    float factor;
    explicit Scaled(LogitScale scale) : factor(scale.factor) {}
    __device__ __forceinline__ float value(float logit) const { return logit * factor; }
    __device__ __forceinline__ float slope(float /*value*/) const { return factor; }
};
struct Capped {
    static constexpr bool kBounded = true;
    float inner, softcap, inverse, factor;
    explicit Capped(LogitScale scale)
        : inner(scale.factor / scale.softcap),
          softcap(scale.softcap),
          inverse(1.0f / scale.softcap),
          factor(scale.factor) {}
    __device__ __forceinline__ float value(float logit) const {
        return tanhf(logit * inner) * softcap;
    }
    __device__ __forceinline__ float slope(float value) const {
        const float t = value * inverse;
        return fmaf(-t, t, 1.0f) * factor;
    }
};

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
template <typename T, typename G, int N, typename Scale>
__global__ void __launch_bounds__(kThreads, 1)
    cross_entropy(const T* logits, std::int64_t logits_pitch, const Scale scale,
                  const float smoothing, const std::int32_t* targets, float* losses, G* gradient,
                  std::int64_t gradient_pitch, int vocab, int most_kept) {
    constexpr int kStride = kThreads * N;
    constexpr int kChunk = kStride * kUnroll;
    __shared__ float maxima[kThreads / kWarp];
    __shared__ float sums[kThreads / kWarp];
    __shared__ float sums_of_values[kThreads / kWarp];
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
    const float hot = known && thread == 0 ? scale.value(to_float(x[target])) : NAN;

    RunningSum running;
    const bool smooths = smoothing > 0;
    float sum_of_values = 0;
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
        running.raise(scale.value(highest));
        const float base = running.base();
        float sum[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            sum[u] = 0;
            if (Scale::kBounded && begin + u * kStride >= whole) continue;
#pragma unroll
            for (int i = 0; i < N; ++i)
                sum[u] += exp_of(scale.value(to_float(part[u].at[i])) - base);
        }
        running.sum += (sum[0] + sum[1]) + (sum[2] + sum[3]);
        if (smooths) {
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                if (begin + u * kStride >= whole) break;
#pragma unroll
                for (int i = 0; i < N; ++i)
                    sum_of_values += scale.value(to_float(part[u].at[i]));
            }
        }
    }
    if (whole + thread < vocab) {
        const float value = scale.value(to_float(x[whole + thread]));
        running.raise(value);
        running.sum += exp_of(value - running.base());
        if (smooths) sum_of_values += value;
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
    if (smooths) {
        const float values = warp_sum(sum_of_values);
        if (lane == 0) sums_of_values[warp] = values;
    }
    __syncthreads();
    const float total = warp_sum(sums[lane]);
    float wanted = hot;
    if (smooths)
        wanted += smoothing * (warp_sum(sums_of_values[lane]) / static_cast<float>(vocab) - hot);
    if (thread == 0) losses[row] = maximum + logf(total) - wanted;
    if (d == nullptr) return;

    const float inverse = known ? 1.0f / total : NAN;
    const float uniform = smoothing / static_cast<float>(vocab);
    const auto gradient_of = [&](float logit, int column) {
        const float value = scale.value(logit);
        const float difference = __fmul_rn(exp_of(value - maximum), inverse) - uniform;
        return (column == target ? difference - (1.0f - smoothing) : difference) *
               scale.slope(value);
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

template <typename T, typename G, int N, typename Scale>
void launch(StreamHandle stream, const CrossEntropy& work) {
    static_assert(kThreads / kWarp == kWarp);
    constexpr std::int64_t kStepBytes = kThreads * N * static_cast<std::int64_t>(sizeof(T));
    const std::int64_t steps = work.vocab / (kThreads * N) + 1;
    const std::int64_t held = std::max<std::int64_t>(work.shared_bytes - kOtherShared, 0);
    const std::int64_t most_kept =
        work.gradient.data == nullptr ? 0 : std::min(held / kStepBytes, steps);
    const auto kernel = cross_entropy<T, G, N, Scale>;
    const auto bytes = static_cast<int>(most_kept * kStepBytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<static_cast<unsigned>(work.rows), kThreads, static_cast<unsigned>(bytes), stream>>>(
        static_cast<const T*>(work.logits.data), work.logits.pitch, Scale(work.scale),
        work.smoothing, work.targets, work.losses, static_cast<G*>(work.gradient.data),
        work.gradient.pitch, static_cast<int>(work.vocab), static_cast<int>(most_kept));
    check_launch("cross_entropy");
}

template <typename T, typename G, int N>
void choose_scale(StreamHandle stream, const CrossEntropy& work) {
    if (work.scale.softcap > 0)
        launch<T, G, N, Capped>(stream, work);
    else
        launch<T, G, N, Scaled>(stream, work);
}

template <typename T, typename G>
void choose_width(StreamHandle stream, const CrossEntropy& work) {
    constexpr int N = kVector<T>;
    if (rows_allow<T, N>(work.logits) &&
        (work.gradient.data == nullptr || rows_allow<G, N>(work.gradient)))
        choose_scale<T, G, N>(stream, work);
    else
        choose_scale<T, G, 1>(stream, work);
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

template <typename T, int N, typename Scale>
struct ScaleLogits {
    static constexpr int kWidth = N;
    static constexpr int kUnroll = 2;
    template <int M>
    using Value = Vector<T, M>;
    T* logits;
    std::int64_t pitch;
    Scale scale;

    struct Line {
        T* logits;
        Scale scale;
        template <int M>
        __device__ __forceinline__ Value<M> load(int i) const {
            return load_vector<M>(logits + i);
        }
        template <int M>
        __device__ __forceinline__ void store(int i, const Value<M>& value) const {
            Value<M> scaled;
#pragma unroll
            for (int k = 0; k < M; ++k)
                scaled.at[k] = from_float<T>(scale.value(to_float(value.at[k])));
            store_vector(logits + i, scaled);
        }
    };
    __device__ __forceinline__ Line line(std::int64_t row) const {
        return {logits + row * pitch, scale};
    }
};

template <typename T, typename Scale>
void scale_by(StreamHandle stream, Rows logits, Scale scale, std::int64_t rows,
              std::int64_t vocab) {
    constexpr int N = kVector<T>;
    T* const data = static_cast<T*>(logits.data);
    if (rows_allow<T, N>(logits))
        launch_map_rows("scale_logits", stream, ScaleLogits<T, N, Scale>{data, logits.pitch, scale},
                        rows, vocab);
    else
        launch_map_rows("scale_logits", stream, ScaleLogits<T, 1, Scale>{data, logits.pitch, scale},
                        rows, vocab);
}

template <typename T>
void scale_of(StreamHandle stream, Rows logits, LogitScale scale, std::int64_t rows,
              std::int64_t vocab) {
    if (scale.softcap > 0)
        scale_by<T>(stream, logits, Capped(scale), rows, vocab);
    else
        scale_by<T>(stream, logits, Scaled(scale), rows, vocab);
}

void scale_logits(StreamHandle stream, Rows logits, LogitScale scale, DType dtype,
                  std::int64_t rows, std::int64_t vocab) {
    if (dtype == DType::bf16)
        scale_of<__nv_bfloat16>(stream, logits, scale, rows, vocab);
    else
        scale_of<float>(stream, logits, scale, rows, vocab);
}

}  // namespace

const CrossEntropyKernels& cross_entropy_kernels() {
    static const CrossEntropyKernels kKernels{run, scale_logits};
    return kKernels;
}

}  // namespace garam::cuda
