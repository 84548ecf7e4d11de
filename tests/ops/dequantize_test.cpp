#include "garam/ops/dequantize.h"

#include <cmath>
#include <limits>

#include "garam/quant/four_bit.h"
#include "ops/dequantize_cases.h"
#include "ops/quantized_matrices.h"

namespace garam::testing {
namespace {

class Dequantize : public OpTest {};
GARAM_FOR_ALL_PROFILES(Dequantize);

// Every bit but NaN's, which no case has: equal numbers with equal signs.
void expect_same_bits(const std::vector<double>& got, const std::vector<double>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i], want[i]) << i;
        ASSERT_EQ(std::signbit(got[i]), std::signbit(want[i])) << i;
    }
}

TEST_P(Dequantize, TheBitsOfTheHost) {
    for (const DequantizeCase& c : dequantize_cases()) {
        TestMatrix matrix(c.format, c.rows, c.columns, c.block, c.is_double);
        SCOPED_TRACE(matrix.name() + " from row " + std::to_string(c.first_row) + " " +
                     std::string(name_of(c.out)));
        OpRun run(GetParam());
        matrix.add_to(run);
        const int out = run.output(c.out, c.count, c.columns, c.pad);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                dequantize(stream, matrix.of(t), c.first_row, t[out]);
            },
            c.cost);
        const std::vector<double> all = matrix.values(c.out);
        const auto begin = all.begin() + c.first_row * c.columns;
        expect_same_bits(run.values(out), {begin, begin + c.count * c.columns});
    }
}

TEST_P(Dequantize, QuantizesToTheBitsOfTheHost) {
    for (const QuantizeCase& c : quantize_cases()) {
        // On a card fp4 is judged as bitsandbytes' kernel does, which the host does not.
        if (GetParam().is_cuda() && c.format == QuantFormat::fp4) continue;
        SCOPED_TRACE(std::string(name_of(c.format)) + " " + std::to_string(c.rows) + "x" +
                     std::to_string(c.columns) + " " + std::string(name_of(c.in)));
        OpRun run(GetParam());
        const int in = run.input(c.in, c.rows, c.columns);
        const TestOutputs out(run, c.format, c.rows, c.columns, c.block, c.is_double);
        run.run([&](Stream& stream,
                    const std::vector<Tensor>& t) { quantize(stream, t[in], out.of(t)); },
                c.cost);
        std::vector<float> values;
        for (const double value : run.values(in))
            values.push_back(static_cast<float>(value));
        const FourBitWeight weight(c.format, c.rows, c.columns, c.block, c.is_double);
        const QuantizedMatrix& want = weight.matrix();
        quantize_four_bit(values.data(), want, "test");
        const auto expect_equal = [](const std::vector<double>& got, const Tensor& host) {
            ASSERT_EQ(static_cast<std::int64_t>(got.size()), host.elements());
            for (std::int64_t i = 0; i < host.elements(); ++i)
                ASSERT_EQ(got[static_cast<std::size_t>(i)], host.dtype() == DType::u8
                                                                ? host.data<std::uint8_t>()[i]
                                                                : host.data<float>()[i])
                    << i;
        };
        expect_equal(run.values(out.codes()), want.codes);
        expect_equal(run.values(out.absmax()), want.absmax);
        if (!c.is_double) continue;
        expect_equal(run.values(out.nested_absmax()), want.nested_absmax);
        expect_equal(run.values(out.offset()), want.offset);
    }
}

// Of values on both sides of zero and of midpoints the nearest, whichever of two equally near a device takes.
TEST_P(Dequantize, Fp4GivesTheNearestValue) {
    OpRun run(GetParam());
    const int in = run.input(DType::f32, 3, 249);
    const TestOutputs out(run, QuantFormat::fp4, 3, 249, 64, false);
    run.run(
        [&](Stream& stream, const std::vector<Tensor>& t) { quantize(stream, t[in], out.of(t)); },
        {747, 2988, 422});
    const std::vector<double> values = run.values(in);
    const std::vector<double> codes = run.values(out.codes());
    const std::vector<double> absmax = run.values(out.absmax());
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto byte = static_cast<unsigned>(codes[i / 2]);
        const double y = values[i] / absmax[i / 64];
        double least = 10;
        for (const float value : four_bit_table(QuantFormat::fp4))
            least = std::min(least, std::abs(y - value));
        const unsigned code = i % 2 == 0 ? byte >> 4 : byte & 15u;
        // Two roundings of y and the decimals of thresholds: less than 1e-6.
        ASSERT_LE(std::abs(y - four_bit_table(QuantFormat::fp4)[code]), least + 1e-6) << i;
    }
}

TEST(DequantizeChecks, RefusesWhatDoesNotFit) {
    const auto device = make_cpu_device();
    Arena arena(*device, 1 << 20);
    Meter meter;
    Stream stream(*device, arena, meter);
    const FourBitWeight weight(QuantFormat::nf4, 4, 64, 64, true);
    std::vector<float> values(256, 1.0f);
    const auto rows = [&](std::int64_t count) {
        return Tensor(values.data(), DType::f32, {count, 64}, DeviceKind::cpu);
    };
    quantize(stream, rows(4), weight.matrix());
    dequantize(stream, weight.matrix(), 0, rows(4));
    EXPECT_THROW(dequantize(stream, weight.matrix(), 2, rows(3)), Bug);
    EXPECT_THROW(dequantize(stream, weight.matrix(), -1, rows(1)), Bug);
    QuantizedMatrix broken = weight.matrix();
    broken.block = 48;
    EXPECT_THROW(dequantize(stream, broken, 0, rows(4)), Bug);
    broken = weight.matrix();
    broken.rows = 5;
    EXPECT_THROW(dequantize(stream, broken, 0, rows(4)), Bug);
    broken = weight.matrix();
    broken.nested_absmax = {};
    EXPECT_THROW(dequantize(stream, broken, 0, rows(4)), Bug);
    broken = weight.matrix();
    broken.format = QuantFormat::q4_k;
    EXPECT_THROW(dequantize(stream, broken, 0, rows(4)), Bug);
    EXPECT_THROW(quantize(stream, rows(4), broken), Bug);
    EXPECT_THROW(quantize(stream, rows(3), weight.matrix()), Bug);
    values[77] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_THROW(quantize(stream, rows(4), weight.matrix()), Error);
}

}  // namespace
}  // namespace garam::testing
