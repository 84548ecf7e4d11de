#include "garam/ops/cpu_kernels.h"

#include <atomic>

namespace garam {

const cpu::KernelTable& kernel_table(const Stream& stream) {
    switch (stream.device().profile().isa) {
        case CpuIsa::generic:
            break;
        case CpuIsa::avx2:
            return cpu::avx2_kernels();
        case CpuIsa::avx512:
            return cpu::avx512_kernels();
    }
    return cpu::generic_kernels();
}

const cpu::ElementKernels& element_kernels(const Stream& stream, DType dtype) {
    const cpu::KernelTable& table = kernel_table(stream);
    return dtype == DType::bf16 ? table.bf16 : table.f32;
}

void add_partials(const cpu::KernelTable& kernels, const Tensor& partials, const Tensor& sum) {
    constexpr std::int64_t kColumns = 1024;
    parallel_for(partials.columns(), kColumns, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t piece = 0; piece < partials.rows(); ++piece)
            kernels.f32.add_to_f32(element_at(partials, piece, begin),
                                   element_at<float>(sum, 0, begin), end - begin);
    });
}

void for_items(std::int64_t workers, std::int64_t items,
               const std::function<void(std::int64_t, std::int64_t)>& body) {
    std::atomic<std::int64_t> next{0};
    parallel_for(workers, 1, [&](std::int64_t worker, std::int64_t) {
        for (std::int64_t item = next++; item < items; item = next++)
            body(worker, item);
    });
}

}  // namespace garam
