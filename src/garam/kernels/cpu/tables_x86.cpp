#include "garam/kernels/cpu/kernel_table.h"

namespace garam::cpu {

namespace generic {
const KernelTable& table();
}
namespace avx2 {
const KernelTable& table();
}
namespace avx512 {
const KernelTable& table();
}
namespace avx512_bf16 {
const MatmulKernel& matmul_in_pairs();
}
namespace avx512_amx {
const MatmulKernel& matmul_in_tiles();
const AttentionKernels& attention_in_tiles();
}  // namespace avx512_amx

const KernelTable& generic_kernels() {
    return generic::table();
}
const KernelTable& avx2_kernels() {
    return avx2::table();
}
const KernelTable& avx512_kernels() {
    return avx512::table();
}
const MatmulKernel& fast_bf16_matmul() {
    return avx512_bf16::matmul_in_pairs();
}
const MatmulKernel& tiled_bf16_matmul() {
    return avx512_amx::matmul_in_tiles();
}
const AttentionKernels& tiled_bf16_attention() {
    return avx512_amx::attention_in_tiles();
}

}  // namespace garam::cpu
