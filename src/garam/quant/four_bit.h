// NF4 and FP4 on the host: quantising and decoding as bitsandbytes does (Dettmers et al., QLoRA, 2023), bit for bit.
// The layout is quantized_matrix.h's; blocks are a power of two from 32 to 4096 elements.
//
// Quantising, for each block: absmax = max|x|, y = x * (1 / max(absmax, 1e-38)), each step rounded to f32.
// With the table's values in ascending order (of fp4's zeros, code 0 before code 8), the code is that of value n, n
// the number of the 15 f32 midpoints of neighbours that are below y.
// For fp4 this is bitsandbytes' generic operator. Its CUDA kernel goes by sign and magnitude and has decimals for
// midpoints, some up to 14 units in the last place off: it may give the neighbour's code for y on or beside a
// midpoint, and the other zero.
// A block of zeros has the codes of 0. The last nibble of an odd count is the code of 0.
//
// Double quantisation: offset = mean of absmax, summed in f64 and rounded; v = absmax - offset in
// nested blocks of 256: nested = max|v|, and the code nearest to v * (1 / max(nested, 1e-38)) in
// the signed dynamic map (quant/dynamic_map.h). Sums are in an order that a card can keep: of the
// blocks of 8192 elements, then of these sums, each strided over 32 (256) partial ones, of which
// the second half is added to the first until there is one.
//
// Work is shared among the cores; results do not depend on their number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "garam/core/dtype.h"
#include "garam/quant/quantized_matrix.h"

namespace garam {

constexpr std::int64_t kNestedBlock = 256;
constexpr std::int64_t kSummedElements = 8192;

// Values of the 16 codes of nf4 or fp4.
const std::array<float, 16>& four_bit_table(QuantFormat format);
// Whether blocks may have so many elements.
bool is_four_bit_block(std::int64_t block);
// "nf4", "q4_k".
std::string_view name_of(QuantFormat format);

// Quantises `values` (row-major [rows, columns]) into the tensors of `matrix`, which are dense host memory of the
// shapes that quantized_matrix.h states. Throws Error naming `name` and the index of the first element that is
// NaN or infinite.
void quantize_four_bit(const float* values, const QuantizedMatrix& matrix, std::string_view name);
void quantize_four_bit(const bfloat16* values, const QuantizedMatrix& matrix,
                       std::string_view name);

// Elements [first, first + count) of the flat row-major matrix, whose tensors are host memory, on the calling thread
// alone. `out` has room for `count`; values are f32, rounded once more to bf16.
void dequantize_four_bit(const QuantizedMatrix& matrix, std::int64_t first, std::int64_t count,
                         float* out);
void dequantize_four_bit(const QuantizedMatrix& matrix, std::int64_t first, std::int64_t count,
                         bfloat16* out);

// The f32 absmax of block `b`, decoded where it is a code.
float block_absmax(const QuantizedMatrix& matrix, std::int64_t b);

// A 4-bit matrix with its host memory.
class FourBitWeight {
  public:
    FourBitWeight() = default;
    FourBitWeight(QuantFormat format, std::int64_t rows, std::int64_t columns, std::int64_t block,
                  bool double_quantization);
    FourBitWeight(FourBitWeight&&) noexcept = default;
    FourBitWeight& operator=(FourBitWeight&&) noexcept = default;

    const QuantizedMatrix& matrix() const { return matrix_; }
    std::int64_t bytes() const { return static_cast<std::int64_t>(memory_.size()); }

  private:
    std::vector<std::byte> memory_;
    QuantizedMatrix matrix_;
};

// Bytes of what FourBitWeight needs: codes, absmax, and of double quantisation nested absmax and offset.
struct FourBitBytes {
    std::int64_t codes = 0;
    std::int64_t absmax = 0;
    std::int64_t nested_absmax = 0;
    std::int64_t offset = 0;
    std::int64_t total() const { return codes + absmax + nested_absmax + offset; }
};
FourBitBytes four_bit_bytes(std::int64_t elements, std::int64_t block, bool double_quantization);

}  // namespace garam
