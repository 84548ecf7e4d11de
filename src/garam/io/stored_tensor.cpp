#include "garam/io/stored_tensor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "garam/core/error.h"
#include "garam/core/parallel.h"
#include "garam/io/gguf_architecture.h"
#include "garam/quant/four_bit.h"
#include "garam/quant/gguf_blocks.h"

namespace garam {
namespace {

// Elements decoded at a time into a buffer that stays in the first-level cache.
constexpr std::int64_t kPiece = 4096;
// Elements that one core takes at a time.
constexpr std::int64_t kGrain = 16 * kPiece;

constexpr std::int32_t kInfinity = 0x7f800000;
// The least magnitude that rounds to infinity in bf16.
constexpr std::int32_t kBf16Overflow = 0x7f7f8000;

// Largest magnitude of `count` floats as an integer; NaN compares above infinity.
std::int32_t largest_magnitude(const float* values, std::int64_t count) {
    std::int32_t largest = 0;
    for (std::int64_t i = 0; i < count; ++i)
        largest = std::max(largest, std::bit_cast<std::int32_t>(values[i]) & 0x7fffffff);
    return largest;
}

// Without branches, so that it becomes vector code; float16's own conversion gives the same bits
// but for the payload of NaN, which is an error here anyhow.
void widen_f16(const std::byte* data, std::int64_t count, float* out) {
    for (std::int64_t i = 0; i < count; ++i) {
        std::uint16_t half = 0;
        std::memcpy(&half, data + 2 * i, 2);
        const std::int32_t magnitude = half & 0x7fff;
        const std::int32_t sign = (half & 0x8000) << 16;
        const std::int32_t rebias = magnitude >= 0x7c00 ? 224 << 23 : 112 << 23;
        const std::int32_t normal = (magnitude << 13) + rebias;
        const std::int32_t subnormal =
            std::bit_cast<std::int32_t>(static_cast<float>(magnitude) * 0x1p-24f);
        out[i] = std::bit_cast<float>((magnitude < 0x0400 ? subnormal : normal) | sign);
    }
}

void widen_bf16(const std::byte* data, std::int64_t count, float* out) {
    for (std::int64_t i = 0; i < count; ++i) {
        std::uint16_t upper = 0;
        std::memcpy(&upper, data + 2 * i, 2);
        out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(upper) << 16);
    }
}

// As they are; whether all are finite.
bool copy_bf16(const std::byte* data, std::int64_t count, bfloat16* out) {
    std::memcpy(out, data, static_cast<std::size_t>(count) * 2);
    std::uint16_t largest = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, data + 2 * i, 2);
        largest = std::max(largest, static_cast<std::uint16_t>(bits & 0x7fffu));
    }
    return largest < 0x7f80;
}

// Finite values only.
void round_to_bf16(const float* values, std::int64_t count, bfloat16* out) {
    for (std::int64_t i = 0; i < count; ++i) {
        const std::uint32_t u = std::bit_cast<std::uint32_t>(values[i]);
        out[i] =
            bfloat16::from_bits(static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16));
    }
}

// In the order of StoredType.
struct Format {
    std::string_view name;
    std::int64_t elements;  // of a block
    std::size_t bytes;
    void (*dequantize)(const std::byte* blocks, std::int64_t count, float* out);
};
constexpr std::array<Format, 18> kFormats = {{
    {"f32", 1, 4, nullptr},
    {"f16", 1, 2, widen_f16},
    {"bf16", 1, 2, widen_bf16},
    {"i64", 1, 8, nullptr},
    {"i32", 1, 4, nullptr},
    {"u8", 1, 1, nullptr},
    {"q8_0", kGgufBlock, kQ8_0Bytes, dequantize_q8_0},
    {"q4_0", kGgufBlock, kQ4_0Bytes, dequantize_q4_0},
    {"q4_1", kGgufBlock, kQ4_1Bytes, dequantize_q4_1},
    {"q5_0", kGgufBlock, kQ5_0Bytes, dequantize_q5_0},
    {"q5_1", kGgufBlock, kQ5_1Bytes, dequantize_q5_1},
    {"iq4_nl", kGgufBlock, kIq4NlBytes, dequantize_iq4_nl},
    {"q4_k", kGgufSuperBlock, kQ4KBytes, dequantize_q4_k},
    {"q5_k", kGgufSuperBlock, kQ5KBytes, dequantize_q5_k},
    {"q6_k", kGgufSuperBlock, kQ6KBytes, dequantize_q6_k},
    {"iq4_xs", kGgufSuperBlock, kIq4XsBytes, dequantize_iq4_xs},
    {"nf4", 2, 1, nullptr},
    {"fp4", 2, 1, nullptr},
}};
static_assert(static_cast<std::size_t>(StoredType::fp4) + 1 == kFormats.size());

