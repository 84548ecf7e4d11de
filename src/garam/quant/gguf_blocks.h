// GGUF's block formats, decoded to float (layout: ggml/docs/gguf.md and ggml's type table). d and m
// are f16, products and sums are rounded one after the other.
//
// Blocks of 32 elements:
//   Q8_0, 34 bytes: d, i8 q[32]                          x = d * q
//   Q4_0, 18 bytes: d, 16 bytes of nibbles               x = d * (q - 8)
//   Q4_1, 20 bytes: d, m, 16 bytes                       x = d * q + m
//   Q5_0, 22 bytes: d, 32 fifth bits, 16 bytes           x = d * (q - 16)
//   Q5_1, 24 bytes: d, m, 32 fifth bits, 16 bytes        x = d * q + m
//   IQ4_NL, 18 bytes: d, 16 bytes                        x = d * table[q]
// Low nibbles are elements 0 to 15 of a block, high nibbles 16 to 31; bit i of the fifth bits
// belongs to element i.
//
// Blocks of 256 elements, cut into groups with a scale s (and minimum t) of few bits:
//   Q4_K, 144 bytes: d, m, 12 bytes of 8 (s, t) of 6 bits, 128 bytes      x = (d s) q - (m t)
//   Q5_K, 176 bytes: as Q4_K with 32 bytes of fifth bits before the nibbles
//   Q6_K, 210 bytes: 128 bytes of low nibbles, 64 of upper bit pairs, i8 s[16], d
//                                                                         x = (d s) (q - 32)
//   IQ4_XS, 136 bytes: d, 8 s of 6 bits (upper pairs, then nibbles), 128 bytes
//                                                                  x = (d (s - 32)) table[q]
//
// `blocks` need not be aligned; `count` is a multiple of the block. Bit for bit what ggml's own
// decoders give without fused multiply-add.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "garam/quant/quantized_matrix.h"

namespace garam {

constexpr std::int64_t kGgufBlock = 32;  // elements
constexpr std::size_t kQ8_0Bytes = 34;
constexpr std::size_t kQ4_0Bytes = 18;
constexpr std::size_t kQ4_1Bytes = 20;
constexpr std::size_t kQ5_0Bytes = 22;
constexpr std::size_t kQ5_1Bytes = 24;
constexpr std::size_t kIq4NlBytes = 18;

constexpr std::int64_t kGgufSuperBlock = 256;  // elements
constexpr std::size_t kQ4KBytes = 144;
constexpr std::size_t kQ5KBytes = 176;
constexpr std::size_t kQ6KBytes = 210;
constexpr std::size_t kIq4XsBytes = 136;

void dequantize_q8_0(const std::byte* blocks, std::int64_t count, float* out);
void dequantize_q4_0(const std::byte* blocks, std::int64_t count, float* out);
void dequantize_q4_1(const std::byte* blocks, std::int64_t count, float* out);
void dequantize_q5_0(const std::byte* blocks, std::int64_t count, float* out);
void dequantize_q5_1(const std::byte* blocks, std::int64_t count, float* out);
void dequantize_iq4_nl(const std::byte* blocks, std::int64_t count, float* out);
void dequantize_q4_k(const std::byte* blocks, std::int64_t count, float* out);
void dequantize_q5_k(const std::byte* blocks, std::int64_t count, float* out);
void dequantize_q6_k(const std::byte* blocks, std::int64_t count, float* out);
void dequantize_iq4_xs(const std::byte* blocks, std::int64_t count, float* out);

struct GgufFormat {
    std::int64_t elements, bytes;  // of a block
    void (*dequantize)(const std::byte* blocks, std::int64_t count, float* out);
};
// Of every format but nf4 and fp4.
GgufFormat gguf_format(QuantFormat format);

// The 8 scales and 8 minimums of Q4_K and Q5_K, each below 64, and the 12 bytes that hold them: byte
// i < 4 has scale i, byte 4 + i minimum i, each with the two upper bits of number 4 + i above its
// six; byte 8 + i has the lower nibbles of scale and minimum 4 + i.
struct GroupScales {
    std::array<std::uint8_t, 8> scale{};
    std::array<std::uint8_t, 8> minimum{};
};
GroupScales unpack_group_scales(const std::byte* packed);
void pack_group_scales(const GroupScales& scales, std::byte* packed);

}  // namespace garam
