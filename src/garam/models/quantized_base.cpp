#include "garam/models/quantized_base.h"

#include <algorithm>
#include <array>
#include <utility>

#include "garam/core/error.h"

namespace garam {
namespace {

constexpr std::array<std::pair<StoredType, QuantFormat>, 10> kGguf = {{
    {StoredType::q8_0, QuantFormat::q8_0},
    {StoredType::q4_0, QuantFormat::q4_0},
    {StoredType::q4_1, QuantFormat::q4_1},
    {StoredType::q5_0, QuantFormat::q5_0},
    {StoredType::q5_1, QuantFormat::q5_1},
    {StoredType::iq4_nl, QuantFormat::iq4_nl},
    {StoredType::q4_k, QuantFormat::q4_k},
    {StoredType::q5_k, QuantFormat::q5_k},
    {StoredType::q6_k, QuantFormat::q6_k},
    {StoredType::iq4_xs, QuantFormat::iq4_xs},
}};

StoredType stored_type(QuantFormat format) {
    const auto* const found = std::find_if(kGguf.begin(), kGguf.end(),
                                           [&](const auto& pair) { return pair.second == format; });
    GARAM_CHECK(found != kGguf.end(), "a format of GGUF");
    return found->first;
}

std::int64_t nested_blocks(const QuantizedMatrix& matrix) {
    return (matrix.blocks() + matrix.nested_block - 1) / matrix.nested_block;
}

}  // namespace

std::optional<QuantizedLayout> stored_layout(const StoredTensor& tensor) {
    const auto* const found = std::find_if(
        kGguf.begin(), kGguf.end(), [&](const auto& pair) { return pair.first == tensor.type; });
    if (found == kGguf.end() || tensor.shape.rank() != 2) return std::nullopt;
    QuantizedLayout layout;
    layout.matrix.format = found->second;
    layout.matrix.rows = tensor.shape[0];
    layout.matrix.columns = tensor.shape[1];
    return layout;
}

QuantizedLayout layout_of(const BaseQuantization& quantize, const Shape& shape) {
    QuantizedLayout layout;
    layout.matrix.format = quantize.format;
    layout.matrix.rows = shape[0];
    layout.matrix.columns = shape[1];
    layout.matrix.block = quantize.block;
    layout.is_double = quantize.double_quantization;
    return layout;
}

bool is_skipped(const BaseQuantization& quantize, const std::string& module) {
    return std::any_of(quantize.skip_modules.begin(), quantize.skip_modules.end(),
                       [&](const std::string& skipped) {
                           return module == skipped || module.ends_with("." + skipped);
                       });
}

std::int64_t QuantizedLayout::code_bytes() const {
    if (is_four_bit(matrix.format)) return (matrix.elements() + 1) / 2;
    const StoredType type = stored_type(matrix.format);
    return matrix.elements() / block_elements(type) * static_cast<std::int64_t>(block_bytes(type));
}

std::int64_t QuantizedLayout::bytes() const {
    const std::int64_t codes = align_up(code_bytes());
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
    placed.codes = next(DType::u8, code_bytes());
    if (!is_four_bit(matrix.format)) return placed;
    placed.absmax = next(is_double ? DType::u8 : DType::f32, matrix.blocks());
    if (!is_double) return placed;
    placed.nested_absmax = next(DType::f32, nested_blocks(matrix));
    placed.offset = next(DType::f32, 1);
    return placed;
}

}  // namespace garam
