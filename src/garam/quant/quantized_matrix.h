// A weight matrix [rows, columns] as its file or the quantiser left it: codes, and what turns them back into
// values. It owns nothing; its tensors lie on one device, as those of a Tensor do.
//
//   nf4, fp4   bitsandbytes' (Dettmers et al., 2023): blocks of `block` elements over the flat row-major matrix,
//              so that a block may straddle rows; two codes a byte, the first element in the high nibble.
//              value = table[code] * absmax[block], rounded to f32, then to the type asked for.
//              With double quantisation absmax is a code of the signed dynamic map itself, in nested blocks:
//              absmax[b] = map[absmax_code[b]] * nested_absmax[b / nested_block] + offset.
//   the rest   GGUF's blocks along rows (quant/gguf_blocks.h), whole blocks in each row.
#pragma once

#include <cstdint>

#include "garam/core/quant_format.h"
#include "garam/core/tensor.h"

namespace garam {

struct QuantizedMatrix {
    QuantFormat format = QuantFormat::nf4;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    // u8: ceil(rows * columns / 2) bytes of nibbles (an odd last one is the code of 0), or GGUF's blocks.
    Tensor codes;

    // Of nf4 and fp4.
    std::int64_t block = 64;          // a power of two from 32 on
    std::int64_t nested_block = 256;  // absmax codes that share a nested_absmax
    Tensor absmax;                    // f32 [blocks]; with double quantisation u8 [blocks]
    Tensor nested_absmax;             // f32 [ceil(blocks / nested_block)]; empty: not double
    Tensor offset;                    // f32 [1] of double quantisation

    explicit operator bool() const { return static_cast<bool>(codes); }
    bool is_double() const { return static_cast<bool>(nested_absmax); }
    std::int64_t elements() const { return rows * columns; }
    std::int64_t blocks() const { return (elements() + block - 1) / block; }
};

}  // namespace garam
