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
        __device__ __forceinline__ T masked(T in, T held, std::uint32_t word, int half) const {
            float result = keeps(mask, word, half) ? __fmul_rn(to_float(in), mask.factor) : 0.0f;
            if constexpr (kAccumulate) result += to_float(held);
            return from_float<T>(result);
        }
        template <int M>
        __device__ __forceinline__ void store(int i, const Value<M>& value) const {
            static_assert(M == 1 || M == 4 || M == 8);
            Vector<T, M> out;
            const uint4 words = mask_words(mask, token, static_cast<std::uint32_t>(i / 8));
            // The words from column i on, i a multiple of M.
            const bool second = i % 8 >= 4;
            const std::uint32_t from[4] = {M < 8 && second ? words.z : words.x,
                                           M < 8 && second ? words.w : words.y, words.z, words.w};
            if constexpr (M == 1) {
                out.at[0] =
                    masked(value.x.at[0], value.y.at[0], i % 4 < 2 ? from[0] : from[1], i % 2);
            } else {
#pragma unroll
                for (int k = 0; k < M; ++k)
                    out.at[k] = masked(value.x.at[k], value.y.at[k], from[k / 2], k % 2);
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
