#include <algorithm>
#include <type_traits>

#include "garam/kernels/cuda/elementwise.h"
#include "garam/kernels/cuda/map_rows.cuh"

namespace garam::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kInFlight = 4;  // accesses a thread

// Dense matrices are one row, which may be longer than 2^30.
template <typename Map>
void launch_map(const char* name, StreamHandle stream, const Map& map, std::int64_t rows,
                std::int64_t columns) {
    launch_map_rows<std::int64_t>(name, stream, map, rows, columns);
}

// Whether accesses of `bytes` fit all rows.
bool allows(std::int64_t bytes, const void* data, std::int64_t pitch_bytes) {
    return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(bytes) == 0 &&
           pitch_bytes % bytes == 0;
}

// out = x * factor, or x as it is.
template <typename From, typename To, int N, bool kScales>
struct Convert {
    static constexpr int kWidth = N;
    static constexpr int kUnroll = kInFlight;
    template <int M>
    using Value = Vector<From, M>;
    const From* x;
    To* out;
    std::int64_t x_pitch, out_pitch;
    float factor;

    struct Line {
        const From* x;
        To* out;
        float factor;
        template <int M>
        __device__ __forceinline__ Value<M> load(std::int64_t i) const {
            return load_vector<M>(x + i);
        }
        template <int M>
        __device__ __forceinline__ void store(std::int64_t i, const Value<M>& value) const {
            Vector<To, M> y;
#pragma unroll
            for (int k = 0; k < M; ++k)
                y.at[k] = from_float<To>(kScales ? to_float(value.at[k]) * factor
                                                 : to_float(value.at[k]));
            store_vector(out + i, y);
        }
    };
    __device__ __forceinline__ Line line(std::int64_t row) const {
        return {x + row * x_pitch, out + row * out_pitch, factor};
    }
};

template <typename From, typename To, bool kScales>
void convert(StreamHandle stream, Rows x, float factor, Rows out, std::int64_t rows,
             std::int64_t columns) {
    constexpr int N = sizeof(From) > sizeof(To) ? kVector<From> : kVector<To>;
    const auto run = [&](auto width) {
        constexpr int kWidth = decltype(width)::value;
        const Convert<From, To, kWidth, kScales> map{static_cast<const From*>(x.data),
                                                     static_cast<To*>(out.data), x.pitch, out.pitch,
                                                     factor};
        launch_map(kScales ? "scale" : "cast", stream, map, rows, columns);
    };
    if (rows_allow<From, N>(x) && rows_allow<To, N>(out))
        run(std::integral_constant<int, N>{});
    else
        run(std::integral_constant<int, 1>{});
}

template <typename From>
void cast_from(StreamHandle stream, Rows x, Rows out, DType to, std::int64_t rows,
               std::int64_t columns) {
    if constexpr (!std::is_same_v<From, float>)
        if (to == DType::f32) return convert<From, float, false>(stream, x, 1, out, rows, columns);
    if constexpr (!std::is_same_v<From, __nv_bfloat16>)
        if (to == DType::bf16)
            return convert<From, __nv_bfloat16, false>(stream, x, 1, out, rows, columns);
    if constexpr (!std::is_same_v<From, __half>)
        if (to == DType::f16) return convert<From, __half, false>(stream, x, 1, out, rows, columns);
}

void cast(StreamHandle stream, Rows x, DType from, Rows out, DType to, std::int64_t rows,
          std::int64_t columns) {
    if (from == DType::f32)
        cast_from<float>(stream, x, out, to, rows, columns);
    else if (from == DType::bf16)
        cast_from<__nv_bfloat16>(stream, x, out, to, rows, columns);
    else
        cast_from<__half>(stream, x, out, to, rows, columns);
}

void scale(StreamHandle stream, Rows x, DType from, float factor, Rows out, DType to,
           std::int64_t rows, std::int64_t columns) {
    if (from == DType::bf16)
        convert<__nv_bfloat16, __nv_bfloat16, true>(stream, x, factor, out, rows, columns);
    else if (to == DType::f32)
        convert<float, float, true>(stream, x, factor, out, rows, columns);
    else
        convert<float, __nv_bfloat16, true>(stream, x, factor, out, rows, columns);
}

