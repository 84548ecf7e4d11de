#include "garam/io/stored_tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "garam/core/error.h"
#include "garam/core/parallel.h"
#include "garam/core/philox.h"

namespace garam {
namespace {

template <typename T>
StoredTensor stored(const std::vector<T>& values, const Shape& shape, StoredType type) {
    StoredTensor tensor;
    tensor.name = "model.test.weight";
    tensor.shape = shape;
    tensor.type = type;
    tensor.data = reinterpret_cast<const std::byte*>(values.data());
    tensor.bytes = values.size() * sizeof(T);
    return tensor;
}

TEST(StoredTensor, EveryHalfWidensAsTheScalarConversionSays) {
    std::vector<std::uint16_t> bits;
    for (std::uint32_t b = 0; b < 0x10000; ++b) {
        if ((b & 0x7c00) != 0x7c00) bits.push_back(static_cast<std::uint16_t>(b));
    }
    std::vector<float> out(bits.size());
    const Shape shape{static_cast<std::int64_t>(bits.size())};
    read_tensor(stored(bits, shape, StoredType::f16), out.data());
    for (std::size_t i = 0; i < bits.size(); ++i) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(out[i]),
                  std::bit_cast<std::uint32_t>(static_cast<float>(float16::from_bits(bits[i]))));
    }
}

TEST(StoredTensor, RoundsToBf16AsTheScalarConversionSays) {
    Random random(3);
    std::vector<float> values;
    while (values.size() < 100'000) {
        const float value = std::bit_cast<float>(random.next_u32());
        if (std::isfinite(value) && std::fabs(value) < 3e38f) values.push_back(value);
    }
    std::vector<bfloat16> out(values.size());
    read_tensor(stored(values, {100, 1000}, StoredType::f32), out.data());
    for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_EQ(out[i].bits, bfloat16(values[i]).bits);
    std::vector<float> widened(values.size());
    read_tensor(stored(out, {100, 1000}, StoredType::bf16), widened.data());
    for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_EQ(widened[i], static_cast<float>(bfloat16(values[i])));
}

TEST(StoredTensor, UndoesThePermutationOfRows) {
    // 3 heads of 8 rows: Hugging Face's row j + 4h of a head is the file's row 2j + h.
    std::vector<float> file_rows(24 * 5);
    std::vector<float> wanted(24 * 5);
    for (std::size_t head = 0; head < 3; ++head) {
        for (std::size_t j = 0; j < 4; ++j) {
            for (std::size_t h = 0; h < 2; ++h) {
                for (std::size_t c = 0; c < 5; ++c) {
                    const float value = static_cast<float>(100 * (head * 8 + j + 4 * h) + c);
                    file_rows[(head * 8 + 2 * j + h) * 5 + c] = value;
                    wanted[(head * 8 + j + 4 * h) * 5 + c] = value;
                }
            }
        }
    }
    StoredTensor tensor = stored(file_rows, {24, 5}, StoredType::f32);
    tensor.permuted_heads = 3;
    std::vector<float> out(24 * 5);
    read_tensor(tensor, out.data());
    EXPECT_EQ(out, wanted);
    EXPECT_FALSE(usable_in_place(tensor, DType::f32));

    std::vector<float> bias_rows;  // a bias is permuted likewise
    std::vector<float> bias_wanted;
    for (std::size_t row = 0; row < 24; ++row) {
        bias_rows.push_back(file_rows[row * 5]);
        bias_wanted.push_back(wanted[row * 5]);
    }
    StoredTensor bias = stored(bias_rows, {24}, StoredType::f32);
    bias.permuted_heads = 3;
    out.resize(24);
    read_tensor(bias, out.data());
    EXPECT_EQ(out, bias_wanted);
}

std::string refusal_of(const StoredTensor& tensor, bool to_bf16 = false) {
    std::vector<float> out(static_cast<std::size_t>(tensor.shape.elements()));
    std::vector<bfloat16> narrow(out.size());
    try {
        to_bf16 ? read_tensor(tensor, narrow.data()) : read_tensor(tensor, out.data());
    } catch (const Error& error) {
        return error.what();
    }
    return "read";
}

