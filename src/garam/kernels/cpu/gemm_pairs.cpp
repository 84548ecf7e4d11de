// The matrix product of bf16 on processors that multiply it in pairs (AVX512_BF16).
#include "garam/kernels/cpu/gemm_block.h"

namespace garam::cpu::GARAM_ISA {

const MatmulKernel& matmul_in_pairs();
const MatmulKernel& matmul_in_pairs() {
    return kMatmulKernel<PairSteps>;
}

}  // namespace garam::cpu::GARAM_ISA
