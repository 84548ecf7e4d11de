// Gathers the functions of one instruction set.
#include "garam/kernels/cpu/kernel_table.h"

namespace garam::cpu::GARAM_ISA {

void add_adamw_8bit(KernelTable& table);
void add_attention(KernelTable& table);
void add_cross_entropy(KernelTable& table);
void add_dequantize(KernelTable& table);
void add_dora(KernelTable& table);
void add_dropout(KernelTable& table);
void add_elementwise(KernelTable& table);
void add_gated_activation(KernelTable& table);
void add_gemm(KernelTable& table);
void add_optimizer(KernelTable& table);
void add_rms_norm(KernelTable& table);
void add_rotary(KernelTable& table);

static KernelTable made() {
    KernelTable table{};
    add_adamw_8bit(table);
    add_attention(table);
    add_cross_entropy(table);
    add_dequantize(table);
    add_dora(table);
    add_dropout(table);
    add_elementwise(table);
    add_gated_activation(table);
    add_gemm(table);
    add_optimizer(table);
    add_rms_norm(table);
    add_rotary(table);
    return table;
}

const KernelTable& table();
const KernelTable& table() {
    static const KernelTable kTable = made();
    return kTable;
}

}  // namespace garam::cpu::GARAM_ISA
