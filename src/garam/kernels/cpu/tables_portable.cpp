// Where only the portable kernels are built, they serve every instruction set asked for.
#include "garam/kernels/cpu/kernel_table.h"

namespace garam::cpu {

namespace generic {
const KernelTable& table();
}

const KernelTable& generic_kernels() {
    return generic::table();
}
const KernelTable& avx2_kernels() {
    return generic::table();
}
const KernelTable& avx512_kernels() {
    return generic::table();
}
const MatmulKernel& fast_bf16_matmul() {
    return generic::table().bf16.matmul;
}
const MatmulKernel& tiled_bf16_matmul() {
    return generic::table().bf16.matmul;
}
const AttentionKernels& tiled_bf16_attention() {
    return generic::table().bf16.attention;
}

}  // namespace garam::cpu