TEST(StoredTensor, NamesTheFirstValueThatIsNotFinite) {
    std::vector<float> values(300'000, 1.0f);
    StoredTensor tensor = stored(values, {300, 1000}, StoredType::f32);
    EXPECT_EQ(refusal_of(tensor), "read");
    check_finite(tensor);
    values[250'000] = std::numeric_limits<float>::infinity();
    values[200'001] = -std::numeric_limits<float>::quiet_NaN();
    for (const bool to_bf16 : {false, true}) {
        const std::string message = refusal_of(tensor, to_bf16);
        EXPECT_NE(message.find("tensor model.test.weight [300, 1000]: element 200001 is NaN"),
                  std::string::npos)
            << message;
    }
    EXPECT_THROW(check_finite(tensor), Error);
    values[200'001] = values[250'000] = 3.4e38f;  // finite, but beyond bf16's largest
    EXPECT_EQ(refusal_of(tensor), "read");
    EXPECT_NE(refusal_of(tensor, true).find("element 200001"), std::string::npos);
}

TEST(StoredTensor, NotFiniteHalvesAndBlocksAreFound) {
    std::vector<std::uint16_t> halves(100, 0x3c00);
    halves[42] = 0x7e00;
    EXPECT_NE(refusal_of(stored(halves, {100}, StoredType::f16)).find("element 42"),
              std::string::npos);
    std::vector<std::uint16_t> brains(100, 0x3f80);
    brains[7] = 0xff80;
    EXPECT_NE(refusal_of(stored(brains, {100}, StoredType::bf16)).find("element 7"),
              std::string::npos);
    std::vector<std::uint8_t> blocks(2 * 34, 1);
    blocks[34] = 0x00;
    blocks[35] = 0x7c;  // the second block's scale is infinite
    const StoredTensor tensor = stored(blocks, {64}, StoredType::q8_0);
    EXPECT_NE(refusal_of(tensor).find("element 32"), std::string::npos);
    EXPECT_THROW(check_finite(tensor), Error);
}

TEST(StoredTensor, IntegersAreNotReadAsFloats) {
    const std::vector<std::int64_t> values(4, 1);
    const StoredTensor tensor = stored(values, {4}, StoredType::i64);
    EXPECT_NE(refusal_of(tensor).find("holds integers (i64)"), std::string::npos);
    check_finite(tensor);
}

TEST(StoredTensor, UsableInPlaceNeedsTypeAndAlignment) {
    const std::vector<float> values(8);
    StoredTensor tensor = stored(values, {4}, StoredType::f32);
    tensor.bytes = 16;
    EXPECT_TRUE(usable_in_place(tensor, DType::f32));
    EXPECT_FALSE(usable_in_place(tensor, DType::bf16));
    tensor.data += 2;
    EXPECT_FALSE(usable_in_place(tensor, DType::f32));
    tensor.type = StoredType::bf16;
    tensor.bytes = 8;
    EXPECT_TRUE(usable_in_place(tensor, DType::bf16));
}

TEST(StoredTensor, ThreadsDoNotChangeWhatIsRead) {
    Random random(5);
    std::vector<std::uint8_t> blocks(20 * 8192);
    for (std::size_t i = 0; i < blocks.size(); ++i)
        blocks[i] =
            static_cast<std::uint8_t>(i % 20 == 1 || i % 20 == 3 ? 0x2c : random.next_u32());
    StoredTensor tensor = stored(blocks, {512, 512}, StoredType::q4_1);
    tensor.permuted_heads = 8;
    const int threads = num_threads();
    std::vector<float> one(512 * 512);
    std::vector<float> many(512 * 512);
    set_num_threads(1);
    read_tensor(tensor, one.data());
    set_num_threads(3);
    read_tensor(tensor, many.data());
    set_num_threads(threads);
    EXPECT_EQ(one, many);
}

}  // namespace
}  // namespace garam
