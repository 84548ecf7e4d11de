#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "garam/core/dynamic_code_tables.h"
#include "garam/core/philox.h"

namespace garam {
namespace {

// By the definition: past each middle, and past one that belongs to the even code above it.
int nearest(const DynamicCode& code, float x) {
    int at = 0;
    while (at < 255) {
        const float middle = (code.value[at] + code.value[at + 1]) * 0.5f;
        if (x < middle || (x == middle && at % 2 == 0)) break;
        ++at;
    }
    return at;
}

// As kernels look it up.
int looked_up(const DynamicCode& code, bool is_signed, float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const int shift = is_signed ? DynamicCode::kSignedShift : DynamicCode::kUnsignedShift;
    const int base = is_signed ? DynamicCode::kSignedBase : DynamicCode::kUnsignedBase;
    const int cells = is_signed ? DynamicCode::kSignedCells : DynamicCode::kUnsignedCells;
    int cell = static_cast<int>((bits & 0x7fffffffu) >> shift) - base;
    cell = std::min(std::max(cell, 0), cells - 1);
    if (is_signed && std::signbit(x)) cell += cells;
    const int first = code.first[cell];
    return first + (x > code.above[first] ? 1 : 0);
}

TEST(DynamicCode, HasBitsandbytesValues) {
    const DynamicCode& with = kSignedDynamicCode;
    const DynamicCode& without = kUnsignedDynamicCode;
    for (int k = 0; k < 255; ++k) {
        EXPECT_LT(with.value[k], with.value[k + 1]);
        EXPECT_LT(without.value[k], without.value[k + 1]);
    }
    EXPECT_EQ(with.value[DynamicCode::kSignedZero], 0);
    EXPECT_FLOAT_EQ(with.value[0], -0.99296875f);
    EXPECT_FLOAT_EQ(with.value[128], 5.5e-7f);
    EXPECT_EQ(with.value[255], 1);
    EXPECT_EQ(without.value[0], 0);
    EXPECT_FLOAT_EQ(without.value[1], 3.25e-7f);
    EXPECT_FLOAT_EQ(without.value[254], 0.99648437f);
    EXPECT_EQ(without.value[255], 1);
}

TEST(DynamicCode, TwoLookUpsFindTheNearestCode) {
    Random random(7);
    for (const bool is_signed : {true, false}) {
        const DynamicCode& code = is_signed ? kSignedDynamicCode : kUnsignedDynamicCode;
        std::vector<float> numbers = {0.0f, 1.0f, std::numeric_limits<float>::denorm_min(), 1e-30f};
        const auto add_around = [&numbers](float x) {
            numbers.push_back(x);
            numbers.push_back(std::nextafter(x, -2.0f));
            numbers.push_back(std::nextafter(x, 2.0f));
        };
        for (int k = 0; k < 255; ++k) {
            add_around(code.value[k]);
            add_around((code.value[k] + code.value[k + 1]) * 0.5f);
        }
        const int shift = is_signed ? DynamicCode::kSignedShift : DynamicCode::kUnsignedShift;
        for (std::uint32_t bits = 0; bits < (128u << 23); bits += 1u << shift)
            add_around(std::bit_cast<float>(bits));
        for (int i = 0; i < 20000; ++i)
            numbers.push_back(static_cast<float>(std::pow(10.0, -9 * random.uniform())));
        int wrong = 0;
        for (const float number : numbers) {
            for (const float x : {number, -number}) {
                if (x > 1 || x < (is_signed ? -1.0f : 0.0f)) continue;
                if (looked_up(code, is_signed, x) != nearest(code, x)) ++wrong;
            }
        }
        EXPECT_EQ(wrong, 0) << (is_signed ? "signed" : "unsigned");
    }
}

}  // namespace
}  // namespace garam
