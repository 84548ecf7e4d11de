#include "garam/kernels/cuda/embedding_noise.h"
#include "garam/kernels/cuda/map_rows.cuh"
#include "garam/kernels/cuda/philox.cuh"

namespace garam::cuda {
namespace {

// The same operations as on the processor, each rounded: the same noise to the bit.
template <typename T, int N>
struct Noise {
    static constexpr int kWidth = N;
    static constexpr int kUnroll = 2;
    template <int M>
    using Value = Vector<T, M>;
    T* x;
    std::int64_t pitch;
    EmbeddingNoise work;

    struct Line {
        T* x;
        uint4 counter;  // its first word is the column's
        uint2 key;
        float magnitude;

        __device__ __forceinline__ uint4 words(int i) const {
            uint4 at = counter;
            at.x = static_cast<std::uint32_t>(i / 4);
            return philox(at, key);
        }
        __device__ __forceinline__ T noisy(T in, std::uint32_t word) const {
            const float u = static_cast<float>(word >> 8) * 0x1p-24f;
            const float noise = __fmul_rn(2.0f * u - 1.0f, magnitude);  // exact up to the product
            return from_float<T>(__fadd_rn(to_float(in), noise));
        }
        template <int M>
        __device__ __forceinline__ Value<M> load(int i) const {
            return load_vector<M>(x + i);
        }
        // i is a multiple of M.
        template <int M>
        __device__ __forceinline__ void store(int i, const Value<M>& value) const {
            static_assert(M == 1 || M == 4 || M == 8);
            Value<M> out;
            if constexpr (M == 1) {
                const uint4 four = words(i);
                const int at = i % 4;
                out.at[0] = noisy(value.at[0], at < 2 ? (at == 0 ? four.x : four.y)
                                                      : (at == 2 ? four.z : four.w));
            } else {
#pragma unroll
                for (int k = 0; k < M; k += 4) {
                    const uint4 four = words(i + k);
                    out.at[k] = noisy(value.at[k], four.x);
                    out.at[k + 1] = noisy(value.at[k + 1], four.y);
                    out.at[k + 2] = noisy(value.at[k + 2], four.z);
                    out.at[k + 3] = noisy(value.at[k + 3], four.w);
                }
            }
            store_vector(x + i, out);
        }
    };
    __device__ __forceinline__ Line line(std::int64_t row) const {
        // The last segment that begins at or before the row; empty ones begin where the next does.
        int low = 0;
        int high = work.segments;
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            if (work.cu_seqlens[middle] <= row)
                low = middle;
            else
                high = middle;
        }
        const std::int64_t length = work.cu_seqlens[low + 1] - work.cu_seqlens[low];
        const auto elements = static_cast<float>(length * work.columns);
        const auto sample = static_cast<std::uint64_t>(work.samples[row]);
        return {x + row * pitch,
                make_uint4(0, static_cast<std::uint32_t>(work.positions[row]),
                           static_cast<std::uint32_t>(sample),
                           static_cast<std::uint32_t>(sample >> 32) ^
                               static_cast<std::uint32_t>(*work.step)),
                make_uint2(static_cast<std::uint32_t>(work.key),
                           static_cast<std::uint32_t>(work.key >> 32)),
                __fdiv_rn(work.alpha, __fsqrt_rn(elements))};
    }
};

template <typename T>
void run_of(StreamHandle stream, const EmbeddingNoise& work) {
    constexpr int N = kVector<T>;
    T* const x = static_cast<T*>(work.x.data);
    if (rows_allow<T, N>(work.x))
        launch_map_rows("embedding_noise", stream, Noise<T, N>{x, work.x.pitch, work}, work.tokens,
                        work.columns);
    else
        launch_map_rows("embedding_noise", stream, Noise<T, 1>{x, work.x.pitch, work}, work.tokens,
                        work.columns);
}

void run(StreamHandle stream, const EmbeddingNoise& work) {
    if (work.dtype == DType::bf16)
        run_of<__nv_bfloat16>(stream, work);
    else
        run_of<float>(stream, work);
}

}  // namespace

const EmbeddingNoiseKernels& embedding_noise_kernels() {
    static const EmbeddingNoiseKernels kKernels{run};
    return kKernels;
}

}  // namespace garam::cuda
