#include "garam/ops/rotary.h"

#include "garam/kernels/cuda/rotary.h"
#include "garam/ops/checks.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {

void rotary(Stream& stream, const Tensor& x, std::int64_t head_dim, const Tensor& cos,
            const Tensor& sin, const Tensor& positions, bool inverse) {
    constexpr const char* kName = "rotary";
    const std::int64_t tokens = x.rows();
    const std::int64_t half = cos.columns();
    check_compute_dtype(kName, x);
    check_operand(stream, kName, x);
    check_operand(stream, kName, cos);
    check_matrix(stream, kName, cos, cos.rows(), half, DType::f32);
    check_matrix(stream, kName, sin, cos.rows(), half, DType::f32);
    check_vector(stream, kName, positions, tokens, DType::i32);
    GARAM_CHECK(head_dim > 0 && x.columns() % head_dim == 0,
                "rotary: " + std::to_string(x.columns()) + " columns are no whole heads of " +
                    std::to_string(head_dim));
    GARAM_CHECK(2 * half <= head_dim, "rotary: more turned entries than a head has");
    const std::int64_t heads = x.columns() / head_dim;

    Cost cost;
    const double pairs = static_cast<double>(tokens) * static_cast<double>(heads * half);
    const double turned = 2 * pairs * static_cast<double>(size_of(x.dtype()));
    cost.flops = 6 * pairs;
    cost.bytes_read =
        turned + bytes_of({&positions}) + 2.0 * sizeof(float) * static_cast<double>(tokens * half);
    cost.bytes_written = turned;
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    if (runs_on_cuda(stream)) {
        cuda::Rotary work;
        work.x = cuda_rows(x);
        work.dtype = x.dtype();
        work.tokens = tokens;
        work.heads = heads;
        work.head_dim = head_dim;
        work.half = half;
        work.cos = cuda_rows(cos);
        work.sin = cuda_rows(sin);
        work.table_rows = cos.rows();
        work.positions = positions.data<std::int32_t>();
        work.inverse = inverse;
        cuda::rotary_kernels().run(stream.queue(), work);
        return;
    }
    const auto kernel = element_kernels(stream, x.dtype()).rotary;
    const std::int32_t* const position = positions.data<std::int32_t>();
    parallel_for(tokens, rows_per_piece(x.columns()), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
            GARAM_CHECK(position[t] >= 0 && position[t] < cos.rows(),
                        "rotary: position " + std::to_string(position[t]) + " beyond tables of " +
                            std::to_string(cos.rows()));
            kernel(element_at(x, t, 0), heads, head_dim, element_at<float>(cos, position[t], 0),
                   element_at<float>(sin, position[t], 0), half, inverse);
        }
    });
}

}  // namespace garam
