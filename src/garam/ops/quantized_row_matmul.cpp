#include "garam/ops/quantized_row_matmul.h"

#include "garam/kernels/cuda/quantized_row_matmul.h"
#include "garam/ops/checks.h"
#include "garam/ops/coded_matrix.h"
#include "garam/ops/cuda_kernels.h"
#include "garam/ops/gated_activation.h"
#include "garam/ops/matmul.h"
#include "garam/ops/quantized_matmul.h"

namespace garam {
namespace {

struct Product {
    const char* name;
    cuda::RowInput input;
    Tensor x, weight_or_up;
    std::span<const QuantizedMatrix> b;
    Tensor c;
    float eps = 0;
    RowMatmulOptions options;
    RmsNormOptions norm = {};

    std::int64_t rows_of_b() const {
        std::int64_t rows = 0;
        for (const QuantizedMatrix& matrix : b)
            rows += matrix.rows;
        return rows;
    }

    std::int64_t tail_columns() const { return options.tail ? options.tail.columns() : 0; }
};

void check(const Stream& stream, const Product& p) {
    const std::int64_t rows = p.x.rows();
    const DType dtype = p.x.dtype();
    check_compute_dtype(p.name, p.x);
    check_compute_dtype(p.name, p.c);
    check_operand(stream, p.name, p.x);
    GARAM_CHECK(!p.b.empty() && p.b.size() <= kMostStacked,
                std::string(p.name) + ": of one to three weights");
    for (const QuantizedMatrix& matrix : p.b) {
        check_quantized(stream, p.name, matrix);
        GARAM_CHECK(matrix.columns == p.x.columns(),
                    std::string(p.name) + ": b has other columns than x");
    }
    check_matrix(stream, p.name, p.c, rows, p.rows_of_b(), p.c.dtype());
    GARAM_CHECK(static_cast<bool>(p.options.tail) == static_cast<bool>(p.options.tail_weight),
                std::string(p.name) + ": a tail and its weight come together");
    if (p.options.tail) {
        check_matrix(stream, p.name, p.options.tail, rows, p.tail_columns(), dtype);
        check_matrix(stream, p.name, p.options.tail_weight, p.rows_of_b(), p.tail_columns(), dtype);
    }
    if (p.options.addend)
        check_matrix(stream, p.name, p.options.addend, rows, p.c.columns(), p.c.dtype());
    if (p.options.bias) check_vector(stream, p.name, p.options.bias, p.c.columns(), p.c.dtype());
}

// The norm or the activation, `flops` an element, decoding, and the product.
Cost cost_of(const Product& p, double flops) {
    const auto rows = static_cast<double>(p.x.rows());
    Cost cost;
    cost.flops = flops * static_cast<double>(p.x.elements()) +
                 2.0 * rows * static_cast<double>(p.rows_of_b() * p.tail_columns()) +
                 (p.options.bias ? static_cast<double>(p.c.elements()) : 0.0);
    cost.bytes_read = bytes_of({&p.x, &p.weight_or_up});
    for (const QuantizedMatrix& matrix : p.b) {
        cost.flops += (2.0 * rows + 1) * static_cast<double>(matrix.elements());
        cost.bytes_read += quantized_bytes(matrix, matrix.rows);
    }
    for (const Tensor* x :
         {&p.options.tail, &p.options.tail_weight, &p.options.addend, &p.options.bias})
        if (*x) cost.bytes_read += bytes_of({x});
    cost.bytes_written = bytes_of({&p.c});
    return cost;
}

bool begins_a_vector(const Tensor& x) {
    return reinterpret_cast<std::uintptr_t>(x.raw()) % 16 == 0;
}

// Whether it is one kernel: by shapes, pitches and alignments, which a dry run has too.
bool is_one_kernel(const Stream& stream, const Product& p) {
    for (const QuantizedMatrix& matrix : p.b) {
        if (!stream.is_for_cuda() || matrix.format != p.b.front().format ||
            matrix.block != p.b.front().block ||
            !cuda::quantized_row_matmul_makes(p.input, quantized_weight(matrix)) ||
            !begins_a_vector(matrix.codes))
            return false;
    }
    return p.x.rows() == 1 && p.x.dtype() == DType::bf16 && begins_a_vector(p.x) &&
           begins_a_vector(p.weight_or_up) && p.tail_columns() % 8 == 0 &&
           begins_a_vector(p.options.tail) && begins_a_vector(p.options.tail_weight) &&
           (!p.options.tail_weight || p.options.tail_weight.pitch() % 8 == 0);
}

void run_kernel(Stream& stream, const Product& p) {
    cuda::QuantizedRowMatmul work;
    work.m = 1;
    work.input = p.input;
    work.a_is_bf16 = true;
    work.a = cuda_rows(p.x);
    work.weight_or_up = p.weight_or_up.raw();
    work.eps = p.eps;
    work.weight_offset = p.norm.weight_offset;
    work.rounds_once = p.norm.rounds_once;
    static_assert(kMostStacked <= cuda::quantized_row::kMostParts);
    work.parts = 0;
    for (const QuantizedMatrix& matrix : p.b)
        work.weights[work.parts++] = quantized_weight(matrix);
    work.tail_columns = p.tail_columns();
    if (p.options.tail) {
        work.tail = cuda_rows(p.options.tail);
        work.tail_weight = cuda_rows(p.options.tail_weight);
    }
    if (p.options.addend) work.addend = cuda_rows(p.options.addend);
    work.bias = p.options.bias.raw();
    work.c = cuda_rows(p.c);
    work.c_is_bf16 = p.c.dtype() == DType::bf16;
    work.weight_is_settled = true;
    work.alpha = p.options.alpha;
    work.shared_bytes = stream.device().profile().shared_bytes;
    cuda::quantized_row_matmul_kernels().multiply(stream.queue(), work);
}

// The operand, which `make` writes, and its product; the adapter's is added to that.
template <typename Make>
void compose(Stream& stream, const Product& p, const Make& make) {
    const ScratchScope scope(stream.arena());
    const Tensor operand = stream.arena().scratch(p.x.dtype(), {p.x.rows(), p.x.columns()});
    make(operand);
    std::int64_t begin = 0;
    for (const QuantizedMatrix& matrix : p.b) {
        const std::int64_t end = begin + matrix.rows;
        MatmulOptions options{.transpose_b = true, .alpha = p.options.alpha, .b_is_settled = true};
        if (p.options.addend) options.addend = p.options.addend.slice_columns(begin, end);
        if (p.options.bias)
            options.bias = p.options.bias.reshape(Shape{p.c.columns()}).slice_elements(begin, end);
        quantized_matmul(stream, operand, matrix, p.c.slice_columns(begin, end), options);
        begin = end;
    }
    if (p.options.tail)
        matmul(stream, p.options.tail, p.options.tail_weight, p.c,
               {.transpose_b = true,
                .alpha = p.options.alpha,
                .accumulate = true,
                .b_is_settled = true});
}

template <typename Make>
void run(Stream& stream, const Product& p, double flops, const Make& make) {
    check(stream, p);
    OpScope op(stream, p.name, cost_of(p, flops));
    if (p.c.elements() == 0) return;
    if (!is_one_kernel(stream, p))
        compose(stream, p, make);
    else if (!op.dry())
        run_kernel(stream, p);
}

}  // namespace

void rms_norm_matmul(Stream& stream, const Tensor& x, const Tensor& weight, float eps,
                     std::span<const QuantizedMatrix> b, const Tensor& c,
                     const RowMatmulOptions& options, const RmsNormOptions& norm) {
    const Product p{
        "rms_norm_matmul", cuda::RowInput::rms_norm, x, weight, b, c, eps, options, norm};
    GARAM_CHECK(norm.head_dim == 0, "rms_norm_matmul: of whole rows only");
    check_vector(stream, p.name, weight, x.columns(), x.dtype());
    run(stream, p, 4, [&](const Tensor& made) {
        rms_norm_forward(stream, x, weight, eps, made, Tensor(), norm);
    });
}

void gated_activation_matmul(Stream& stream, Activation activation, const Tensor& gate,
                             const Tensor& up, std::span<const QuantizedMatrix> b, const Tensor& c,
                             const RowMatmulOptions& options) {
    const auto input = activation == Activation::gelu_tanh ? cuda::RowInput::gelu_tanh_mul
                                                           : cuda::RowInput::silu_mul;
    const Product p{"gated_activation_matmul", input, gate, up, b, c, 0, options};
    check_matrix(stream, p.name, up, gate.rows(), gate.columns(), gate.dtype());
    run(stream, p, gated_activation_flops(activation),
        [&](const Tensor& made) { gated_activation_forward(stream, activation, gate, up, made); });
}

}  // namespace garam
