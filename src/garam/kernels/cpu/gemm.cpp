// The portable matrix product on packed fp32 tiles, and the packing.
#include "garam/kernels/cpu/gemm.h"

GARAM_KERNELS_BEGIN

void gemm(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_pitch, const float* b,
          int64_t b_pitch, float* c, int64_t c_pitch, bool accumulate) {
    gemm_strided({a, a_pitch, 1, b, b_pitch, c, c_pitch}, m, n, k, accumulate);
}

template <class T>
void pack(Rows x, bool transpose, float* out, int64_t out_pitch, int64_t rows, int64_t columns) {
    const T* const in = static_cast<const T*>(x.data);
    for (int64_t row = 0; row < rows; ++row) {
        float* const y = out + row * out_pitch;
        if (transpose) {
            for (int64_t i = 0; i < columns; ++i)
                y[i] = widen(in[i * x.pitch + row]);
        } else {
            const T* const from = in + row * x.pitch;
            for_lanes(columns,
                      [&](int64_t i, auto part) { store(y + i, load(from + i, part), part); });
        }
        for (int64_t i = columns; i < out_pitch; ++i)
            y[i] = 0;
    }
}

GARAM_KERNELS_END

namespace garam::cpu::GARAM_ISA {

void add_gemm(KernelTable& table);
void add_gemm(KernelTable& table) {
    table.gemm = gemm;
    table.f32.pack = pack<float>;
    table.bf16.pack = pack<Bf16>;
}

}  // namespace garam::cpu::GARAM_ISA
