// GGUF's block formats of 32 elements, decoded to float (layout: ggml/docs/gguf.md and ggml's type
// table).
//
//   Q8_0, 34 bytes: f16 d, i8 q[32]            x = d * q
//   Q4_0, 18 bytes: f16 d, 16 bytes of nibbles  x = d * (q - 8)
//   Q4_1, 20 bytes: f16 d, f16 m, 16 bytes      x = d * q + m, product and sum rounded one after
//   the other
//
// Low nibbles are elements 0 to 15 of a block, high nibbles 16 to 31. `blocks` need not be aligned;
// `count` is a multiple of 32. Bit for bit what ggml's own decoders give without fused
// multiply-add.
#pragma once

#include <cstddef>
#include <cstdint>

namespace garam {

constexpr std::int64_t kGgufBlock = 32;  // elements
constexpr std::size_t kQ8_0Bytes = 34;
constexpr std::size_t kQ4_0Bytes = 18;
constexpr std::size_t kQ4_1Bytes = 20;

void dequantize_q8_0(const std::byte* blocks, std::int64_t count, float* out);
void dequantize_q4_0(const std::byte* blocks, std::int64_t count, float* out);
void dequantize_q4_1(const std::byte* blocks, std::int64_t count, float* out);

}  // namespace garam
