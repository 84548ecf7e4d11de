#include "garam/ops/silu_mul.h"

#include "garam/kernels/cuda/silu_mul.h"
#include "garam/ops/checks.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {

void silu_mul_forward(Stream& stream, const Tensor& gate, const Tensor& up, const Tensor& out) {
    constexpr const char* kName = "silu_mul_forward";
    const std::int64_t rows = gate.rows();
    const std::int64_t ffn = gate.columns();
    check_compute_dtype(kName, gate);
    check_operand(stream, kName, gate);
    check_matrix(stream, kName, up, rows, ffn, gate.dtype());
    check_matrix(stream, kName, out, rows, ffn, gate.dtype());

    Cost cost;
    cost.flops = 5.0 * static_cast<double>(gate.elements());
    cost.bytes_read = bytes_of({&gate, &up});
    cost.bytes_written = bytes_of({&out});
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        cuda::silu_mul_kernels().forward(stream.queue(), cuda_rows(gate), cuda_rows(up),
                                         cuda_rows(out), gate.dtype(), rows, ffn);
        return;
    }
    const auto kernel = element_kernels(stream, gate.dtype()).silu_mul;
    const bool dense = gate.is_dense() && up.is_dense() && out.is_dense();
    for_runs(dense, rows, ffn, [&](std::int64_t row, std::int64_t column, std::int64_t count) {
        kernel(element_at(gate, row, column), element_at(up, row, column),
               element_at(out, row, column), count);
    });
}

void silu_mul_backward(Stream& stream, const Tensor& out_gradient, const Tensor& gate,
                       const Tensor& up, const Tensor& gate_gradient, const Tensor& up_gradient) {
    constexpr const char* kName = "silu_mul_backward";
    const std::int64_t rows = gate.rows();
    const std::int64_t ffn = gate.columns();
    check_compute_dtype(kName, gate);
    bool dense = true;
    for (const Tensor* x : {&out_gradient, &gate, &up, &gate_gradient, &up_gradient}) {
        check_matrix(stream, kName, *x, rows, ffn, gate.dtype());
        dense = dense && x->is_dense();
    }

    Cost cost;
    cost.flops = 12.0 * static_cast<double>(gate.elements());
    cost.bytes_read = bytes_of({&out_gradient, &gate, &up});
    cost.bytes_written = bytes_of({&gate_gradient, &up_gradient});
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        cuda::silu_mul_kernels().backward(stream.queue(), cuda_rows(out_gradient), cuda_rows(gate),
                                          cuda_rows(up), cuda_rows(gate_gradient),
                                          cuda_rows(up_gradient), gate.dtype(), rows, ffn);
        return;
    }
    const auto kernel = element_kernels(stream, gate.dtype()).silu_mul_backward;
    for_runs(dense, rows, ffn, [&](std::int64_t row, std::int64_t column, std::int64_t count) {
        kernel(element_at(out_gradient, row, column), element_at(gate, row, column),
               element_at(up, row, column), element_at(gate_gradient, row, column),
               element_at(up_gradient, row, column), count);
    });
}

}  // namespace garam
