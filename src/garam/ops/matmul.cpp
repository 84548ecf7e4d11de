#include "garam/ops/matmul.h"

#include "garam/kernels/cuda/matmul.h"
#include "garam/ops/checks.h"
#include "garam/ops/cpu_matmul.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {
namespace {

void multiply_as_tuned(Stream& stream, cuda::MatmulArguments& x, std::int64_t tail) {
    const ProductTable* const table = stream.device().profile().products.get();
    Meter& meter = stream.meter();
    const TunedProduct* tuned = nullptr;
    if ((table != nullptr || meter.counts_products()) && x.k > 0) {
        ProductShape shape = cuda::product_shape(x);
        shape.tail = tail;
        if (meter.counts_products()) meter.record_product(shape);
        if (table != nullptr) tuned = table->find(shape);
    }
    if (stream.is_dry()) return;
    if (tuned != nullptr && tuned->two_products) {
        auto [main, last] = cuda::split_at_tail(x, tail);
        multiply_as_tuned(stream, main, 0);
        multiply_as_tuned(stream, last, 0);
        return;
    }
    if (tuned != nullptr && tuned->algorithm) x.algorithm = &*tuned->algorithm;
    cuda::matmul_kernels().multiply(stream.queue(), x);
}

void multiply_on_cuda(Stream& stream, const Product& p, const MatmulOptions& options) {
    const ScratchScope scope(stream.arena());
    cuda::MatmulArguments x;
    if (p.k > 0) x.workspace = stream.arena().scratch(DType::u8, {cuda::kMatmulWorkspace}).raw();
    if (stream.is_dry() && !stream.meter().counts_products()) return;
    x.m = p.m;
    x.n = p.n;
    x.k = p.k;
    x.a = cuda_rows(p.a);
    x.b = cuda_rows(p.b);
    x.c = cuda_rows(p.c);
    if (options.accumulate) x.addend = x.c;
    if (options.addend) x.addend = cuda_rows(options.addend);
    x.bias = options.bias.raw();
    x.transpose_a = p.transpose_a;
    x.transpose_b = p.transpose_b;
    x.inputs_are_bf16 = p.a.dtype() == DType::bf16;
    x.c_is_bf16 = p.c.dtype() == DType::bf16;
    x.tf32 = stream.device().profile().tf32;
    x.b_is_settled = options.b_is_settled;
    x.alpha = options.alpha;
    x.ordinal = stream.device().profile().ordinal;
    multiply_as_tuned(stream, x, options.tail);
}

}  // namespace

void matmul(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& c,
            const MatmulOptions& options) {
    constexpr const char* kName = "matmul";
    const std::int64_t m = options.transpose_a ? a.columns() : a.rows();
    const std::int64_t k = options.transpose_a ? a.rows() : a.columns();
    const std::int64_t n = options.transpose_b ? b.rows() : b.columns();
    check_compute_dtype(kName, a);
    check_compute_dtype(kName, c);
    check_operand(stream, kName, a);
    check_matrix(stream, kName, b, options.transpose_b ? n : k, options.transpose_b ? k : n,
                 a.dtype());
    check_matrix(stream, kName, c, m, n, c.dtype());
    GARAM_CHECK(a.dtype() == DType::bf16 || c.dtype() == DType::f32,
                "matmul: f32 operands give an f32 product");

    GARAM_CHECK(options.tail == 0 || (options.tail > 0 && options.tail < k), "matmul: its tail");
    GARAM_CHECK(!options.addend || !options.accumulate, "matmul: an addend and accumulate");
    if (options.addend) {
        check_matrix(stream, kName, options.addend, m, n, c.dtype());
        GARAM_CHECK(options.addend.raw() != c.raw() || options.addend.pitch() == c.pitch(),
                    "matmul: addend in c's memory, with another pitch");
    }
    if (options.bias) check_vector(stream, kName, options.bias, n, c.dtype());

    Cost cost;
    cost.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) +
                 (options.bias ? static_cast<double>(c.elements()) : 0.0);
    cost.bytes_read = bytes_of({&a, &b}) +
                      (options.accumulate || options.addend ? bytes_of({&c}) : 0.0) +
                      (options.bias ? bytes_of({&options.bias}) : 0.0);
    cost.bytes_written = bytes_of({&c});
    OpScope op(stream, kName, cost);
    if (m == 0 || n == 0) return;
    const Product product{a, b, c, m, n, k, options.transpose_a, options.transpose_b, false};
    if (stream.is_for_cuda())
        multiply_on_cuda(stream, product, options);
    else
        multiply_on_cpu(stream, product, options);
}

}  // namespace garam
