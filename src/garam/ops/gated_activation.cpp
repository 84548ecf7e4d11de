#include "garam/ops/gated_activation.h"

#include "garam/kernels/cuda/gated_activation.h"
#include "garam/ops/checks.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {

double gated_activation_flops(Activation activation) {
    return activation == Activation::gelu_tanh ? 9 : 5;
}

void gated_activation_forward(Stream& stream, Activation activation, const Tensor& gate,
                              const Tensor& up, const Tensor& out) {
    constexpr const char* kName = "gated_activation_forward";
    const std::int64_t rows = gate.rows();
    const std::int64_t ffn = gate.columns();
    check_compute_dtype(kName, gate);
    check_operand(stream, kName, gate);
    check_matrix(stream, kName, up, rows, ffn, gate.dtype());
    check_matrix(stream, kName, out, rows, ffn, gate.dtype());

    Cost cost;
    cost.flops = gated_activation_flops(activation) * static_cast<double>(gate.elements());
    cost.bytes_read = bytes_of({&gate, &up});
    cost.bytes_written = bytes_of({&out});
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        cuda::gated_activation_kernels().forward(stream.queue(), activation, cuda_rows(gate),
                                                 cuda_rows(up), cuda_rows(out), gate.dtype(), rows,
                                                 ffn);
        return;
    }
    const auto kernel = element_kernels(stream, gate.dtype()).gated_activation;
    const bool dense = gate.is_dense() && up.is_dense() && out.is_dense();
    for_runs(dense, rows, ffn, [&](std::int64_t row, std::int64_t column, std::int64_t count) {
        kernel(activation, element_at(gate, row, column), element_at(up, row, column),
               element_at(out, row, column), count);
    });
}

void gated_activation_backward(Stream& stream, Activation activation, const Tensor& out_gradient,
                               const Tensor& gate, const Tensor& up, const Tensor& gate_gradient,
                               const Tensor& up_gradient) {
    constexpr const char* kName = "gated_activation_backward";
    const std::int64_t rows = gate.rows();
    const std::int64_t ffn = gate.columns();
    check_compute_dtype(kName, gate);
    bool dense = true;
    for (const Tensor* x : {&out_gradient, &gate, &up, &gate_gradient, &up_gradient}) {
        check_matrix(stream, kName, *x, rows, ffn, gate.dtype());
        dense = dense && x->is_dense();
    }

    Cost cost;
    cost.flops =
        (activation == Activation::gelu_tanh ? 18.0 : 12.0) * static_cast<double>(gate.elements());
    cost.bytes_read = bytes_of({&out_gradient, &gate, &up});
    cost.bytes_written = bytes_of({&gate_gradient, &up_gradient});
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        cuda::gated_activation_kernels().backward(
            stream.queue(), activation, cuda_rows(out_gradient), cuda_rows(gate), cuda_rows(up),
            cuda_rows(gate_gradient), cuda_rows(up_gradient), gate.dtype(), rows, ffn);
        return;
    }
    const auto kernel = element_kernels(stream, gate.dtype()).gated_activation_backward;
    for_runs(dense, rows, ffn, [&](std::int64_t row, std::int64_t column, std::int64_t count) {
        kernel(activation, element_at(out_gradient, row, column), element_at(gate, row, column),
               element_at(up, row, column), element_at(gate_gradient, row, column),
               element_at(up_gradient, row, column), count);
    });
}

}  // namespace garam
