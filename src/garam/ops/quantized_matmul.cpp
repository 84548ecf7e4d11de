#include "garam/ops/quantized_matmul.h"

#include "garam/kernels/cuda/quantized_row_matmul.h"
#include "garam/ops/checks.h"
#include "garam/ops/coded_matrix.h"
#include "garam/ops/cpu_matmul.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {
namespace {

void multiply_rows_on_cuda(Stream& stream, const Tensor& a, const QuantizedMatrix& weight,
                           const Tensor& c, const MatmulOptions& options) {
    if (stream.is_dry()) return;
    cuda::QuantizedRowMatmul x;
    x.m = a.rows();
    x.a_is_bf16 = a.dtype() == DType::bf16;
    x.a = cuda_rows(a);
    x.weights[0] = quantized_weight(weight);
    x.c = cuda_rows(c);
    x.c_is_bf16 = c.dtype() == DType::bf16;
    if (options.accumulate) x.addend = x.c;
    if (options.addend) x.addend = cuda_rows(options.addend);
    x.bias = options.bias.raw();
    x.weight_is_settled = options.b_is_settled;
    x.alpha = options.alpha;
    x.shared_bytes = stream.device().profile().shared_bytes;
    cuda::quantized_row_matmul_kernels().multiply(stream.queue(), x);
}

}  // namespace

void quantized_matmul(Stream& stream, const Tensor& a, const QuantizedMatrix& weight,
                      const Tensor& c, const MatmulOptions& options) {
    constexpr const char* kName = "quantized_matmul";
    const std::int64_t m = a.rows();
    const std::int64_t k = options.transpose_b ? weight.columns : weight.rows;
    const std::int64_t n = options.transpose_b ? weight.rows : weight.columns;
    check_quantized(stream, kName, weight);
    check_compute_dtype(kName, a);
    check_compute_dtype(kName, c);
    check_matrix(stream, kName, a, m, k, a.dtype());
    check_matrix(stream, kName, c, m, n, c.dtype());
    GARAM_CHECK(a.dtype() == DType::bf16 || c.dtype() == DType::f32,
                "quantized_matmul: f32 operands give an f32 product");
    GARAM_CHECK(!options.transpose_a, "quantized_matmul: its rows lie as they are");
    GARAM_CHECK(options.tail == 0, "quantized_matmul: a weight without an adapter's tail");
    GARAM_CHECK(!options.addend || !options.accumulate,
                "quantized_matmul: an addend and accumulate");
    if (options.addend) {
        check_matrix(stream, kName, options.addend, m, n, c.dtype());
        GARAM_CHECK(options.addend.raw() != c.raw() || options.addend.pitch() == c.pitch(),
                    "quantized_matmul: addend in c's memory, with another pitch");
    }
    if (options.bias) check_vector(stream, kName, options.bias, n, c.dtype());
    GARAM_CHECK(
        !stream.is_for_cuda() || (m <= cuda::kMostFusedRows && options.transpose_b),
        "quantized_matmul: on a card few rows times the transpose only; dequantize() first");

    Cost cost;
    cost.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) +
                 static_cast<double>(weight.elements()) +
                 (options.bias ? static_cast<double>(c.elements()) : 0.0);
    cost.bytes_read = bytes_of({&a}) + quantized_bytes(weight, weight.rows) +
                      (options.accumulate || options.addend ? bytes_of({&c}) : 0.0) +
                      (options.bias ? bytes_of({&options.bias}) : 0.0);
    cost.bytes_written = bytes_of({&c});
    OpScope op(stream, kName, cost);
    if (m == 0 || n == 0) return;
    if (stream.is_for_cuda()) {
        multiply_rows_on_cuda(stream, a, weight, c, options);
        return;
    }
    const Product product{a, {}, c, m, n, k, false, options.transpose_b, false, &weight};
    multiply_on_cpu(stream, product, options);
}

}  // namespace garam