const Format& format_of(StoredType type) {
    return kFormats[static_cast<std::size_t>(type)];
}

// Elements [first, first + count) in stored order; first and count are whole blocks.
void decode(const StoredTensor& tensor, std::int64_t first, std::int64_t count, float* out) {
    if (tensor.four_bit != nullptr) {
        dequantize_four_bit(tensor.four_bit->matrix, tensor.first + first, count, out);
        return;
    }
    const std::byte* data =
        tensor.data +
        static_cast<std::size_t>(first / block_elements(tensor.type)) * block_bytes(tensor.type);
    const Format& format = format_of(tensor.type);
    if (tensor.type == StoredType::f32) {
        std::memcpy(out, data, static_cast<std::size_t>(count) * sizeof(float));
    } else if (format.dequantize != nullptr) {
        format.dequantize(data, count, out);
    } else {
        throw Error("tensor " + tensor.name + " holds integers (" + std::string(format.name) +
                    "), not the floating-point numbers wanted here");
    }
    if (!tensor.one_added) return;
    for (std::int64_t i = 0; i < count; ++i)
        out[i] -= 1.0f;
}

// Calls body(stored, position, count) for pieces that cover the tensor, on all cores: elements
// [stored, stored + count) of the file are elements [position, position + count) in Hugging Face's
// order.
template <typename Body>
void for_each_piece(const StoredTensor& tensor, const Body& body) {
    const std::int64_t elements = tensor.shape.elements();
    if (elements == 0) return;
    const auto span = [&](std::int64_t stored, std::int64_t position, std::int64_t count) {
        for (std::int64_t done = 0; done < count; done += kPiece)
            body(stored + done, position + done, std::min(kPiece, count - done));
    };
    if (tensor.permuted_heads == 0) {
        parallel_for(elements, kGrain, [&](std::int64_t begin, std::int64_t end) {
            span(begin, begin, end - begin);
        });
        return;
    }
    const std::int64_t rows = tensor.shape[0];
    const std::int64_t columns = elements / rows;
    const std::int64_t head = rows / tensor.permuted_heads;
    GARAM_CHECK(head * tensor.permuted_heads == rows && head % 2 == 0,
                tensor.name + ": rows do not divide into heads of rotary pairs");
    parallel_for(rows, std::max<std::int64_t>(1, kGrain / columns),
                 [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row)
                         span(permuted_row(row, head) * columns, row * columns, columns);
                 });
}

// Remembers the least position of a bad value seen by any core.
class FirstBad {
  public:
    explicit FirstBad(std::int32_t limit) : limit_(limit) {}

    void look_at(const float* values, std::int64_t position, std::int64_t count) {
        if (largest_magnitude(values, count) < limit_) return;
        std::int64_t bad = 0;
        while ((std::bit_cast<std::int32_t>(values[bad]) & 0x7fffffff) < limit_)
            ++bad;
        bad += position;
        std::int64_t known = first_.load();
        while (bad < known && !first_.compare_exchange_weak(known, bad)) {
        }
    }
    void throw_if_any(const StoredTensor& tensor) const {
        const std::int64_t first = first_.load();
        if (first == std::numeric_limits<std::int64_t>::max()) return;
        throw Error("tensor " + tensor.name + " " + tensor.shape.to_string() + ": element " +
                    std::to_string(first) +
                    (limit_ == kInfinity ? " is NaN or infinite"
                                         : " is NaN, infinite or too large for bf16") +
                    "; the file is damaged or its training diverged");
    }

  private:
    std::int32_t limit_;
    std::atomic<std::int64_t> first_{std::numeric_limits<std::int64_t>::max()};
};

void check_size(const StoredTensor& tensor) {
    if (tensor.four_bit != nullptr) {
        GARAM_CHECK(tensor.first + tensor.shape.elements() <= tensor.four_bit->matrix.elements() &&
                        tensor.permuted_heads == 0 && !tensor.one_added,
                    tensor.name + ": elements beyond those of its 4-bit matrix");
        return;
    }
    GARAM_CHECK(
        tensor.shape.elements() % block_elements(tensor.type) == 0 &&
            static_cast<std::size_t>(tensor.shape.elements() / block_elements(tensor.type)) *
                    block_bytes(tensor.type) ==
                tensor.bytes,
        tensor.name + ": bytes and shape disagree");
}

// Codes are finite times their scale.
void check_scales(const StoredTensor& tensor) {
    const QuantizedMatrix& matrix = tensor.four_bit->matrix;
    for (std::int64_t b = 0; b < matrix.blocks(); ++b) {
        if (!std::isfinite(block_absmax(matrix, b)))
            throw Error("tensor " + tensor.name + " " + tensor.shape.to_string() +
                        ": the scale of element " + std::to_string(b * matrix.block) +
                        " is NaN or infinite; the file is damaged or its training diverged");
    }
}

}  // namespace

