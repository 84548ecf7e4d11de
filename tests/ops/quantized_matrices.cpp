#include "ops/quantized_matrices.h"

#include <cstring>
#include <type_traits>

#include "garam/core/philox.h"
#include "garam/quant/four_bit.h"
#include "garam/quant/gguf_blocks.h"

namespace garam::testing {
namespace {

// Where a block's f16 scales lie.
std::vector<std::int64_t> places_of_scales(QuantFormat format) {
    switch (format) {
        case QuantFormat::q4_1:
        case QuantFormat::q5_1:
        case QuantFormat::q4_k:
        case QuantFormat::q5_k:
            return {0, 2};
        case QuantFormat::q6_k:
            return {208};
        default:
            return {0};
    }
}

std::vector<float> normals(std::int64_t count, std::uint64_t seed) {
    Random random(seed);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values)
        value = static_cast<float>(random.normal());
    return values;
}

}  // namespace

TestMatrix::TestMatrix(QuantFormat format, std::int64_t rows, std::int64_t columns,
                       std::int64_t block, bool is_double, std::uint64_t seed) {
    shape_.format = format;
    shape_.rows = rows;
    shape_.columns = columns;
    shape_.block = block;
    if (is_four_bit(format)) {
        const FourBitWeight weight(format, rows, columns, block, is_double);
        const QuantizedMatrix& matrix = weight.matrix();
        quantize_four_bit(normals(rows * columns, seed).data(), matrix, "test");
        const auto copy = [](auto& to, const Tensor& from) {
            to.resize(static_cast<std::size_t>(from.elements()));
            std::memcpy(to.data(), from.raw(), static_cast<std::size_t>(from.bytes()));
        };
        copy(codes_, matrix.codes);
        if (is_double) {
            copy(absmax_codes_, matrix.absmax);
            copy(nested_absmax_, matrix.nested_absmax);
            copy(offset_, matrix.offset);
        } else {
            copy(absmax_, matrix.absmax);
        }
        return;
    }
    const GgufFormat gguf = gguf_format(format);
    Random random(seed);
    const std::int64_t blocks = rows * columns / gguf.elements;
    codes_.resize(static_cast<std::size_t>(blocks * gguf.bytes));
    for (std::uint8_t& byte : codes_)
        byte = static_cast<std::uint8_t>(random.uniform(0, 256));
    for (std::int64_t b = 0; b < blocks; ++b) {
        for (const std::int64_t place : places_of_scales(format)) {
            const float16 scale(static_cast<float>(random.uniform(-0.01, 0.01)));
            std::memcpy(codes_.data() + b * gguf.bytes + place, &scale, sizeof scale);
        }
    }
}

void TestMatrix::add_to(OpRun& run) {
    const auto size = [](const auto& x) { return static_cast<std::int64_t>(x.size()); };
    first_ = run.input_bytes(DType::u8, codes_.data(), size(codes_));
    if (!is_four_bit(shape_.format)) return;
    if (offset_.empty()) {
        run.input_bytes(DType::f32, absmax_.data(), size(absmax_));
        return;
    }
    run.input_bytes(DType::u8, absmax_codes_.data(), size(absmax_codes_));
    run.input_bytes(DType::f32, nested_absmax_.data(), size(nested_absmax_));
    run.input_bytes(DType::f32, offset_.data(), 1);
}

QuantizedMatrix TestMatrix::of(const std::vector<Tensor>& tensors) const {
    QuantizedMatrix matrix = shape_;
    const auto first = static_cast<std::size_t>(first_);
    matrix.codes = tensors[first];
    if (!is_four_bit(shape_.format)) return matrix;
    matrix.absmax = tensors[first + 1];
    if (offset_.empty()) return matrix;
    matrix.nested_absmax = tensors[first + 2];
    matrix.offset = tensors[first + 3];
    return matrix;
}

std::vector<double> TestMatrix::values(DType dtype) const {
    const std::int64_t count = shape_.elements();
    std::vector<float> values(static_cast<std::size_t>(count));
    if (is_four_bit(shape_.format)) {
        QuantizedMatrix matrix = shape_;
        const auto view = [](const auto& x, DType type) {
            using Element = typename std::decay_t<decltype(x)>::value_type;
            return Tensor(const_cast<Element*>(x.data()), type,
                          {static_cast<std::int64_t>(x.size())}, DeviceKind::cpu);
        };
        matrix.codes = view(codes_, DType::u8);
        if (offset_.empty()) {
            matrix.absmax = view(absmax_, DType::f32);
        } else {
            matrix.absmax = view(absmax_codes_, DType::u8);
            matrix.nested_absmax = view(nested_absmax_, DType::f32);
            matrix.offset = view(offset_, DType::f32);
        }
        dequantize_four_bit(matrix, 0, count, values.data());
    } else {
        gguf_format(shape_.format)
            .dequantize(reinterpret_cast<const std::byte*>(codes_.data()), count, values.data());
    }
    std::vector<double> result;
    for (const float value : values)
        result.push_back(dtype == DType::bf16 ? static_cast<float>(bfloat16(value)) : value);
    return result;
}

double TestMatrix::bytes() const {
    return static_cast<double>(codes_.size() + absmax_codes_.size() +
                               4 * (absmax_.size() + nested_absmax_.size() + offset_.size()));
}

std::string TestMatrix::name() const {
    return std::string(name_of(shape_.format)) + " " + std::to_string(shape_.rows) + "x" +
           std::to_string(shape_.columns) + " block " + std::to_string(shape_.block) +
           (offset_.empty() ? "" : " double");
}

TestOutputs::TestOutputs(OpRun& run, QuantFormat format, std::int64_t rows, std::int64_t columns,
                         std::int64_t block, bool is_double)
    : is_double_(is_double) {
    shape_.format = format;
    shape_.rows = rows;
    shape_.columns = columns;
    shape_.block = block;
    const std::int64_t blocks = shape_.blocks();
    first_ = run.output(DType::u8, 1, (shape_.elements() + 1) / 2);
    run.output(is_double ? DType::u8 : DType::f32, 1, blocks);
    if (!is_double) return;
    run.output(DType::f32, 1, (blocks + kNestedBlock - 1) / kNestedBlock);
    run.output(DType::f32, 1, 1);
}

QuantizedMatrix TestOutputs::of(const std::vector<Tensor>& tensors) const {
    QuantizedMatrix matrix = shape_;
    const auto first = static_cast<std::size_t>(first_);
    matrix.codes = tensors[first];
    matrix.absmax = tensors[first + 1];
    if (!is_double_) return matrix;
    matrix.nested_absmax = tensors[first + 2];
    matrix.offset = tensors[first + 3];
    return matrix;
}

}  // namespace garam::testing
