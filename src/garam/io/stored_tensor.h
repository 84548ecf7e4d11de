// One tensor of a mapped file: how its elements are encoded, and reading it in Hugging Face's
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "garam/core/dtype.h"
#include "garam/core/shape.h"
#include "garam/quant/four_bit.h"
#include "garam/quant/quantized_matrix.h"

namespace garam {

// How the elements of a stored tensor are encoded.
enum class StoredType : std::uint8_t {
    f32,
    f16,
    bf16,
    i64,
    i32,
    u8,
    q8_0,
    q4_0,
    q4_1,
    q5_0,
    q5_1,
    iq4_nl,
    q4_k,
    q5_k,
    q6_k,
    iq4_xs,
    nf4,
    fp4
};
std::string_view name_of(StoredType type);
// Elements of a block (1 for plain types) and its bytes; of nf4 and fp4 a byte's two codes, whose scales lie
// elsewhere.
std::int64_t block_elements(StoredType type);
std::size_t block_bytes(StoredType type);

// A weight in 4 bits (io/four_bit_checkpoint.h) and what of it could not stay in the file.
struct StoredFourBit {
    QuantizedMatrix matrix;     // views of the mapped file, or of the members here
    DType dtype = DType::bf16;  // of the values that were quantised
    FourBitWeight weight;       // where no file has it
    float offset = 0;
    std::vector<float> absmax;
    std::vector<float> nested_absmax;
};

struct StoredTensor {
    std::string name;  // Hugging Face's
    Shape shape;       // outermost first, [out, in] for a linear weight
    StoredType type = StoredType::f32;
    const std::byte* data = nullptr;  // in the mapped file; not aligned for sure
    std::size_t bytes = 0;
    // GGUF stores rows of q and k so that rotary pairs are neighbours; reading undoes it. 0: not
    // so.
    std::int64_t permuted_heads = 0;
    // GGUF stores 1 + w for the norms of some families, whose w is what Hugging Face keeps; reading
    // takes the 1 away.
    bool one_added = false;
    // Of nf4 and fp4: the whole matrix, and which of its elements is this tensor's first. `data` and `bytes` are
    // the whole's.
    std::shared_ptr<const StoredFourBit> four_bit;
    std::int64_t first = 0;
};

// Rows [first, first + count) of a matrix, which are whole heads where they are permuted, as a tensor of the same
// name.
StoredTensor rows_of(const StoredTensor& tensor, std::int64_t first, std::int64_t count);

// The matrix as its file holds it, for ops that decode; empty for plain types and where reading would undo
// something. Views the mapped file: codes of GGUF's blocks and of 4 bits are not aligned for sure, f32 scales are.
QuantizedMatrix quantized_view(const StoredTensor& tensor);

// Elements in row-major Hugging Face order, converted to f32 or bf16 (round to nearest even), into
// `out`, which holds shape.elements() elements. The work is shared among the cores. Throws Error
// naming the tensor and the index of the first element that is NaN or infinite (for bf16: that
// becomes so by rounding), and for integer types.
void read_tensor(const StoredTensor& tensor, float* out);
void read_tensor(const StoredTensor& tensor, bfloat16* out);

// Whether the mapped bytes can be used as they are for that dtype (same type, nothing to undo,
// aligned to its size).
bool usable_in_place(const StoredTensor& tensor, DType dtype);
// Throws Error naming the tensor and the index of its first NaN or infinity; integers have none. Of nf4 and fp4 the
// scales are looked at only.
void check_finite(const StoredTensor& tensor);

}  // namespace garam
