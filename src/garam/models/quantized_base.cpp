#include "garam/models/quantized_base.h"

namespace garam {
namespace {

std::int64_t nested_blocks(const QuantizedMatrix& matrix) {
    return (matrix.blocks() + matrix.nested_block - 1) / matrix.nested_block;
}

}  // namespace

QuantizedMatrix stored_codes(const StoredTensor& tensor) {
    StoredTensor rows = tensor;  // whose order does not matter
    rows.permuted_heads = 0;
    return quantized_view(rows);
}

std::optional<QuantizedLayout> stored_layout(const StoredTensor& tensor) {
    const QuantizedMatrix codes = stored_codes(tensor);
    if (!codes) return std::nullopt;
    QuantizedLayout layout;
    layout.is_double = codes.is_double();
    layout.code_bytes = codes.codes.bytes();
    layout.matrix = codes;
    layout.matrix.codes = layout.matrix.absmax = {};
    layout.matrix.nested_absmax = layout.matrix.offset = {};
    return layout;
}

QuantizedLayout layout_of(const BaseQuantization& quantize, const Shape& shape) {
    QuantizedLayout layout;
    layout.matrix.format = quantize.format;
    layout.matrix.rows = shape[0];
    layout.matrix.columns = shape[1];
    layout.matrix.block = quantize.block;
    layout.is_double = quantize.double_quantization;
    layout.code_bytes = (layout.matrix.elements() + 1) / 2;
    return layout;
}

std::int64_t QuantizedLayout::bytes() const {
    const std::int64_t codes = align_up(code_bytes);
    if (!is_four_bit(matrix.format)) return codes;
    if (!is_double) return codes + align_up(4 * matrix.blocks());
    return codes + align_up(matrix.blocks()) + align_up(4 * nested_blocks(matrix)) + align_up(4);
}

QuantizedMatrix QuantizedLayout::place(const Buffer& buffer, std::int64_t offset) const {
    QuantizedMatrix placed = matrix;
    const auto next = [&](DType dtype, std::int64_t elements) {
        const Tensor tensor = buffer.tensor(dtype, {elements}, offset);
        offset += align_up(tensor.bytes());
        return tensor;
    };
    placed.codes = next(DType::u8, code_bytes);
    if (!is_four_bit(matrix.format)) return placed;
    placed.absmax = next(is_double ? DType::u8 : DType::f32, matrix.blocks());
    if (!is_double) return placed;
    placed.nested_absmax = next(DType::f32, nested_blocks(matrix));
    placed.offset = next(DType::f32, 1);
    return placed;
}

}  // namespace garam
