// The matrix product in fp32; bf16 operands are widened while they are packed.
#include "garam/kernels/cpu/gemm_block.h"

namespace garam::cpu::GARAM_ISA {

void add_gemm(KernelTable& table);
void add_gemm(KernelTable& table) {
    table.f32.matmul = kMatmulKernel<SingleSteps<float>>;
    table.bf16.matmul = kMatmulKernel<SingleSteps<Bf16>>;
}

}  // namespace garam::cpu::GARAM_ISA
