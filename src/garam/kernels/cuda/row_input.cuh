// The row that a block of threads makes for itself in shared memory, bf16 in vectors of 16 bytes: elements
// of a before the tail, rounded as rms_norm_forward and gated_activation_forward round them. begin() runs while the
// work ahead may still write x, and reads the weight of a norm, which must be settled by then; write() follows that.
//
// Rows that all blocks read come by loads, not by copies to shared memory: these took 2.5 us longer on an H200.
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

template <RowInput kInput, int kThreads, typename Place = InOrder>
struct Made;

__device__ __forceinline__ int made_vectors(const MadeRow& work) {
    return static_cast<int>(work.made) / kElements;
}

template <int kThreads, typename Place>
struct Made<RowInput::given, kThreads, Place> {
    __device__ __forceinline__ void begin(const MadeRow& /*work*/) {}
    __device__ __forceinline__ void write(const MadeRow& /*work*/, uint4* /*row*/,
                                          float* /*shared*/) {}
};

template <int kThreads, typename Place>
struct Made<RowInput::rms_norm, kThreads, Place> {
    static constexpr int kHeld =
        (static_cast<int>(kRowMostNormed) + kThreads * kElements - 1) / (kThreads * kElements);

    uint4 weight[kHeld];

    __device__ __forceinline__ void begin(const MadeRow& work) {
        const int vectors = made_vectors(work);
#pragma unroll
        for (int u = 0; u < kHeld; ++u) {
            const int vector = static_cast<int>(threadIdx.x) + u * kThreads;
            if (vector < vectors) weight[u] = load_vector_of(work.weight_or_up, vector);
        }
    }
    __device__ __forceinline__ void write(const MadeRow& work, uint4* row, float* shared) {
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
#pragma unroll
        for (int u = 0; u < kHeld; ++u) {
            const int vector = static_cast<int>(threadIdx.x) + u * kThreads;
            if (vector >= vectors) break;
            Pack y = as_pack(x[u]);
            const Pack by = as_pack(weight[u]);
#pragma unroll
            for (int i = 0; i < kElements; ++i) {
                float value = to_float(y.at[i]) * rstd;
                if (!work.rounds_once) value = to_float(from_float<Bf16>(value));
                y.at[i] = from_float<Bf16>(value * (to_float(by.at[i]) + work.weight_offset));
            }
            row[Place::of(vector)] = as_uint4(y);
        }
    }
};

template <Activation kActivation, int kThreads, typename Place>
struct MadeByActivation {
    __device__ __forceinline__ void begin(const MadeRow& /*work*/) {}
    __device__ __forceinline__ void write(const MadeRow& work, uint4* row, float* /*shared*/) {
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

template <int kThreads, typename Place>
struct Made<RowInput::silu_mul, kThreads, Place>
    : MadeByActivation<Activation::silu, kThreads, Place> {};
template <int kThreads, typename Place>
struct Made<RowInput::gelu_tanh_mul, kThreads, Place>
    : MadeByActivation<Activation::gelu_tanh, kThreads, Place> {};

}  // namespace garam::cuda
