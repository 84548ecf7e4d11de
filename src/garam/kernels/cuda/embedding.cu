#include "garam/kernels/cuda/embedding.h"
#include "garam/kernels/cuda/map_rows.cuh"

namespace garam::cuda {
namespace {

// kScales: the rows times `factor`.
template <typename T, int N, bool kScales>
struct Lookup {
    static constexpr int kWidth = N;
    static constexpr int kUnroll = kScales ? 2 : 4;  // without spills
    template <int M>
    using Value = Vector<T, M>;
    const std::int32_t* ids;
    const T* table;
    T* out;
    std::int64_t table_pitch, out_pitch, vocab;
    float factor;

    struct Line {
        const T* from;  // null: no such row
        T* to;
        float factor;
        template <int M>
        __device__ __forceinline__ Value<M> load(int i) const {
            if (from != nullptr) return load_vector<M>(from + i);
            Value<M> none;
#pragma unroll
            for (int k = 0; k < M; ++k)
                none.at[k] = from_float<T>(NAN);
            return none;
        }
        template <int M>
        __device__ __forceinline__ void store(int i, const Value<M>& value) const {
            if constexpr (kScales) {
                Value<M> product;
#pragma unroll
                for (int k = 0; k < M; ++k)
                    product.at[k] = from_float<T>(to_float(value.at[k]) * factor);
                store_vector(to + i, product);
            } else {
                store_vector(to + i, value);
            }
        }
    };
    __device__ __forceinline__ Line line(std::int64_t row) const {
        const std::int64_t id = ids[row];
        return {id >= 0 && id < vocab ? table + id * table_pitch : nullptr, out + row * out_pitch,
                factor};
    }
};

template <typename T, bool kScales>
void look_up(StreamHandle stream, const std::int32_t* ids, Rows table, Rows out, float factor,
             std::int64_t tokens, std::int64_t vocab, std::int64_t hidden) {
    constexpr int N = kVector<T>;
    const T* const from = static_cast<const T*>(table.data);
    T* const to = static_cast<T*>(out.data);
    if (rows_allow<T, N>(table) && rows_allow<T, N>(out))
        launch_map_rows("embedding_forward", stream,
                        Lookup<T, N, kScales>{ids, from, to, table.pitch, out.pitch, vocab, factor},
                        tokens, hidden);
    else
        launch_map_rows("embedding_forward", stream,
                        Lookup<T, 1, kScales>{ids, from, to, table.pitch, out.pitch, vocab, factor},
                        tokens, hidden);
}

template <typename T>
void forward_of(StreamHandle stream, const std::int32_t* ids, Rows table, Rows out, float factor,
                std::int64_t tokens, std::int64_t vocab, std::int64_t hidden) {
    if (factor == 1)
        look_up<T, false>(stream, ids, table, out, factor, tokens, vocab, hidden);
    else
        look_up<T, true>(stream, ids, table, out, factor, tokens, vocab, hidden);
}

void forward(StreamHandle stream, const std::int32_t* ids, Rows table, Rows out, float factor,
             DType dtype, std::int64_t tokens, std::int64_t vocab, std::int64_t hidden) {
    if (dtype == DType::bf16)
        forward_of<__nv_bfloat16>(stream, ids, table, out, factor, tokens, vocab, hidden);
    else
        forward_of<float>(stream, ids, table, out, factor, tokens, vocab, hidden);
}

constexpr int kSortTokens = 32;  // of a block, one a lane
constexpr int kSortParts = 16;   // warps, each of which compares with every kSortParts-th token

// order[place of token t among all, by (id, token)] = t.
__global__ void __launch_bounds__(kSortTokens* kSortParts)
    sort_tokens(const std::int32_t* ids, int tokens, std::int32_t* order) {
    __shared__ int before[kSortParts][kSortTokens];
    const int lane = static_cast<int>(threadIdx.x);
    const int part = static_cast<int>(threadIdx.y);
    const int token = static_cast<int>(blockIdx.x) * kSortTokens + lane;
    const int id = token < tokens ? ids[token] : 0;
    int count = 0;
#pragma unroll 8
    for (int other = part; other < tokens; other += kSortParts) {
        const int other_id = ids[other];
        count += other_id < id || (other_id == id && other < token) ? 1 : 0;
    }
    before[part][lane] = count;
    __syncthreads();
    if (part != 0 || token >= tokens) return;
#pragma unroll
    for (int other = 1; other < kSortParts; ++other)
        count += before[other][lane];
    order[count] = token;
}

constexpr int kThreads = 256;
constexpr int kColumnThreads = 32;
constexpr int kRowUnroll = 8;  // rows in flight a thread

// The block of the first token of an id adds factor * the rows of all of that id, in token order. kColumn: to
// the table's column of that id (N is 1).
template <typename T, int N, bool kColumn>
__global__ void __launch_bounds__(kColumn ? kColumnThreads : kThreads)
    add_rows(const std::int32_t* ids, const std::int32_t* order, const T* gradient,
             std::int64_t pitch, float factor, float* table, std::int64_t table_pitch, int tokens,
             std::int64_t vocab, std::int64_t hidden) {
    const int begin = static_cast<int>(blockIdx.x);
    const int id = ids[order[begin]];
    if (id < 0 || id >= vocab || (begin > 0 && ids[order[begin - 1]] == id)) return;
    const std::int64_t column =
        (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
    if (column >= hidden) return;
    float* const to =
        kColumn ? table + column * table_pitch + id : table + id * table_pitch + column;
    const T* const from = gradient + column;
    Vector<float, N> sum = load_vector<N>(to);
    int i = begin;
    for (bool more = true; more;) {
        Vector<T, N> x[kRowUnroll];
        int found = 0;
#pragma unroll
        for (int u = 0; u < kRowUnroll; ++u) {
            const int token = i + u < tokens ? order[i + u] : -1;
            const bool same = token >= 0 && ids[token] == id;  // ends once: the tokens are sorted
            if (same) {
                x[u] = load_vector<N>(from + token * pitch);
                found = u + 1;
            }
        }
#pragma unroll
        for (int u = 0; u < kRowUnroll; ++u) {
            if (u < found) {
#pragma unroll
                for (int k = 0; k < N; ++k)
                    sum.at[k] = fmaf(to_float(x[u].at[k]), factor, sum.at[k]);
            }
        }
        i += kRowUnroll;
        more = found == kRowUnroll;
    }
    store_vector(to, sum);
}

template <typename T, int N>
void add_by(StreamHandle stream, const std::int32_t* ids, Rows gradient, float factor, Rows table,
            std::int64_t tokens, std::int64_t vocab, std::int64_t hidden,
            const std::int32_t* order) {
    const dim3 grid(static_cast<unsigned>(tokens),
                    static_cast<unsigned>((hidden + kThreads * N - 1) / (kThreads * N)));
    add_rows<T, N, false><<<grid, kThreads, 0, stream>>>(
        ids, order, static_cast<const T*>(gradient.data), gradient.pitch, factor,
        static_cast<float*>(table.data), table.pitch, static_cast<int>(tokens), vocab, hidden);
    check_launch("embedding_backward");
}

template <typename T>
void add_of(StreamHandle stream, const std::int32_t* ids, Rows gradient, float factor, Rows table,
            std::int64_t tokens, std::int64_t vocab, std::int64_t hidden,
            const std::int32_t* order) {
    constexpr int N = 4;
    if (hidden % N == 0 && rows_allow<T, N>(gradient) && rows_allow<float, N>(table))
        add_by<T, N>(stream, ids, gradient, factor, table, tokens, vocab, hidden, order);
    else
        add_by<T, 1>(stream, ids, gradient, factor, table, tokens, vocab, hidden, order);
}

void sort(StreamHandle stream, const std::int32_t* ids, std::int64_t tokens, std::int32_t* order) {
    const std::int64_t blocks = (tokens + kSortTokens - 1) / kSortTokens;
    sort_tokens<<<static_cast<unsigned>(blocks), dim3(kSortTokens, kSortParts), 0, stream>>>(
        ids, static_cast<int>(tokens), order);
    check_launch("embedding_backward: sort");
}

void backward(StreamHandle stream, const std::int32_t* ids, Rows out_gradient, DType dtype,
              float factor, Rows table_gradient, std::int64_t tokens, std::int64_t vocab,
              std::int64_t hidden, std::int32_t* order) {
    if (tokens == 0 || hidden == 0) return;
    sort(stream, ids, tokens, order);
    if (dtype == DType::bf16)
        add_of<__nv_bfloat16>(stream, ids, out_gradient, factor, table_gradient, tokens, vocab,
                              hidden, order);
    else
        add_of<float>(stream, ids, out_gradient, factor, table_gradient, tokens, vocab, hidden,
                      order);
}

// A thread an element of out, whose rows are written side by side.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    pick_columns(const std::int32_t* ids, const T* table, std::int64_t table_pitch, T* out,
                 std::int64_t out_pitch, std::int64_t elements, std::int64_t vocab,
                 std::int64_t rank) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= elements) return;
    const std::int64_t token = i / rank;
    const std::int64_t k = i % rank;
    const std::int64_t id = ids[token];
    out[token * out_pitch + k] =
        id >= 0 && id < vocab ? table[k * table_pitch + id] : from_float<T>(NAN);
}

