// The row that a block of threads makes for itself in shared memory, bf16 in vectors of 16 bytes: elements
// of a before the tail, rounded as rms_norm_forward and gated_activation_forward round them. begin() runs ahead of
// the first copy, while the work ahead may still write x; write() follows all of a block's first copies.
#pragma once

#include "garam/kernels/cuda/gated_activation.cuh"
#include "garam/kernels/cuda/row_matmul.h"
#include "garam/kernels/cuda/tensor_core.cuh"

namespace garam::cuda {

constexpr int kElements = kVector<Bf16>;

using Pack = Vector<Bf16, kElements>;

__device__ __forceinline__ uint4 load_vector_of(const void* from, int vector) {
    return static_cast<const uint4*>(from)[vector];
}
__device__ __forceinline__ Pack as_pack(const uint4& x) {
    return *reinterpret_cast<const Pack*>(&x);
}
__device__ __forceinline__ uint4 as_uint4(const Pack& x) {
    return *reinterpret_cast<const uint4*>(&x);
}

// Where a vector of the row lies.
struct InOrder {
    __device__ __forceinline__ static constexpr int of(int vector) { return vector; }
};

// kStages: groups of copies under way when the row is written, the first of them with what begin() copied.
template <RowInput kInput, int kThreads, int kStages, typename Place = InOrder>
struct Made;

__device__ __forceinline__ int made_vectors(const MadeRow& work) {
    return static_cast<int>(work.made) / kElements;
}

template <int kThreads, int kStages, typename Place>
struct Made<RowInput::given, kThreads, kStages, Place> {
    __device__ __forceinline__ static void begin(const MadeRow& /*work*/, uint4* /*row*/) {}
    __device__ __forceinline__ static void write(const MadeRow& /*work*/, uint4* /*row*/,
                                                 float* /*shared*/) {}
};

template <int kThreads, int kStages, typename Place>
struct Made<RowInput::rms_norm, kThreads, kStages, Place> {
    static constexpr int kHeld =
        (static_cast<int>(kRowMostNormed) + kThreads * kElements - 1) / (kThreads * kElements);

    // The weight waits where the normed values will be. It belongs to the first of the copies.
    __device__ __forceinline__ static void begin(const MadeRow& work, uint4* row) {
        for (int vector = static_cast<int>(threadIdx.x); vector < made_vectors(work);
             vector += kThreads)
            copy_async_16(shared_address(row + Place::of(vector)),
                          static_cast<const uint4*>(work.weight_or_up) + vector, true);
    }
    __device__ __forceinline__ static void write(const MadeRow& work, uint4* row, float* shared) {
        const int vectors = made_vectors(work);
        uint4 x[kHeld];
        float squares = 0;
#pragma unroll
        for (int u = 0; u < kHeld; ++u) {
            const int vector = static_cast<int>(threadIdx.x) + u * kThreads;
            if (vector < vectors) x[u] = load_vector_of(work.x, vector);
        }
#pragma unroll
        for (int u = 0; u < kHeld; ++u) {
            const int vector = static_cast<int>(threadIdx.x) + u * kThreads;
            if (vector < vectors) squares = add_products(x[u], x[u], squares);
        }
        const float mean = block_sum<kThreads>(squares, shared) / static_cast<float>(work.made);
        const float rstd = 1.0f / sqrtf(mean + work.eps);
        copy_async_wait<kStages - 1>();
#pragma unroll
        for (int u = 0; u < kHeld; ++u) {
            const int vector = static_cast<int>(threadIdx.x) + u * kThreads;
            if (vector >= vectors) break;
            Pack y = as_pack(x[u]);
            const Pack weight = as_pack(row[Place::of(vector)]);
#pragma unroll
            for (int i = 0; i < kElements; ++i) {
                float value = to_float(y.at[i]) * rstd;
                if (!work.rounds_once) value = to_float(from_float<Bf16>(value));
                y.at[i] = from_float<Bf16>(value * (to_float(weight.at[i]) + work.weight_offset));
            }
            row[Place::of(vector)] = as_uint4(y);
        }
    }
};

template <Activation kActivation, int kThreads, typename Place>
struct MadeByActivation {
    __device__ __forceinline__ static void begin(const MadeRow& /*work*/, uint4* /*row*/) {}
    __device__ __forceinline__ static void write(const MadeRow& work, uint4* row,
                                                 float* /*shared*/) {
        constexpr int kAtOnce = kActivation == Activation::silu ? 2 : 1;  // without spills
        const int vectors = made_vectors(work);
        for (int first = static_cast<int>(threadIdx.x); first < vectors;
             first += kAtOnce * kThreads) {
            uint4 gate[kAtOnce], up[kAtOnce];
#pragma unroll
            for (int u = 0; u < kAtOnce; ++u) {
                const int vector = first + u * kThreads;
                if (vector >= vectors) break;
                gate[u] = load_vector_of(work.x, vector);
                up[u] = load_vector_of(work.weight_or_up, vector);
            }
#pragma unroll
            for (int u = 0; u < kAtOnce; ++u) {
                const int vector = first + u * kThreads;
                if (vector >= vectors) break;
                Pack y = as_pack(gate[u]);
                const Pack other = as_pack(up[u]);
#pragma unroll
                for (int i = 0; i < kElements; ++i)
                    y.at[i] = gated<kActivation, Bf16>(to_float(y.at[i]), to_float(other.at[i]));
                row[Place::of(vector)] = as_uint4(y);
            }
        }
    }
};

template <int kThreads, int kStages, typename Place>
struct Made<RowInput::silu_mul, kThreads, kStages, Place>
    : MadeByActivation<Activation::silu, kThreads, Place> {};
template <int kThreads, int kStages, typename Place>
struct Made<RowInput::gelu_tanh_mul, kThreads, kStages, Place>
    : MadeByActivation<Activation::gelu_tanh, kThreads, Place> {};

}  // namespace garam::cuda
