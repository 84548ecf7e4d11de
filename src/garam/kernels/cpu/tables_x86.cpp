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

const KernelTable& generic_kernels() {
    return generic::table();
}
const KernelTable& avx2_kernels() {
    return avx2::table();
}
const KernelTable& avx512_kernels() {
    return avx512::table();
}

}  // namespace garam::cpu