template <typename T>
void pick_columns_of(StreamHandle stream, const std::int32_t* ids, Rows table, Rows out,
                     std::int64_t tokens, std::int64_t vocab, std::int64_t rank) {
    const std::int64_t elements = tokens * rank;
    pick_columns<T>
        <<<static_cast<unsigned>((elements + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
            ids, static_cast<const T*>(table.data), table.pitch, static_cast<T*>(out.data),
            out.pitch, elements, vocab, rank);
    check_launch("embedding_columns_forward");
}

void columns_forward(StreamHandle stream, const std::int32_t* ids, Rows table, Rows out,
                     DType dtype, std::int64_t tokens, std::int64_t vocab, std::int64_t rank) {
    if (tokens == 0 || rank == 0) return;
    if (dtype == DType::bf16)
        pick_columns_of<__nv_bfloat16>(stream, ids, table, out, tokens, vocab, rank);
    else
        pick_columns_of<float>(stream, ids, table, out, tokens, vocab, rank);
}

template <typename T>
void add_columns_of(StreamHandle stream, const std::int32_t* ids, Rows gradient, Rows table,
                    std::int64_t tokens, std::int64_t vocab, std::int64_t rank,
                    const std::int32_t* order) {
    const dim3 grid(static_cast<unsigned>(tokens),
                    static_cast<unsigned>((rank + kColumnThreads - 1) / kColumnThreads));
    add_rows<T, 1, true><<<grid, kColumnThreads, 0, stream>>>(
        ids, order, static_cast<const T*>(gradient.data), gradient.pitch, 1.0f,
        static_cast<float*>(table.data), table.pitch, static_cast<int>(tokens), vocab, rank);
    check_launch("embedding_columns_backward");
}

void columns_backward(StreamHandle stream, const std::int32_t* ids, Rows out_gradient, DType dtype,
                      Rows table_gradient, std::int64_t tokens, std::int64_t vocab,
                      std::int64_t rank, std::int32_t* order) {
    if (tokens == 0 || rank == 0) return;
    sort(stream, ids, tokens, order);
    if (dtype == DType::bf16)
        add_columns_of<__nv_bfloat16>(stream, ids, out_gradient, table_gradient, tokens, vocab,
                                      rank, order);
    else
        add_columns_of<float>(stream, ids, out_gradient, table_gradient, tokens, vocab, rank,
                              order);
}

}  // namespace

const EmbeddingKernels& embedding_kernels() {
    static const EmbeddingKernels kKernels{forward, backward, columns_forward, columns_backward};
    return kKernels;
}

}  // namespace garam::cuda
