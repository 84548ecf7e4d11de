#include "garam/kernels/cuda/gated_activation.cuh"
#include "garam/kernels/cuda/gated_activation.h"
#include "garam/kernels/cuda/map_rows.cuh"

namespace garam::cuda {
namespace {

template <Activation kActivation, typename T, int N>
struct Forward {
    static constexpr int kWidth = N;
    static constexpr int kUnroll = 2;
    template <int M>
    struct Value {
        Vector<T, M> gate, up;
    };
    const T* gate;
    const T* up;
    T* out;
    std::int64_t gate_pitch, up_pitch, out_pitch;

    struct Line {
        const T* gate;
        const T* up;
        T* out;
        template <int M>
        __device__ __forceinline__ Value<M> load(int i) const {
            return {load_vector<M>(gate + i), load_vector<M>(up + i)};
        }
        template <int M>
        __device__ __forceinline__ void store(int i, const Value<M>& value) const {
            Vector<T, M> y;
#pragma unroll
            for (int k = 0; k < M; ++k) {
                y.at[k] =
                    gated<kActivation, T>(to_float(value.gate.at[k]), to_float(value.up.at[k]));
            }
            store_vector(out + i, y);
        }
    };
    __device__ __forceinline__ Line line(std::int64_t row) const {
        return {gate + row * gate_pitch, up + row * up_pitch, out + row * out_pitch};
    }
};

template <Activation kActivation, typename T, int N>
struct Backward {
    static constexpr int kWidth = N;
    static constexpr int kUnroll = 1;
    template <int M>
    struct Value {
        Vector<T, M> d, gate, up;
    };
    const T* d;
    const T* gate;
    const T* up;
    T* d_gate;
    T* d_up;
    std::int64_t d_pitch, gate_pitch, up_pitch, d_gate_pitch, d_up_pitch;

    struct Line {
        const T* d;
        const T* gate;
        const T* up;
        T* d_gate;
        T* d_up;
        template <int M>
        __device__ __forceinline__ Value<M> load(int i) const {
            return {load_vector<M>(d + i), load_vector<M>(gate + i), load_vector<M>(up + i)};
        }
        template <int M>
        __device__ __forceinline__ void store(int i, const Value<M>& value) const {
            Vector<T, M> to_gate, to_up;
#pragma unroll
            for (int k = 0; k < M; ++k) {
                const float dy = to_float(value.d.at[k]);
                const float x = to_float(value.gate.at[k]);
                const float part = Activated<kActivation>::template part<T>(x);
                to_gate.at[k] = from_float<T>(dy * to_float(value.up.at[k]) *
                                              Activated<kActivation>::slope(x, part));
                to_up.at[k] = from_float<T>(dy * (x * part));
            }
            store_vector(d_gate + i, to_gate);
            store_vector(d_up + i, to_up);
        }
    };
    __device__ __forceinline__ Line line(std::int64_t row) const {
        return {d + row * d_pitch, gate + row * gate_pitch, up + row * up_pitch,
                d_gate + row * d_gate_pitch, d_up + row * d_up_pitch};
    }
};

template <Activation kActivation, typename T>
void forward_of(StreamHandle stream, Rows gate, Rows up, Rows out, std::int64_t rows,
                std::int64_t ffn) {
    const auto run = [&](auto width) {
        const Forward<kActivation, T, decltype(width)::value> map{static_cast<const T*>(gate.data),
                                                                  static_cast<const T*>(up.data),
                                                                  static_cast<T*>(out.data),
                                                                  gate.pitch,
                                                                  up.pitch,
                                                                  out.pitch};
        launch_map_rows("gated_activation_forward", stream, map, rows, ffn);
    };
    constexpr int N = kVector<T>;
    if (rows_allow<T, N>(gate) && rows_allow<T, N>(up) && rows_allow<T, N>(out))
        run(std::integral_constant<int, N>{});
    else
        run(std::integral_constant<int, 1>{});
}

template <Activation kActivation, typename T>
void backward_of(StreamHandle stream, Rows d, Rows gate, Rows up, Rows d_gate, Rows d_up,
                 std::int64_t rows, std::int64_t ffn) {
    const auto run = [&](auto width) {
        const Backward<kActivation, T, decltype(width)::value> map{static_cast<const T*>(d.data),
                                                                   static_cast<const T*>(gate.data),
                                                                   static_cast<const T*>(up.data),
                                                                   static_cast<T*>(d_gate.data),
                                                                   static_cast<T*>(d_up.data),
                                                                   d.pitch,
                                                                   gate.pitch,
                                                                   up.pitch,
                                                                   d_gate.pitch,
                                                                   d_up.pitch};
        launch_map_rows("gated_activation_backward", stream, map, rows, ffn);
    };
    constexpr int N = kVector<T>;
    bool wide = true;
    for (const Rows& x : {d, gate, up, d_gate, d_up})
        wide = wide && rows_allow<T, N>(x);
    if (wide)
        run(std::integral_constant<int, N>{});
    else
        run(std::integral_constant<int, 1>{});
}

template <Activation kActivation>
using Constant = std::integral_constant<Activation, kActivation>;

// Calls run(activation, element type) with both as types.
template <typename Run>
void with_types(Activation activation, DType dtype, const Run& run) {
    const auto run_for = [&](auto constant) {
        if (dtype == DType::bf16)
            run(constant, __nv_bfloat16{});
        else
            run(constant, float{});
    };
    if (activation == Activation::gelu_tanh)
        run_for(Constant<Activation::gelu_tanh>{});
    else
        run_for(Constant<Activation::silu>{});
}

void forward(StreamHandle stream, Activation activation, Rows gate, Rows up, Rows out, DType dtype,
             std::int64_t rows, std::int64_t ffn) {
    with_types(activation, dtype, [&](auto constant, auto element) {
        forward_of<decltype(constant)::value, decltype(element)>(stream, gate, up, out, rows, ffn);
    });
}

void backward(StreamHandle stream, Activation activation, Rows out_gradient, Rows gate, Rows up,
              Rows gate_gradient, Rows up_gradient, DType dtype, std::int64_t rows,
              std::int64_t ffn) {
    with_types(activation, dtype, [&](auto constant, auto element) {
        backward_of<decltype(constant)::value, decltype(element)>(
            stream, out_gradient, gate, up, gate_gradient, up_gradient, rows, ffn);
    });
}

}  // namespace

const GatedActivationKernels& gated_activation_kernels() {
    static const GatedActivationKernels kKernels{forward, backward};
    return kKernels;
}

}  // namespace garam::cuda
