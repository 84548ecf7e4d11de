// How a base's quantised weights lie in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "garam/io/stored_tensor.h"
#include "garam/quant/base_quantization.h"
#include "garam/quant/quantized_matrix.h"
#include "garam/runtime/device.h"

namespace garam {

// Format and sizes of a quantised matrix, of which there are no bytes yet.
struct QuantizedLayout {
    QuantizedMatrix matrix;  // without its tensors
    bool is_double = false;
    std::int64_t code_bytes = 0;

    // Of all tensors in one piece of memory.
    std::int64_t bytes() const;
    // The matrix with its tensors there, from byte `offset` on.
    QuantizedMatrix place(const Buffer& buffer, std::int64_t offset) const;
};

// What a file holds quantised, as its bytes lie (rows of q and k may be permuted); empty for plain numbers.
QuantizedMatrix stored_codes(const StoredTensor& tensor);
// Its layout; nothing for plain numbers.
std::optional<QuantizedLayout> stored_layout(const StoredTensor& tensor);
// A weight [rows, columns] that is to be quantised.
QuantizedLayout layout_of(const BaseQuantization& quantize, const Shape& shape);

}  // namespace garam
