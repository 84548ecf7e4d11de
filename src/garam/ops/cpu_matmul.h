// The CPU's half of matmul() and quantized_matmul(): the product cut into blocks that threads share.
#pragma once

#include "garam/ops/matmul.h"
#include "garam/quant/quantized_matrix.h"

namespace garam {

// b, or where it is empty the quantised `coded`, which a is not transposed with.
struct Product {
    Tensor a, b, c;
    std::int64_t m, n, k;
    bool transpose_a, transpose_b, transpose_c;
    const QuantizedMatrix* coded = nullptr;
};

// Of checked operands, m and n at least 1; also where the stream is dry.
void multiply_on_cpu(Stream& stream, const Product& p, const MatmulOptions& options);

}  // namespace garam
