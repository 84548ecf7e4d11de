#include "garam/kernels/cuda/bias.h"
#include "garam/kernels/cuda/map_rows.cuh"

namespace garam::cuda {
namespace {

template <typename T, int N>
struct Add {
    static constexpr int kWidth = N;
    static constexpr int kUnroll = 2;
    template <int M>
    struct Value {
        Vector<T, M> bias, y;
    };
    const T* bias;
    T* y;
    std::int64_t pitch;

    struct Line {
        const T* bias;
        T* y;
        template <int M>
        __device__ __forceinline__ Value<M> load(int i) const {
            return {load_vector<M>(bias + i), load_vector<M>(y + i)};
        }
        template <int M>
        __device__ __forceinline__ void store(int i, const Value<M>& value) const {
            Vector<T, M> sum;
#pragma unroll
            for (int k = 0; k < M; ++k)
                sum.at[k] = from_float<T>(to_float(value.y.at[k]) + to_float(value.bias.at[k]));
            store_vector(y + i, sum);
        }
    };
    __device__ __forceinline__ Line line(std::int64_t row) const {
        return {bias, y + row * pitch};
    }
};

template <typename T>
void add_of(StreamHandle stream, const void* bias, Rows y, std::int64_t rows,
            std::int64_t columns) {
    constexpr int N = kVector<T>;
    const T* const from = static_cast<const T*>(bias);
    T* const to = static_cast<T*>(y.data);
    if (rows_allow<T, N>(y) && rows_allow<T, N>({const_cast<T*>(from), 0}))
        launch_map_rows("bias_add", stream, Add<T, N>{from, to, y.pitch}, rows, columns);
    else
        launch_map_rows("bias_add", stream, Add<T, 1>{from, to, y.pitch}, rows, columns);
}

void add(StreamHandle stream, const void* bias, Rows y, DType dtype, std::int64_t rows,
         std::int64_t columns) {
    if (dtype == DType::bf16)
        add_of<__nv_bfloat16>(stream, bias, y, rows, columns);
    else
        add_of<float>(stream, bias, y, rows, columns);
}

constexpr int kParts = 8;      // warps of a block, each with every kParts-th row of the piece
constexpr int kRowUnroll = 4;  // rows in flight a thread

// A block adds the rows of one piece (blockIdx.y), kWarp * N columns of them.
template <typename T, int N>
__global__ void __launch_bounds__(kWarp* kParts)
    sum_piece(const T* dy, std::int64_t pitch, std::int64_t rows, std::int64_t rows_a_piece,
              std::int64_t columns, float* partials) {
    __shared__ float sums[kParts][kWarp * N];
    const int lane = static_cast<int>(threadIdx.x);
    const int part = static_cast<int>(threadIdx.y);
    const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * (kWarp * N);
    const std::int64_t column = first_column + lane * N;
    const std::int64_t begin = blockIdx.y * rows_a_piece;
    const std::int64_t end = min(begin + rows_a_piece, rows);
    float total[N] = {};
    if (column < columns) {
        const T* const from = dy + column;
        std::int64_t row = begin + part;
        for (; row + (kRowUnroll - 1) * kParts < end; row += kRowUnroll * kParts) {
            Vector<T, N> x[kRowUnroll];
#pragma unroll
            for (int u = 0; u < kRowUnroll; ++u)
                x[u] = load_vector<N>(from + (row + u * kParts) * pitch);
#pragma unroll
            for (int u = 0; u < kRowUnroll; ++u)
#pragma unroll
                for (int k = 0; k < N; ++k)
                    total[k] += to_float(x[u].at[k]);
        }
        for (; row < end; row += kParts) {
            const Vector<T, N> x = load_vector<N>(from + row * pitch);
#pragma unroll
            for (int k = 0; k < N; ++k)
                total[k] += to_float(x.at[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < N; ++k)
        sums[part][lane * N + k] = total[k];
    __syncthreads();
    for (int i = part * kWarp + lane; i < kWarp * N; i += kWarp * kParts) {
        if (first_column + i >= columns) break;
        float sum = 0;
#pragma unroll
        for (int other = 0; other < kParts; ++other)
            sum += sums[other][i];
        partials[blockIdx.y * columns + first_column + i] = sum;
    }
}

template <typename T, int N>
void sum_by(StreamHandle stream, Rows dy, std::int64_t rows, std::int64_t columns,
            float* partials) {
    const dim3 grid(static_cast<unsigned>((columns + kWarp * N - 1) / (kWarp * N)),
                    static_cast<unsigned>(bias_pieces(rows)));
    sum_piece<T, N>
        <<<grid, dim3(kWarp, kParts), 0, stream>>>(static_cast<const T*>(dy.data), dy.pitch, rows,
                                                   bias_rows_in_piece(rows), columns, partials);
    check_launch("bias_backward");
}

template <typename T>
void sum_of(StreamHandle stream, Rows dy, std::int64_t rows, std::int64_t columns,
            float* partials) {
    constexpr int N = kVector<T>;
    if (columns % N == 0 && rows_allow<T, N>(dy))
        sum_by<T, N>(stream, dy, rows, columns, partials);
    else
        sum_by<T, 1>(stream, dy, rows, columns, partials);
}

void backward(StreamHandle stream, Rows dy, DType dtype, std::int64_t rows, std::int64_t columns,
              float* partials, float* bias_gradient) {
    if (rows == 0 || columns == 0) return;
    if (dtype == DType::bf16)
        sum_of<__nv_bfloat16>(stream, dy, rows, columns, partials);
    else
        sum_of<float>(stream, dy, rows, columns, partials);
    add_piece_sums(stream, partials, bias_pieces(rows), columns, bias_gradient);
}

}  // namespace

const BiasKernels& bias_kernels() {
    static const BiasKernels kKernels{add, backward};
    return kKernels;
}

}  // namespace garam::cuda