template <typename T, int N>
struct Add {
    static constexpr int kWidth = N;
    static constexpr int kUnroll = kInFlight;
    template <int M>
    struct Value {
        Vector<T, M> a, b;
    };
    const T* a;
    const T* b;
    T* out;
    std::int64_t a_pitch, b_pitch, out_pitch;

    struct Line {
        const T* a;
        const T* b;
        T* out;
        template <int M>
        __device__ __forceinline__ Value<M> load(std::int64_t i) const {
            return {load_vector<M>(a + i), load_vector<M>(b + i)};
        }
        template <int M>
        __device__ __forceinline__ void store(std::int64_t i, const Value<M>& value) const {
            Vector<T, M> y;
#pragma unroll
            for (int k = 0; k < M; ++k)
                y.at[k] = from_float<T>(to_float(value.a.at[k]) + to_float(value.b.at[k]));
            store_vector(out + i, y);
        }
    };
    __device__ __forceinline__ Line line(std::int64_t row) const {
        return {a + row * a_pitch, b + row * b_pitch, out + row * out_pitch};
    }
};

template <typename T>
void add_of(StreamHandle stream, Rows a, Rows b, Rows out, std::int64_t rows,
            std::int64_t columns) {
    constexpr int N = kVector<T>;
    const auto run = [&](auto width) {
        const Add<T, decltype(width)::value> map{static_cast<const T*>(a.data),
                                                 static_cast<const T*>(b.data),
                                                 static_cast<T*>(out.data),
                                                 a.pitch,
                                                 b.pitch,
                                                 out.pitch};
        launch_map("add", stream, map, rows, columns);
    };
    if (rows_allow<T, N>(a) && rows_allow<T, N>(b) && rows_allow<T, N>(out))
        run(std::integral_constant<int, N>{});
    else
        run(std::integral_constant<int, 1>{});
}

void add(StreamHandle stream, Rows a, Rows b, Rows out, DType dtype, std::int64_t rows,
         std::int64_t columns) {
    if (dtype == DType::f32)
        add_of<float>(stream, a, b, out, rows, columns);
    else
        add_of<__nv_bfloat16>(stream, a, b, out, rows, columns);
}

template <typename T, int N>
struct Fill {
    static constexpr int kWidth = N;
    static constexpr int kUnroll = kInFlight;
    template <int M>
    using Value = Vector<T, M>;
    T* out;
    std::int64_t pitch;
    float value;

    struct Line {
        T* out;
        float value;
        template <int M>
        __device__ __forceinline__ Value<M> load(std::int64_t) const {
            Value<M> y;
#pragma unroll
            for (int k = 0; k < M; ++k)
                y.at[k] = from_float<T>(value);
            return y;
        }
        template <int M>
        __device__ __forceinline__ void store(std::int64_t i, const Value<M>& y) const {
            store_vector(out + i, y);
        }
    };
    __device__ __forceinline__ Line line(std::int64_t row) const {
        return {out + row * pitch, value};
    }
};

template <typename T>
void fill_of(StreamHandle stream, float value, Rows out, std::int64_t rows, std::int64_t columns) {
    constexpr int N = kVector<T>;
    T* const to = static_cast<T*>(out.data);
    if (rows_allow<T, N>(out))
        launch_map("fill", stream, Fill<T, N>{to, out.pitch, value}, rows, columns);
    else
        launch_map("fill", stream, Fill<T, 1>{to, out.pitch, value}, rows, columns);
}

void fill(StreamHandle stream, float value, Rows out, DType dtype, std::int64_t rows,
          std::int64_t columns) {
    if (dtype == DType::f32)
        fill_of<float>(stream, value, out, rows, columns);
    else
        fill_of<__nv_bfloat16>(stream, value, out, rows, columns);
}

// Matrices of cast_many, as arguments of a launch.
struct CastTask {
    const float* from;
    void* to;
    std::int64_t elements;
    std::int64_t columns, to_pitch;
    float factor;
    bool to_bf16, by_vectors;
};
constexpr int kMostTasks = 80;  // within 4 KB
struct CastTasks {
    CastTask at[kMostTasks];
};
static_assert(sizeof(CastTasks) <= 4000);

