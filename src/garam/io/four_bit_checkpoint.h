// Checkpoints whose linears Transformers saved in bitsandbytes' 4 bits.
//
// config.json has a quantization_config of quant_method "bitsandbytes" with load_in_4bit. A weight W is
//   W                                  codes, ceil(elements / 2) bytes as u8 [bytes, 1] (or [1, bytes]; or, with
//                                      bnb_4bit_quant_storage, the same bytes called f16, bf16 or f32)
//   W.absmax                           f32 [blocks], or u8 with double quantisation
//   W.quant_map                        f32 [16]: must be the table of its type
//   W.nested_absmax, W.nested_quant_map   f32, of double quantisation
//   W.quant_state.bitsandbytes__nf4    (or __fp4) bytes of JSON: quant_type, blocksize, dtype, shape, and of double
//                                      quantisation nested_blocksize, nested_dtype, nested_offset
// What other maps or nested blocks give is decoded to f32 absmax when the file is opened.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "garam/core/dtype.h"
#include "garam/core/json.h"
#include "garam/io/stored_tensor.h"
#include "garam/quant/base_quantization.h"

namespace garam {

// What config.json says of its weights; empty without quantization_config. Throws Error naming the method for all
// but bitsandbytes in 4 bits.
std::optional<BaseQuantization> four_bit_config(const Json& config, const std::string& source);

// The same with the block size, which Transformers' has not and four_bit_config() reads.
Json to_json(const BaseQuantization& options);

// quantization_config as Transformers writes it. compute_dtype: "bfloat16", "float16" or "float32".
Json quantization_config(const BaseQuantization& options, std::string_view compute_dtype);

// Puts one tensor of type nf4 or fp4 in the place of each such weight and its parts. Every size, map and member is
// checked. Throws Error naming `source`, the tensor and the part.
void join_four_bit_weights(std::vector<StoredTensor>& tensors, const std::string& source);

// Names of the parts behind the weight's, and the state's JSON.
inline constexpr std::string_view kAbsmaxPart = ".absmax";
inline constexpr std::string_view kQuantMapPart = ".quant_map";
inline constexpr std::string_view kNestedAbsmaxPart = ".nested_absmax";
inline constexpr std::string_view kNestedQuantMapPart = ".nested_quant_map";
inline constexpr std::string_view kQuantStatePart = ".quant_state.bitsandbytes__";
std::string quant_state_json(const QuantizedMatrix& matrix, const Shape& shape, DType dtype);

}  // namespace garam
