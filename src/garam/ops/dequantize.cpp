#include "garam/ops/dequantize.h"

#include <array>
#include <bit>

#include "garam/kernels/cuda/dequantize.h"
#include "garam/ops/checks.h"
#include "garam/ops/coded_matrix.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/cuda_kernels.h"
#include "garam/quant/dynamic_map.h"
#include "garam/quant/four_bit.h"

namespace garam {
namespace {

using Thresholds = std::array<float, 15>;

Thresholds nf4_thresholds() {
    const std::array<float, 16>& table = four_bit_table(QuantFormat::nf4);
    Thresholds thresholds{};
    for (std::size_t i = 0; i < thresholds.size(); ++i)
        thresholds[i] = (table[i] + table[i + 1]) / 2.0f;
    return thresholds;
}

// Of |y|, with the decimals of bitsandbytes' CUDA kernel.
constexpr std::array<float, 7> kFp4Thresholds = {0.00260417f, 0.0859375f, 0.20833333f, 0.29166667f,
                                                 0.4166667f,  0.583333f,  0.8333333f};

void dequantize_on_cpu(Stream& stream, const QuantizedMatrix& matrix, std::int64_t first_row,
                       const Tensor& out) {
    const cpu::DecodeFunction decode = element_kernels(stream, out.dtype()).decode;
    const cpu::CodedMatrix coded = coded_matrix(matrix);
    constexpr std::int64_t kAhead = 1024;  // elements: some lines of codes
    for_runs(out.is_dense(), out.rows(), out.columns(),
             [&](std::int64_t row, std::int64_t column, std::int64_t count) {
                 decode(coded, (first_row + row) * matrix.columns + column, count, kAhead,
                        element_at(out, row, column));
             });
}

void quantize_on_cuda(Stream& stream, const Tensor& values, const QuantizedMatrix& matrix) {
    const ScratchScope scope(stream.arena());
    Tensor absmax = matrix.absmax;
    Tensor sums;
    if (matrix.is_double()) {
        constexpr auto kSumBytes = static_cast<std::int64_t>(sizeof(double));
        absmax = stream.arena().scratch(DType::f32, {matrix.blocks()});
        constexpr std::int64_t kEach = cuda::kSummedElements;
        static_assert(kEach == kSummedElements);
        sums = stream.arena().scratch(DType::u8,
                                      {kSumBytes * ((matrix.elements() + kEach - 1) / kEach)});
    }
    if (stream.is_dry()) return;
    static const Thresholds kNf4Thresholds = nf4_thresholds();
    cuda::Quantize x;
    x.values = values.raw();
    x.values_are_bf16 = values.dtype() == DType::bf16;
    x.elements = matrix.elements();
    x.is_fp4 = matrix.format == QuantFormat::fp4;
    x.thresholds = x.is_fp4 ? kFp4Thresholds.data() : kNf4Thresholds.data();
    x.block_shift = std::countr_zero(static_cast<std::uint64_t>(matrix.block));
    x.codes = matrix.codes.raw();
    x.absmax = absmax.data<float>();
    if (matrix.is_double()) {
        x.absmax_codes = matrix.absmax.data<std::uint8_t>();
        x.nested_shift = std::countr_zero(static_cast<std::uint64_t>(matrix.nested_block));
        x.nested_absmax = matrix.nested_absmax.data<float>();
        x.offset = matrix.offset.data<float>();
        x.map = signed_dynamic_map().data();
        x.sums = static_cast<double*>(sums.raw());
    }
    cuda::dequantize_kernels().quantize(stream.queue(), x);
}

}  // namespace

void dequantize(Stream& stream, const QuantizedMatrix& matrix, std::int64_t first_row,
                const Tensor& out) {
    constexpr const char* kName = "dequantize";
    check_quantized(stream, kName, matrix);
    check_compute_dtype(kName, out);
    GARAM_CHECK(first_row >= 0 && first_row + out.rows() <= matrix.rows,
                "dequantize: rows beyond the matrix");
    check_matrix(stream, kName, out, out.rows(), matrix.columns, out.dtype());

    Cost cost;
    cost.flops = static_cast<double>(out.elements());
    cost.bytes_read = quantized_bytes(matrix, out.rows());
    cost.bytes_written = bytes_of({&out});
    OpScope op(stream, kName, cost);
    if (op.dry() || out.elements() == 0) return;
    if (!runs_on_cuda(stream)) {
        dequantize_on_cpu(stream, matrix, first_row, out);
        return;
    }
    cuda::Dequantize x;
    x.weight = quantized_weight(matrix);
    x.first_row = first_row;
    x.rows = out.rows();
    x.out = cuda_rows(out);
    x.out_is_bf16 = out.dtype() == DType::bf16;
    cuda::dequantize_kernels().dequantize(stream.queue(), x);
}

void quantize(Stream& stream, const Tensor& values, const QuantizedMatrix& matrix) {
    constexpr const char* kName = "quantize";
    check_quantized(stream, kName, matrix);
    GARAM_CHECK(is_four_bit(matrix.format), "quantize: nf4 or fp4 only");
    GARAM_CHECK(!matrix.is_double() || matrix.nested_block == kNestedBlock,
                "quantize: double quantisation is in nested blocks of 256");
    check_compute_dtype(kName, values);
    check_matrix(stream, kName, values, matrix.rows, matrix.columns, values.dtype());
    GARAM_CHECK(values.is_dense(), "quantize: dense values only");

    Cost cost;
    cost.flops = static_cast<double>(values.elements());
    cost.bytes_read = bytes_of({&values});
    cost.bytes_written = quantized_bytes(matrix, matrix.rows);
    OpScope op(stream, kName, cost);
    if (values.elements() == 0) return;
    if (stream.is_for_cuda()) {
        quantize_on_cuda(stream, values, matrix);
        return;
    }
    if (op.dry()) return;
    if (values.dtype() == DType::f32)
        quantize_four_bit(values.data<float>(), matrix, "to quantise");
    else
        quantize_four_bit(values.data<bfloat16>(), matrix, "to quantise");
}

}  // namespace garam