template <typename T, int N>
__device__ __forceinline__ void cast_task(const CastTask& task) {
    T* const to = static_cast<T*>(task.to);
    const std::int64_t columns = task.columns;
    const std::int64_t skipped = task.to_pitch - columns;
    // A division by a number of 32 bits takes a fraction of the time.
    const bool small = task.elements <= 0xffffffffll;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads * N * kInFlight;
    for (std::int64_t begin =
             (static_cast<std::int64_t>(blockIdx.x) * kThreads * kInFlight + threadIdx.x) * N;
         begin < task.elements; begin += step) {
        Vector<float, N> x[kInFlight];
#pragma unroll
        for (int u = 0; u < kInFlight; ++u)
            if (begin + u * kThreads * N < task.elements)
                x[u] = *reinterpret_cast<const Vector<float, N>*>(task.from + begin +
                                                                  u * kThreads * N);
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) {
            const std::int64_t at = begin + u * kThreads * N;
            if (at >= task.elements) break;
            Vector<T, N> y;
#pragma unroll
            for (int k = 0; k < N; ++k)
                y.at[k] = from_float<T>(x[u].at[k] * task.factor);
            std::int64_t place = at;
            if (skipped != 0)
                place += skipped *
                         (small ? static_cast<std::int64_t>(static_cast<std::uint32_t>(at) /
                                                            static_cast<std::uint32_t>(columns))
                                : at / columns);
            *reinterpret_cast<Vector<T, N>*>(to + place) = y;
        }
    }
}

__global__ void __launch_bounds__(kThreads) cast_tasks(const __grid_constant__ CastTasks tasks) {
    const CastTask& task = tasks.at[blockIdx.y];
    if (task.to_bf16) {
        if (task.by_vectors)
            cast_task<__nv_bfloat16, 4>(task);
        else
            cast_task<__nv_bfloat16, 1>(task);
    } else {
        if (task.by_vectors)
            cast_task<float, 4>(task);
        else
            cast_task<float, 1>(task);
    }
}

void cast_many(StreamHandle stream, const CastMatrix* matrices, std::int64_t count) {
    constexpr std::int64_t kWidth = 4;
    constexpr std::int64_t kMostBlocksX = 512;
    CastTasks tasks{};
    int filled = 0;
    std::int64_t longest = 0;
    const auto launch = [&] {
        const std::int64_t chunk = kThreads * kInFlight * kWidth;
        const std::int64_t blocks = std::min((longest + chunk - 1) / chunk, kMostBlocksX);
        cast_tasks<<<dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(filled)), kThreads,
                     0, stream>>>(tasks);
        check_launch("cast_many");
        filled = 0;
        longest = 0;
    };
    for (std::int64_t i = 0; i < count; ++i) {
        const CastMatrix& m = matrices[i];
        const std::int64_t elements = m.rows * m.columns;
        if (elements == 0) continue;
        const bool dense = m.to_pitch == m.columns || m.rows == 1;
        const std::int64_t bytes = kWidth * static_cast<std::int64_t>(size_of(m.to_dtype));
        // A vector must not cross the end of a row, nor of the matrix.
        const bool by_vectors = allows(4 * sizeof(float), m.from, 0) && allows(bytes, m.to, 0) &&
                                elements % kWidth == 0 &&
                                (dense || (m.columns % kWidth == 0 && m.to_pitch % kWidth == 0));
        tasks.at[filled++] = {m.from,
                              m.to,
                              elements,
                              dense ? elements : m.columns,
                              dense ? elements : m.to_pitch,
                              m.factor,
                              m.to_dtype == DType::bf16,
                              by_vectors};
        longest = std::max(longest, elements);
        if (filled == kMostTasks) launch();
    }
    if (filled > 0) launch();
}

// Rows as units of the widest access that fits them all; then no row has a rest.
template <typename Unit>
struct Copy {
    static constexpr int kWidth = 1;
    static constexpr int kUnroll = kInFlight;
    template <int M>
    using Value = Unit;
    const Unit* x;
    Unit* out;
    std::int64_t x_pitch, out_pitch;

    struct Line {
        const Unit* x;
        Unit* out;
        template <int M>
        __device__ __forceinline__ Unit load(std::int64_t i) const {
            return x[i];
        }
        template <int M>
        __device__ __forceinline__ void store(std::int64_t i, const Unit& value) const {
            out[i] = value;
        }
    };
    __device__ __forceinline__ Line line(std::int64_t row) const {
        return {x + row * x_pitch, out + row * out_pitch};
    }
};

enum class Pick : std::uint8_t { gather, scatter, store };

