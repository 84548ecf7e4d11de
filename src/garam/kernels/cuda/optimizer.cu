#include "garam/kernels/cuda/device_code.cuh"
#include "garam/kernels/cuda/optimizer.h"

namespace garam::cuda {
namespace {

constexpr int kThreads = 256;

template <int N>
__device__ __forceinline__ Vector<float, N> read(const float* x, std::int64_t i) {
    return *reinterpret_cast<const Vector<float, N>*>(x + i);
}
template <int N>
__device__ __forceinline__ void write(float* x, std::int64_t i, const Vector<float, N>& value) {
    *reinterpret_cast<Vector<float, N>*>(x + i) = value;
}

template <int N>
__device__ __forceinline__ void adamw_at(const AdamWStep& step, float scale, float* weight,
                                         const float* gradient, float* m, float* v,
                                         std::int64_t i) {
    Vector<float, N> w = read<N>(weight, i);
    const Vector<float, N> slope = read<N>(gradient, i);
    Vector<float, N> first = read<N>(m, i);
    Vector<float, N> second = read<N>(v, i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
        const float g = slope.at[k] * scale;
        first.at[k] = first.at[k] * step.beta1 + g * step.one_minus_beta1;
        second.at[k] = second.at[k] * step.beta2 + g * g * step.one_minus_beta2;
        const float root = sqrtf(second.at[k]) / step.root_correction + step.epsilon;
        w.at[k] = w.at[k] * step.decay - step.step_size * (first.at[k] / root);
    }
    write<N>(m, i, first);
    write<N>(v, i, second);
    write<N>(weight, i, w);
}

// N elements a thread; the last thread takes what is left one by one.
template <int N>
__global__ void __launch_bounds__(kThreads)
    adamw(AdamWStep step, const float* gradient_scale, float* weight, const float* gradient,
          float* m, float* v, std::int64_t n) {
    const float scale = *gradient_scale;
    if (isnan(scale)) return;
    const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
    if (i + N <= n) {
        adamw_at<N>(step, scale, weight, gradient, m, v, i);
    } else {
        for (std::int64_t rest = i; rest < n; ++rest)
            adamw_at<1>(step, scale, weight, gradient, m, v, rest);
    }
}

template <int N>
__device__ __forceinline__ void sgd_at(const SgdStep& step, float scale, float* weight,
                                       const float* gradient, float* buffer, std::int64_t i) {
    Vector<float, N> w = read<N>(weight, i);
    const Vector<float, N> slope = read<N>(gradient, i);
    Vector<float, N> moved{};
    if (buffer != nullptr && !step.first) moved = read<N>(buffer, i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
        float g = slope.at[k] * scale + w.at[k] * step.weight_decay;
        if (buffer != nullptr) {
            moved.at[k] =
                step.first ? g : moved.at[k] * step.momentum + g * step.one_minus_dampening;
            g = step.nesterov ? g + moved.at[k] * step.momentum : moved.at[k];
        }
        w.at[k] -= g * step.learning_rate;
    }
    if (buffer != nullptr) write<N>(buffer, i, moved);
    write<N>(weight, i, w);
}

template <int N>
__global__ void __launch_bounds__(kThreads)
    sgd(SgdStep step, const float* gradient_scale, float* weight, const float* gradient,
        float* buffer, std::int64_t n) {
    const float scale = *gradient_scale;
    if (isnan(scale)) return;
    const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
    if (i + N <= n) {
        sgd_at<N>(step, scale, weight, gradient, buffer, i);
    } else {
        for (std::int64_t rest = i; rest < n; ++rest)
            sgd_at<1>(step, scale, weight, gradient, buffer, rest);
    }
}

// One thread; in double precision, as on the processor.
__global__ void scale_of_gradients(const float* loss_sum, const float* norm_squared, double targets,
                                   double max_norm, float* scale) {
    if (isnan(*scale)) return;
    if (!isfinite(*loss_sum) || !isfinite(*norm_squared)) {
        *scale = __int_as_float(0x7fffffff);
        return;
    }
    const double norm = sqrt(static_cast<double>(*norm_squared)) / targets;
    const double clip = max_norm == 0 ? 1.0 : fmin(1.0, max_norm / (norm + 1e-6));
    *scale = static_cast<float>(static_cast<double>(static_cast<float>(clip)) / targets);
}

bool is_aligned(const void* x) {
    return reinterpret_cast<std::uintptr_t>(x) % 16 == 0;
}
unsigned blocks_for(std::int64_t n, int width) {
    const std::int64_t each = static_cast<std::int64_t>(kThreads) * width;
    return static_cast<unsigned>((n + each - 1) / each);
}

void run_adamw(StreamHandle stream, const AdamWStep& step, const float* scale, float* weight,
               const float* gradient, float* m, float* v, std::int64_t n) {
    if (n == 0) return;
    if (is_aligned(weight) && is_aligned(gradient) && is_aligned(m) && is_aligned(v))
        adamw<4><<<blocks_for(n, 4), kThreads, 0, stream>>>(step, scale, weight, gradient, m, v, n);
    else
        adamw<1><<<blocks_for(n, 1), kThreads, 0, stream>>>(step, scale, weight, gradient, m, v, n);
    check_launch("adamw");
}

void run_sgd(StreamHandle stream, const SgdStep& step, const float* scale, float* weight,
             const float* gradient, float* buffer, std::int64_t n) {
    if (n == 0) return;
    if (is_aligned(weight) && is_aligned(gradient) && is_aligned(buffer))
        sgd<4><<<blocks_for(n, 4), kThreads, 0, stream>>>(step, scale, weight, gradient, buffer, n);
    else
        sgd<1><<<blocks_for(n, 1), kThreads, 0, stream>>>(step, scale, weight, gradient, buffer, n);
    check_launch("sgd");
}

void run_gradient_scale(StreamHandle stream, const float* loss_sum, const float* norm_squared,
                        double targets, double max_norm, float* scale) {
    scale_of_gradients<<<1, 1, 0, stream>>>(loss_sum, norm_squared, targets, max_norm, scale);
    check_launch("gradient_scale");
}

}  // namespace

const OptimizerKernels& optimizer_kernels() {
    static const OptimizerKernels kKernels{run_adamw, run_sgd, run_gradient_scale};
    return kKernels;
}

}  // namespace garam::cuda
