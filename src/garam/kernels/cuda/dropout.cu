#include "garam/kernels/cuda/dropout.h"
#include "garam/kernels/cuda/map_rows.cuh"
#include "garam/kernels/cuda/philox.cuh"

namespace garam::cuda {
namespace {

template <typename T, int N, bool kAccumulate>
struct Dropout {
    static constexpr int kWidth = N;
    static constexpr int kUnroll = 2;
    template <int M>
    struct Value {
        Vector<T, M> x, y;
    };
    const T* x;
    T* y;
    std::int64_t x_pitch, y_pitch;
    DropoutMask mask;

    struct Line {
        const T* x;
        T* y;
        TokenMask token;
        const DropoutMask& mask;

        template <int M>
        __device__ __forceinline__ Value<M> load(int i) const {
            Value<M> value;
            value.x = load_vector<M>(x + i);
            if constexpr (kAccumulate) value.y = load_vector<M>(y + i);
            return value;
        }
        __device__ __forceinline__ T masked(T in, T held, std::uint32_t word) const {
            float result = keeps(mask, word) ? __fmul_rn(to_float(in), mask.factor) : 0.0f;
            if constexpr (kAccumulate) result += to_float(held);
            return from_float<T>(result);
        }
        template <int M>
        __device__ __forceinline__ void store(int i, const Value<M>& value) const {
            static_assert(M == 1 || M % 4 == 0);
            Vector<T, M> out;
            const auto group = static_cast<std::uint32_t>(i / 4);
            if constexpr (M == 1) {
                const uint4 words = mask_words(mask, token, group);
                const std::uint32_t low = i % 2 == 0 ? words.x : words.y;
                const std::uint32_t high = i % 2 == 0 ? words.z : words.w;
                out.at[0] = masked(value.x.at[0], value.y.at[0], i % 4 < 2 ? low : high);
            } else {
#pragma unroll
                for (int g = 0; g < M / 4; ++g) {
                    const uint4 words =
                        mask_words(mask, token, group + static_cast<std::uint32_t>(g));
                    const int k = g * 4;
                    out.at[k] = masked(value.x.at[k], value.y.at[k], words.x);
                    out.at[k + 1] = masked(value.x.at[k + 1], value.y.at[k + 1], words.y);
                    out.at[k + 2] = masked(value.x.at[k + 2], value.y.at[k + 2], words.z);
                    out.at[k + 3] = masked(value.x.at[k + 3], value.y.at[k + 3], words.w);
                }
            }
            store_vector(y + i, out);
        }
    };
    __device__ __forceinline__ Line line(std::int64_t row) const {
        return {x + row * x_pitch, y + row * y_pitch, token_mask(mask, row), mask};
    }
};

template <typename T, bool kAccumulate>
void run_of(StreamHandle stream, Rows x, const DropoutMask& mask, Rows y, std::int64_t tokens,
            std::int64_t columns) {
    constexpr int N = kVector<T>;
    const T* const from = static_cast<const T*>(x.data);
    T* const to = static_cast<T*>(y.data);
    if (rows_allow<T, N>(x) && rows_allow<T, N>(y))
        launch_map_rows("dropout", stream,
                        Dropout<T, N, kAccumulate>{from, to, x.pitch, y.pitch, mask}, tokens,
                        columns);
    else
        launch_map_rows("dropout", stream,
                        Dropout<T, 1, kAccumulate>{from, to, x.pitch, y.pitch, mask}, tokens,
                        columns);
}

void run(StreamHandle stream, Rows x, const DropoutMask& mask, Rows y, DType dtype, bool accumulate,
         std::int64_t tokens, std::int64_t columns) {
    if (dtype == DType::bf16) {
        if (accumulate)
            run_of<__nv_bfloat16, true>(stream, x, mask, y, tokens, columns);
        else
            run_of<__nv_bfloat16, false>(stream, x, mask, y, tokens, columns);
    } else {
        if (accumulate)
            run_of<float, true>(stream, x, mask, y, tokens, columns);
        else
            run_of<float, false>(stream, x, mask, y, tokens, columns);
    }
}

}  // namespace

const DropoutKernels& dropout_kernels() {
    static const DropoutKernels kKernels{run};
    return kKernels;
}

}  // namespace garam::cuda