template <typename Unit, Pick kPick>
struct Picked {
    static constexpr int kWidth = 1;
    static constexpr int kUnroll = kInFlight;
    template <int M>
    using Value = Unit;
    const Unit* x;
    Unit* out;
    const std::int32_t* rows;
    std::int64_t x_pitch, out_pitch, x_rows, out_rows;

    struct Line {
        const Unit* x;  // null: `other`
        Unit* out;      // null: nothing is written
        int other;      // of each byte
        template <int M>
        __device__ __forceinline__ Unit load(std::int64_t i) const {
            if (x != nullptr) return x[i];
            Unit value;
            memset(&value, other, sizeof(value));
            return value;
        }
        template <int M>
        __device__ __forceinline__ void store(std::int64_t i, const Unit& value) const {
            if (out != nullptr) out[i] = value;
        }
    };
    __device__ __forceinline__ Line line(std::int64_t row) const {
        if constexpr (kPick == Pick::gather) {
            const std::int64_t from = rows[row];
            const bool known = from >= 0 && from < x_rows;
            return {known ? x + from * x_pitch : nullptr, out + row * out_pitch,
                    from == -1 ? 0 : 0xff};
        } else if constexpr (kPick == Pick::store) {
            const std::int64_t to = rows[row];
            const bool known = to >= 0 && to < out_rows;
            return {x + row * x_pitch, known ? out + to * out_pitch : nullptr, 0};
        } else {
            // The first of `rows` that is not below; -1 counts as the highest.
            std::int64_t low = 0, high = x_rows;
            while (low < high) {
                const std::int64_t middle = (low + high) / 2;
                if (static_cast<std::uint32_t>(rows[middle]) < static_cast<std::uint32_t>(row))
                    low = middle + 1;
                else
                    high = middle;
            }
            const bool known = low < x_rows && rows[low] == row;
            return {known ? x + low * x_pitch : nullptr, out + row * out_pitch, 0};
        }
    }
};

// Calls run(unit) with a value of the widest type that divides all of them.
template <typename Run>
void with_unit(const void* x, std::int64_t x_pitch, const void* out, std::int64_t out_pitch,
               std::int64_t row_bytes, const Run& run) {
    const auto fits = [&](std::int64_t bytes) {
        return allows(bytes, x, x_pitch) && allows(bytes, out, out_pitch) && row_bytes % bytes == 0;
    };
    if (fits(16))
        run(uint4{});
    else if (fits(8))
        run(uint2{});
    else if (fits(4))
        run(std::uint32_t{});
    else if (fits(2))
        run(std::uint16_t{});
    else
        run(std::uint8_t{});
}

void copy(StreamHandle stream, Rows x, Rows out, std::int64_t rows, std::int64_t row_bytes) {
    with_unit(x.data, x.pitch, out.data, out.pitch, row_bytes, [&](auto unit) {
        using Unit = decltype(unit);
        constexpr std::int64_t kSize = sizeof(Unit);
        const Copy<Unit> map{static_cast<const Unit*>(x.data), static_cast<Unit*>(out.data),
                             x.pitch / kSize, out.pitch / kSize};
        launch_map("copy", stream, map, rows, row_bytes / kSize);
    });
}

template <Pick kPick>
void pick_rows(StreamHandle stream, const PickedRows& work) {
    with_unit(work.x, work.x_pitch, work.out, work.out_pitch, work.row_bytes, [&](auto unit) {
        using Unit = decltype(unit);
        constexpr std::int64_t kSize = sizeof(Unit);
        const Picked<Unit, kPick> map{static_cast<const Unit*>(work.x),
                                      static_cast<Unit*>(work.out),
                                      work.rows,
                                      work.x_pitch / kSize,
                                      work.out_pitch / kSize,
                                      work.x_rows,
                                      work.out_rows};
        launch_map(kPick == Pick::gather    ? "gather_rows"
                   : kPick == Pick::scatter ? "scatter_rows"
                                            : "store_rows",
                   stream, map, kPick == Pick::store ? work.x_rows : work.out_rows,
                   work.row_bytes / kSize);
    });
}

}  // namespace

const ElementwiseKernels& elementwise_kernels() {
    static const ElementwiseKernels kKernels{cast,
                                             copy,
                                             scale,
                                             add,
                                             fill,
                                             cast_many,
                                             pick_rows<Pick::gather>,
                                             pick_rows<Pick::scatter>,
                                             pick_rows<Pick::store>};
    return kKernels;
}

}  // namespace garam::cuda
