#include "garam/kernels/cuda/dora.h"
#include "garam/kernels/cuda/map_rows.cuh"

namespace garam::cuda {
namespace {

constexpr int kNormThreads = 256;
constexpr int kNormRows = 8;  // of the weight, a block: each element of A is read once for them

// N columns of N * kNormThreads are a thread's; V's elements lie in registers while k runs over the rank.
template <typename T, int N>
__global__ void __launch_bounds__(kNormThreads)
    make_scale(const __grid_constant__ DoraScaleArguments arguments) {
    __shared__ float shared[kNormThreads / kWarp];
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kNormRows;
    const int rows = static_cast<int>(min(arguments.out - first, std::int64_t{kNormRows}));
    const T* const W =
        static_cast<const T*>(arguments.weight.data) + first * arguments.weight.pitch;
    const float* const A = static_cast<const float*>(arguments.A.data);
    const float* const B = static_cast<const float*>(arguments.B.data) + first * arguments.B.pitch;
    float sums[kNormRows] = {};
    for (std::int64_t column = static_cast<std::int64_t>(threadIdx.x) * N; column < arguments.in;
         column += kNormThreads * N) {
        float change[kNormRows][N] = {};
        for (std::int64_t k = 0; k < arguments.rank; ++k) {
            const Vector<float, N> a = load_vector<N>(A + k * arguments.A.pitch + column);
#pragma unroll
            for (int row = 0; row < kNormRows; ++row) {
                // The last block's rows beyond the matrix repeat its last one.
                const float b = B[min(row, rows - 1) * arguments.B.pitch + k];
#pragma unroll
                for (int i = 0; i < N; ++i)
                    change[row][i] = fmaf(b, a.at[i], change[row][i]);
            }
        }
#pragma unroll
        for (int row = 0; row < kNormRows; ++row) {
            const Vector<T, N> w =
                load_vector<N>(W + min(row, rows - 1) * arguments.weight.pitch + column);
#pragma unroll
            for (int i = 0; i < N; ++i) {
                const float v = fmaf(arguments.scaling, change[row][i], to_float(w.at[i]));
                sums[row] = fmaf(v, v, sums[row]);
            }
        }
    }
#pragma unroll
    for (int row = 0; row < kNormRows; ++row) {
        const float norm = sqrtf(block_sum<kNormThreads>(sums[row], shared));
        if (threadIdx.x != 0 || row >= rows) continue;
        const bool none = norm == 0;  // NaN is some
        arguments.norm[first + row] = norm;
        arguments.scale[first + row] = none ? 0.0f : arguments.magnitude[first + row] / norm;
    }
}

template <typename T, int N>
void make_scale_by(StreamHandle stream, const DoraScaleArguments& arguments) {
    const std::int64_t blocks = (arguments.out + kNormRows - 1) / kNormRows;
    make_scale<T, N><<<static_cast<unsigned>(blocks), kNormThreads, 0, stream>>>(arguments);
    check_launch("dora_scale");
}

template <typename T>
void make_scale_of(StreamHandle stream, const DoraScaleArguments& arguments) {
    if (arguments.in % 4 == 0 && rows_allow<T, 4>(arguments.weight) &&
        rows_allow<float, 4>(arguments.A))
        make_scale_by<T, 4>(stream, arguments);
    else
        make_scale_by<T, 1>(stream, arguments);
}

void scale(StreamHandle stream, const DoraScaleArguments& arguments, DType dtype) {
    if (arguments.out == 0) return;
    if (dtype == DType::bf16)
        make_scale_of<__nv_bfloat16>(stream, arguments);
    else
        make_scale_of<float>(stream, arguments);
}

// N floats by accesses of at most 16 bytes.
template <int N>
struct Factors {
    float at[N];
};
template <int N>
__device__ __forceinline__ Factors<N> load_factors(const float* from) {
    constexpr int kPart = N < 4 ? N : 4;
    Factors<N> factors;
#pragma unroll
    for (int first = 0; first < N; first += kPart) {
        const Vector<float, kPart> part = load_vector<kPart>(from + first);
#pragma unroll
        for (int k = 0; k < kPart; ++k)
            factors.at[first + k] = part.at[k];
    }
    return factors;
}

template <typename T, int N>
struct ScaleColumns {
    static constexpr int kWidth = N;
    static constexpr int kUnroll = 2;
    template <int M>
    struct Value {
        Vector<T, M> x, bias, addend;
        Factors<M> factors;
    };
    const T* x;
    const float* factors;
    float offset;
    const T* bias;
    const T* addend;
    T* y;
    std::int64_t x_pitch, addend_pitch, y_pitch;

