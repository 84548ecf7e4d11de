#include "garam/models/rope_recovery.h"

#include <gtest/gtest.h>

#include <cmath>

#include "garam/models/rope.h"

namespace garam {
namespace {

// The divisors that a GGUF would hold: fp32 quotients of the frequencies.
std::vector<double> divisors_of(const RopeConfig& rope, std::int64_t head_dim) {
    RopeConfig plain;
    plain.theta = rope.theta;
    const std::vector<float> unscaled = rope_inverse_frequencies(plain, head_dim);
    const std::vector<float> scaled = rope_inverse_frequencies(rope, head_dim);
    std::vector<double> divisors;
    for (std::size_t i = 0; i < scaled.size(); ++i)
        divisors.push_back(static_cast<double>(unscaled[i] / scaled[i]));
    return divisors;
}

RopeConfig llama3(double theta, double factor, double low, double high, double original) {
    RopeConfig rope;
    rope.kind = RopeConfig::Kind::llama3;
    rope.theta = theta;
    rope.factor = factor;
    rope.low_freq_factor = low;
    rope.high_freq_factor = high;
    rope.original_max_position = original;
    return rope;
}

TEST(RecoverRope, OnesAreNoScaling) {
    const auto rope = recover_rope(std::vector<double>(8, 1.0), 5000);
    ASSERT_TRUE(rope);
    EXPECT_EQ(rope->kind, RopeConfig::Kind::standard);
    EXPECT_EQ(rope->theta, 5000);
}

TEST(RecoverRope, OneDivisorForAllIsLinear) {
    const auto rope = recover_rope(std::vector<double>(8, 4.0), 10000);
    ASSERT_TRUE(rope);
    EXPECT_EQ(rope->kind, RopeConfig::Kind::linear);
    EXPECT_EQ(rope->factor, 4);
}

TEST(RecoverRope, PublishedLlamasComeBackByTheirOwnNumbers) {
    // Llama 3.1 8B, Llama 3.2 1B, EXAONE 3.5 2.4B (head 80).
    for (const auto& [rope, head_dim] : {std::pair{llama3(500000, 8, 1, 4, 8192), 128},
                                         {llama3(500000, 32, 1, 4, 8192), 64},
                                         {llama3(1e6, 8, 1, 4, 8192), 80}}) {
        const auto found = recover_rope(divisors_of(rope, head_dim), rope.theta);
        ASSERT_TRUE(found);
        EXPECT_EQ(found->kind, RopeConfig::Kind::llama3);
        EXPECT_EQ(found->factor, rope.factor);
        EXPECT_EQ(found->low_freq_factor, 1);
        EXPECT_EQ(found->high_freq_factor, 4);
        EXPECT_EQ(found->original_max_position, 8192);
    }
}

TEST(RecoverRope, OtherNumbersComeBackAsTheSameFrequencies) {
    for (const RopeConfig& rope : {llama3(500, 8, 0.5, 2, 16), llama3(10000, 16, 1, 8, 4096),
                                   llama3(10000, 4, 2, 3, 2048)}) {
        for (const std::int64_t head_dim : {16, 64, 128}) {
            const std::vector<double> divisors = divisors_of(rope, head_dim);
            const auto found = recover_rope(divisors, rope.theta);
            if (!found) {
                ADD_FAILURE() << rope.factor << " " << head_dim;
                continue;
            }
            const std::vector<float> wanted = rope_inverse_frequencies(rope, head_dim);
            const std::vector<float> got = rope_inverse_frequencies(*found, head_dim);
            for (std::size_t i = 0; i < wanted.size(); ++i)
                EXPECT_NEAR(got[i], wanted[i], 0x1p-21 * static_cast<double>(wanted[i])) << i;
        }
    }
}

TEST(RecoverRope, WhatNoSettingGivesIsNotGuessed) {
    EXPECT_FALSE(recover_rope({1, 2, 1, 2, 1, 2, 1, 2}, 10000));
    EXPECT_FALSE(recover_rope({1, 1, 1.5, 3, 5, 7, 7.5, 8}, 10000));
    // Of a llama3 setting, but one frequency moved a little.
    std::vector<double> divisors = divisors_of(llama3(500000, 8, 1, 4, 8192), 128);
    for (double& divisor : divisors) {
        if (divisor == 1 || divisor == 8) continue;
        divisor *= 1.001;
        break;
    }
    EXPECT_FALSE(recover_rope(divisors, 500000));
}

}  // namespace
}  // namespace garam
