#include "garam/ops/row_matmul.h"

#include "garam/kernels/cuda/row_matmul.h"
#include "garam/ops/checks.h"
#include "garam/ops/cuda_kernels.h"
#include "garam/ops/elementwise.h"
#include "garam/ops/gated_activation.h"
#include "garam/ops/matmul.h"

namespace garam {
namespace {

struct Product {
    const char* name;
    cuda::RowInput input;
    Tensor x, weight_or_up, b, c;
    float eps = 0;
    RowMatmulOptions options;
    RmsNormOptions norm = {};

    std::int64_t made() const { return x.columns(); }
};

void check(const Stream& stream, const Product& p) {
    const std::int64_t rows = p.x.rows();
    const DType dtype = p.x.dtype();
    check_compute_dtype(p.name, p.x);
    check_compute_dtype(p.name, p.c);
    check_operand(stream, p.name, p.x);
    check_matrix(stream, p.name, p.b, p.c.columns(), p.b.columns(), dtype);
    check_matrix(stream, p.name, p.c, rows, p.c.columns(), p.c.dtype());
    GARAM_CHECK(!p.options.tail_weight, std::string(p.name) + ": b has the weight of the tail");
    if (p.options.tail)
        check_matrix(stream, p.name, p.options.tail, rows, p.b.columns() - p.made(), dtype);
    else
        GARAM_CHECK(p.b.columns() == p.made(),
                    std::string(p.name) + ": b has other columns than x");
    if (p.options.addend)
        check_matrix(stream, p.name, p.options.addend, rows, p.c.columns(), p.c.dtype());
    if (p.options.bias) check_vector(stream, p.name, p.options.bias, p.c.columns(), p.c.dtype());
}

// The norm or the activation, `flops` an element, and the product.
Cost cost_of(const Product& p, double flops) {
    Cost cost;
    cost.flops = flops * static_cast<double>(p.x.elements()) +
                 2.0 * static_cast<double>(p.x.rows()) * static_cast<double>(p.b.elements()) +
                 (p.options.bias ? static_cast<double>(p.c.elements()) : 0.0);
    cost.bytes_read = bytes_of({&p.x, &p.weight_or_up, &p.b});
    for (const Tensor* x : {&p.options.tail, &p.options.addend, &p.options.bias})
        if (*x) cost.bytes_read += bytes_of({x});
    cost.bytes_written = bytes_of({&p.c});
    return cost;
}

bool begins_a_vector(const Tensor& x) {
    return reinterpret_cast<std::uintptr_t>(x.raw()) % 16 == 0;
}

// Whether it is one kernel: by shapes, pitches and alignments, which a dry run has too.
bool is_one_kernel(const Stream& stream, const Product& p) {
    return stream.is_for_cuda() && p.x.rows() == 1 && p.x.dtype() == DType::bf16 &&
           cuda::row_matmul_takes(p.input, p.made(), p.b.columns()) && p.b.pitch() % 8 == 0 &&
           begins_a_vector(p.x) && begins_a_vector(p.weight_or_up) && begins_a_vector(p.b) &&
           begins_a_vector(p.options.tail);
}

void run_kernel(Stream& stream, const Product& p) {
    cuda::RowMatmul work;
    work.input = p.input;
    work.n = p.c.columns();
    work.k = p.b.columns();
    work.made = p.made();
    work.x = p.x.raw();
    work.weight_or_up = p.weight_or_up.raw();
    work.tail = p.options.tail.raw();
    work.eps = p.eps;
    work.weight_offset = p.norm.weight_offset;
    work.rounds_once = p.norm.rounds_once;
    work.alpha = p.options.alpha;
    work.b = cuda_rows(p.b);
    work.addend = p.options.addend.raw();
    work.bias = p.options.bias.raw();
    work.c = p.c.raw();
    work.c_is_bf16 = p.c.dtype() == DType::bf16;
    work.b_is_settled = true;
    cuda::row_matmul_kernels().multiply(stream.queue(), work);
}

// The operand [rows, k], whose first columns `make` writes.
template <typename Make>
void compose(Stream& stream, const Product& p, const Make& make) {
    const ScratchScope scope(stream.arena());
    const Tensor operand = stream.arena().scratch(p.x.dtype(), {p.x.rows(), p.b.columns()});
    make(operand.slice_columns(0, p.made()));
    if (p.options.tail)
        cast(stream, p.options.tail, operand.slice_columns(p.made(), operand.columns()));
    matmul(stream, operand, p.b, p.c,
           {.transpose_b = true,
            .alpha = p.options.alpha,
            .b_is_settled = true,
            .addend = p.options.addend,
            .bias = p.options.bias});
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
                     const Tensor& b, const Tensor& c, const RowMatmulOptions& options,
                     const RmsNormOptions& norm) {
    const Product p{
        "rms_norm_matmul", cuda::RowInput::rms_norm, x, weight, b, c, eps, options, norm};
    GARAM_CHECK(norm.head_dim == 0, "rms_norm_matmul: of whole rows only");
    check_vector(stream, p.name, weight, x.columns(), x.dtype());
    run(stream, p, 4, [&](const Tensor& made) {
        rms_norm_forward(stream, x, weight, eps, made, Tensor(), norm);
    });
}

void gated_activation_matmul(Stream& stream, Activation activation, const Tensor& gate,
                             const Tensor& up, const Tensor& b, const Tensor& c,
                             const RowMatmulOptions& options) {
    const auto input = activation == Activation::gelu_tanh ? cuda::RowInput::gelu_tanh_mul
                                                           : cuda::RowInput::silu_mul;
    const Product p{"gated_activation_matmul", input, gate, up, b, c, 0, options};
    check_matrix(stream, p.name, up, gate.rows(), gate.columns(), gate.dtype());
    run(stream, p, gated_activation_flops(activation),
        [&](const Tensor& made) { gated_activation_forward(stream, activation, gate, up, made); });
}

}  // namespace garam