    struct Line {
        const T* x;
        const float* factors;
        float offset;
        const T* bias;
        const T* addend;
        T* y;
        template <int M>
        __device__ __forceinline__ Value<M> load(int i) const {
            Value<M> value;
            value.x = load_vector<M>(x + i);
            value.factors = load_factors<M>(factors + i);
            value.bias = {};
            value.addend = {};
            if (bias != nullptr) value.bias = load_vector<M>(bias + i);
            if (addend != nullptr) value.addend = load_vector<M>(addend + i);
            return value;
        }
        template <int M>
        __device__ __forceinline__ void store(int i, const Value<M>& value) const {
            Vector<T, M> sum;
#pragma unroll
            for (int k = 0; k < M; ++k) {
                float scaled = to_float(value.x.at[k]) * (value.factors.at[k] + offset);
                if (bias != nullptr) scaled += to_float(value.bias.at[k]);
                if (addend != nullptr) scaled += to_float(value.addend.at[k]);
                sum.at[k] = from_float<T>(scaled);
            }
            store_vector(y + i, sum);
        }
    };
    __device__ __forceinline__ Line line(std::int64_t row) const {
        return {x + row * x_pitch,
                factors,
                offset,
                bias,
                addend == nullptr ? nullptr : addend + row * addend_pitch,
                y + row * y_pitch};
    }
};

template <typename T, int N>
void scale_columns_by(StreamHandle stream, const ScaleColumnsArguments& a) {
    const ScaleColumns<T, N> map{static_cast<const T*>(a.x.data),
                                 a.factors,
                                 a.offset,
                                 static_cast<const T*>(a.bias),
                                 static_cast<const T*>(a.addend.data),
                                 static_cast<T*>(a.y.data),
                                 a.x.pitch,
                                 a.addend.pitch,
                                 a.y.pitch};
    launch_map_rows("scale_columns", stream, map, a.rows, a.columns);
}

template <typename T>
void scale_columns_of(StreamHandle stream, const ScaleColumnsArguments& a) {
    constexpr int N = kVector<T>;
    // A null pointer allows all.
    if (rows_allow<T, N>(a.x) && rows_allow<T, N>(a.y) && rows_allow<T, N>(a.addend) &&
        rows_allow<T, N>({const_cast<void*>(a.bias), 0}) &&
        rows_allow<float, 4>({const_cast<float*>(a.factors), 0}))
        scale_columns_by<T, N>(stream, a);
    else
        scale_columns_by<T, 1>(stream, a);
}

void scale_columns(StreamHandle stream, const ScaleColumnsArguments& arguments, DType dtype) {
    if (dtype == DType::bf16)
        scale_columns_of<__nv_bfloat16>(stream, arguments);
    else
        scale_columns_of<float>(stream, arguments);
}

constexpr int kParts = 8;      // warps of a block, each with every kParts-th row of the piece
constexpr int kRowUnroll = 2;  // rows in flight a thread, of two operands

// A block takes the rows of one piece (blockIdx.y), kWarp * N columns of them.
template <typename T, int N>
__global__ void __launch_bounds__(kWarp* kParts)
    backward_piece(const __grid_constant__ DoraBackwardArguments arguments,
                   std::int64_t rows_a_piece) {
    __shared__ float sums[kParts][kWarp * N];
    const std::int64_t columns = arguments.columns;
    const int lane = static_cast<int>(threadIdx.x);
    const int part = static_cast<int>(threadIdx.y);
    const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * (kWarp * N);
    const std::int64_t column = first_column + lane * N;
    const std::int64_t begin = blockIdx.y * rows_a_piece;
    const std::int64_t end = min(begin + rows_a_piece, arguments.rows);
    float total[N] = {};
    if (column < columns) {
        const T* const dy = static_cast<const T*>(arguments.dy.data) + column;
        const T* const z = static_cast<const T*>(arguments.z.data) + column;
        T* const dz = static_cast<T*>(arguments.dz.data) + column;
        const Factors<N> scale = load_factors<N>(arguments.scale + column);
        const auto take = [&](std::int64_t row, const Vector<T, N>& d, const Vector<T, N>& out) {
            Vector<T, N> scaled;
#pragma unroll
            for (int k = 0; k < N; ++k) {
                const float gradient = to_float(d.at[k]);
                total[k] = fmaf(gradient, to_float(out.at[k]), total[k]);
                scaled.at[k] = from_float<T>(gradient * scale.at[k]);
            }
            store_vector(dz + row * arguments.dz.pitch, scaled);
        };
        std::int64_t row = begin + part;
        for (; row + (kRowUnroll - 1) * kParts < end; row += kRowUnroll * kParts) {
            Vector<T, N> d[kRowUnroll], out[kRowUnroll];
#pragma unroll
            for (int u = 0; u < kRowUnroll; ++u) {
                d[u] = load_vector<N>(dy + (row + u * kParts) * arguments.dy.pitch);
                out[u] = load_vector<N>(z + (row + u * kParts) * arguments.z.pitch);
            }
#pragma unroll
            for (int u = 0; u < kRowUnroll; ++u)
                take(row + u * kParts, d[u], out[u]);
        }
        for (; row < end; row += kParts)
            take(row, load_vector<N>(dy + row * arguments.dy.pitch),
                 load_vector<N>(z + row * arguments.z.pitch));
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
        const float norm = arguments.norm[first_column + i];
        arguments.partials[blockIdx.y * columns + first_column + i] = norm == 0 ? 0.0f : sum / norm;
    }
}

template <typename T, int N>
void backward_by(StreamHandle stream, const DoraBackwardArguments& arguments) {
    const dim3 grid(static_cast<unsigned>((arguments.columns + kWarp * N - 1) / (kWarp * N)),
                    static_cast<unsigned>(dora_pieces(arguments.rows)));
    backward_piece<T, N>
        <<<grid, dim3(kWarp, kParts), 0, stream>>>(arguments, dora_rows_in_piece(arguments.rows));
    check_launch("dora_backward");
}

template <typename T>
void backward_of(StreamHandle stream, const DoraBackwardArguments& arguments) {
    constexpr int N = kVector<T>;
    if (arguments.columns % N == 0 && rows_allow<T, N>(arguments.dy) &&
        rows_allow<T, N>(arguments.z) && rows_allow<T, N>(arguments.dz) &&
        rows_allow<float, 4>({const_cast<float*>(arguments.scale), 0}))
        backward_by<T, N>(stream, arguments);
    else
        backward_by<T, 1>(stream, arguments);
}

void backward(StreamHandle stream, const DoraBackwardArguments& arguments, DType dtype) {
    if (dtype == DType::bf16)
        backward_of<__nv_bfloat16>(stream, arguments);
    else
        backward_of<float>(stream, arguments);
    add_piece_sums(stream, arguments.partials, dora_pieces(arguments.rows), arguments.columns,
                   arguments.magnitude_gradient);
}

}  // namespace

const DoraKernels& dora_kernels() {
    static const DoraKernels kKernels{scale, scale_columns, backward};
    return kKernels;
}

}  // namespace garam::cuda
