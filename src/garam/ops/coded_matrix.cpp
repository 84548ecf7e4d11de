#include "garam/ops/coded_matrix.h"

#include <bit>

#include "garam/ops/checks.h"
#include "garam/quant/dynamic_map.h"
#include "garam/quant/four_bit.h"
#include "garam/quant/gguf_blocks.h"

namespace garam {
namespace {

int shift_of(std::int64_t power) {
    return std::countr_zero(static_cast<std::uint64_t>(power));
}

// What kernels of both devices read of a matrix, but for its offset.
template <typename Weight>
Weight weight_of(const QuantizedMatrix& matrix) {
    Weight x{};
    x.format = matrix.format;
    x.codes = matrix.codes.raw();
    if (!is_four_bit(matrix.format)) return x;
    x.table = four_bit_table(matrix.format).data();
    x.block_shift = shift_of(matrix.block);
    x.absmax = matrix.absmax.raw();
    if (!matrix.is_double()) return x;
    x.nested_shift = shift_of(matrix.nested_block);
    x.nested_absmax = matrix.nested_absmax.data<float>();
    x.map = signed_dynamic_map().data();
    return x;
}

}  // namespace

void check_quantized(const Stream& stream, const char* op, const QuantizedMatrix& matrix) {
    const std::string name(op);
    GARAM_CHECK(matrix.rows >= 0 && matrix.columns >= 0, name + ": a matrix without a shape");
    if (!is_four_bit(matrix.format)) {
        const GgufFormat block = gguf_format(matrix.format);
        GARAM_CHECK(matrix.columns % block.elements == 0,
                    name + ": GGUF's rows hold whole blocks of " + std::to_string(block.elements));
        check_vector(stream, op, matrix.codes, matrix.elements() / block.elements * block.bytes,
                     DType::u8);
        return;
    }
    GARAM_CHECK(is_four_bit_block(matrix.block),
                name + ": blocks of " + std::to_string(matrix.block) + " elements");
    check_vector(stream, op, matrix.codes, (matrix.elements() + 1) / 2, DType::u8);
    const std::int64_t blocks = matrix.blocks();
    check_vector(stream, op, matrix.absmax, blocks, matrix.is_double() ? DType::u8 : DType::f32);
    if (!matrix.is_double()) return;
    GARAM_CHECK(matrix.nested_block > 0 &&
                    std::has_single_bit(static_cast<std::uint64_t>(matrix.nested_block)),
                name + ": nested blocks of " + std::to_string(matrix.nested_block));
    check_vector(stream, op, matrix.nested_absmax,
                 (blocks + matrix.nested_block - 1) / matrix.nested_block, DType::f32);
    check_vector(stream, op, matrix.offset, 1, DType::f32);
}

double quantized_bytes(const QuantizedMatrix& matrix, std::int64_t rows) {
    double bytes = bytes_of({&matrix.codes});
    if (is_four_bit(matrix.format)) bytes += bytes_of({&matrix.absmax});
    if (matrix.is_double()) bytes += bytes_of({&matrix.nested_absmax, &matrix.offset});
    if (rows == matrix.rows) return bytes;
    return bytes / static_cast<double>(matrix.rows) * static_cast<double>(rows);
}

cpu::CodedMatrix coded_matrix(const QuantizedMatrix& matrix) {
    auto x = weight_of<cpu::CodedMatrix>(matrix);
    if (matrix.is_double()) x.offset = *matrix.offset.data<float>();
    return x;
}

cuda::QuantizedWeight quantized_weight(const QuantizedMatrix& matrix) {
    auto x = weight_of<cuda::QuantizedWeight>(matrix);
    x.rows = matrix.rows;
    x.columns = matrix.columns;
    if (matrix.is_double()) x.offset = matrix.offset.data<float>();
    return x;
}

}  // namespace garam