std::string_view name_of(StoredType type) {
    return format_of(type).name;
}
std::int64_t block_elements(StoredType type) {
    return format_of(type).elements;
}
std::size_t block_bytes(StoredType type) {
    return format_of(type).bytes;
}

void read_tensor(const StoredTensor& tensor, float* out) {
    check_size(tensor);
    FirstBad bad(kInfinity);
    for_each_piece(tensor, [&](std::int64_t stored, std::int64_t position, std::int64_t count) {
        float* const place = out + position;
        decode(tensor, stored, count, place);
        bad.look_at(place, position, count);
    });
    bad.throw_if_any(tensor);
}

void read_tensor(const StoredTensor& tensor, bfloat16* out) {
    check_size(tensor);
    FirstBad bad(kBf16Overflow);
    const bool is_bf16 = tensor.type == StoredType::bf16 && !tensor.one_added;
    for_each_piece(tensor, [&](std::int64_t stored, std::int64_t position, std::int64_t count) {
        if (is_bf16 && copy_bf16(tensor.data + 2 * stored, count, out + position)) return;
        float values[kPiece];
        decode(tensor, stored, count, values);
        bad.look_at(values, position, count);
        round_to_bf16(values, count, out + position);
    });
    bad.throw_if_any(tensor);
}

StoredTensor rows_of(const StoredTensor& tensor, std::int64_t first, std::int64_t count) {
    const std::int64_t rows = tensor.shape.rows();
    GARAM_CHECK(tensor.shape.rank() == 2 && first >= 0 && first + count <= rows,
                "rows beyond those of " + tensor.name);
    StoredTensor part = tensor;
    part.shape = {count, tensor.shape[1]};
    if (tensor.four_bit != nullptr) {
        part.first += first * tensor.shape[1];
        return part;
    }
    const std::size_t row_bytes = tensor.bytes / static_cast<std::size_t>(rows);
    part.data += static_cast<std::size_t>(first) * row_bytes;
    part.bytes = static_cast<std::size_t>(count) * row_bytes;
    if (tensor.permuted_heads > 0) {
        const std::int64_t head = rows / tensor.permuted_heads;
        GARAM_CHECK(first % head == 0 && count % head == 0, "parts of a head of " + tensor.name);
        part.permuted_heads = count / head;
    }
    return part;
}

QuantizedMatrix quantized_view(const StoredTensor& tensor) {
    if (tensor.permuted_heads != 0 || tensor.one_added || tensor.shape.rank() != 2) return {};
    if (tensor.four_bit != nullptr) {
        const QuantizedMatrix& whole = tensor.four_bit->matrix;
        const bool is_whole = tensor.first == 0 && tensor.shape.elements() == whole.elements();
        return is_whole ? whole : QuantizedMatrix{};
    }
    if (tensor.type < StoredType::q8_0 || tensor.type > StoredType::iq4_xs) return {};
    check_size(tensor);
    if (tensor.shape[1] % block_elements(tensor.type) != 0) return {};
    QuantizedMatrix matrix;
    // Both enumerations have GGUF's types in one order.
    static_assert(static_cast<int>(QuantFormat::iq4_xs) - static_cast<int>(QuantFormat::q8_0) ==
                  static_cast<int>(StoredType::iq4_xs) - static_cast<int>(StoredType::q8_0));
    matrix.format = static_cast<QuantFormat>(static_cast<int>(QuantFormat::q8_0) +
                                             static_cast<int>(tensor.type) -
                                             static_cast<int>(StoredType::q8_0));
    matrix.rows = tensor.shape[0];
    matrix.columns = tensor.shape[1];
    matrix.block = block_elements(tensor.type);
    matrix.codes = Tensor(const_cast<std::byte*>(tensor.data), DType::u8,
                          {static_cast<std::int64_t>(tensor.bytes)}, DeviceKind::cpu);
    return matrix;
}

bool usable_in_place(const StoredTensor& tensor, DType dtype) {
    return name_of(tensor.type) == name_of(dtype) && tensor.permuted_heads == 0 &&
           !tensor.one_added && reinterpret_cast<std::uintptr_t>(tensor.data) % size_of(dtype) == 0;
}

void check_finite(const StoredTensor& tensor) {
    if (tensor.type == StoredType::i64 || tensor.type == StoredType::i32 ||
        tensor.type == StoredType::u8)
        return;
    check_size(tensor);
    if (tensor.four_bit != nullptr) return check_scales(tensor);
    FirstBad bad(kInfinity);
    for_each_piece(tensor, [&](std::int64_t stored, std::int64_t position, std::int64_t count) {
        float values[kPiece];
        decode(tensor, stored, count, values);
        bad.look_at(values, position, count);
    });
    bad.throw_if_any(tensor);
}

}  // namespace garam
