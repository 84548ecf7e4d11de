// A product as its definition reads: a thread an element of c, sums over k in order. For what the library
// has no algorithm for, and for no terms at all (k = 0). Floor: none worth stating, no product of a model
// comes here.
#include "garam/kernels/cuda/device_code.cuh"
#include "garam/kernels/cuda/matmul.h"

namespace garam::cuda {
namespace {

constexpr int kSide = 16;

template <typename In, typename Out>
__global__ void plain_kernel(MatmulArguments x) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kSide + threadIdx.y;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kSide + threadIdx.x;
    if (column >= x.n) return;
    for (std::int64_t i = row; i < x.m; i += static_cast<std::int64_t>(gridDim.y) * kSide) {
        const In* a = static_cast<const In*>(x.a.data) + (x.transpose_a ? i : i * x.a.pitch);
        const In* b =
            static_cast<const In*>(x.b.data) + (x.transpose_b ? column * x.b.pitch : column);
        const std::int64_t a_step = x.transpose_a ? x.a.pitch : 1;
        const std::int64_t b_step = x.transpose_b ? 1 : x.b.pitch;
        float sum = 0;
        for (std::int64_t p = 0; p < x.k; ++p) {
            sum = fmaf(to_float(*a), to_float(*b), sum);
            a += a_step;
            b += b_step;
        }
        sum *= x.alpha;
        if (x.addend.data != nullptr)
            sum += to_float(static_cast<const Out*>(x.addend.data)[i * x.addend.pitch + column]);
        if (x.bias != nullptr) sum += to_float(static_cast<const Out*>(x.bias)[column]);
        static_cast<Out*>(x.c.data)[i * x.c.pitch + column] = from_float<Out>(sum);
    }
}

}  // namespace

void plain_matmul(StreamHandle stream, const MatmulArguments& x) {
    constexpr std::int64_t kMostRows = 65535;
    const dim3 block(kSide, kSide);
    const std::int64_t row_blocks = (x.m + kSide - 1) / kSide;
    const dim3 grid(static_cast<unsigned>((x.n + kSide - 1) / kSide),
                    static_cast<unsigned>(row_blocks < kMostRows ? row_blocks : kMostRows));
    if (x.inputs_are_bf16 && x.c_is_bf16)
        plain_kernel<__nv_bfloat16, __nv_bfloat16><<<grid, block, 0, stream>>>(x);
    else if (x.inputs_are_bf16)
        plain_kernel<__nv_bfloat16, float><<<grid, block, 0, stream>>>(x);
    else
        plain_kernel<float, float><<<grid, block, 0, stream>>>(x);
    check_launch("plain_matmul");
}

}  // namespace garam::cuda
