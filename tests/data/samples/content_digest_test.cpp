#include "garam/data/samples/content_digest.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <set>
#include <string>
#include <vector>

#include "data/expect_error.h"
#include "garam/core/parallel.h"
#include "garam/core/philox.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

std::string random_text(std::size_t bytes, std::uint64_t seed) {
    Random random(seed);
    std::string text(bytes, '\0');
    for (char& c : text)
        c = static_cast<char>(random.next_u32());
    return text;
}

std::array<std::uint64_t, 2> words_of(const std::string& digest) {
    return {std::stoull(digest.substr(0, 16), nullptr, 16),
            std::stoull(digest.substr(16), nullptr, 16)};
}

TEST(ContentDigest, LengthsAndPlacesOfZerosAreTold) {
    std::set<std::string> seen;
    std::size_t count = 0;
    for (std::size_t bytes = 0; bytes < 300; ++bytes, ++count)
        seen.insert(content_digest(std::string(bytes, '\0')));
    for (const std::size_t bytes : {(4u << 20) - 1, 4u << 20, (4u << 20) + 1, 8u << 20}) {
        seen.insert(content_digest(std::string(bytes, '\0')));
        ++count;
    }
    // One bit of 150 bytes set: every place of a word, of a block, of the rest.
    for (std::size_t bit = 0; bit < 150 * 8; ++bit, ++count) {
        std::string text(150, '\0');
        text[bit / 8] = static_cast<char>(1 << (bit % 8));
        seen.insert(content_digest(text));
    }
    EXPECT_EQ(seen.size(), count);
}

// A few bits of words that follow each other must not take each other back: all pairs of high and low bits
// of the same place in neighbouring blocks.
TEST(ContentDigest, PairsOfBitsAreTold) {
    std::set<std::string> seen;
    std::size_t count = 0;
    for (const std::size_t distance : {8u, 16u, 64u, 128u}) {
        for (std::size_t first = 0; first < 64; ++first) {
            for (std::size_t second = 0; second < 64; ++second, ++count) {
                std::string text(256, '\0');
                text[first / 8] = static_cast<char>(1 << (first % 8));
                text[distance + second / 8] = static_cast<char>(1 << (second % 8));
                seen.insert(content_digest(text));
            }
        }
    }
    EXPECT_EQ(seen.size(), count);
}

// A changed bit changes every bit of the digest about every other time: 64 of 128 with sigma
// sqrt(128) / 2 = 5.7 for each text, and each bit of the digest in half of the texts.
TEST(ContentDigest, ABitReachesAllBits) {
    constexpr std::size_t kBytes = 200;
    std::array<int, 128> flips{};
    int texts = 0;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
        std::string text = random_text(kBytes, seed);
        const auto base = words_of(content_digest(text));
        for (std::size_t bit = 0; bit < kBytes * 8; ++bit, ++texts) {
            text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
            const auto other = words_of(content_digest(text));
            text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
            int changed = 0;
            for (std::size_t w = 0; w < 2; ++w) {
                const std::uint64_t difference = base[w] ^ other[w];
                changed += std::popcount(difference);
                for (std::size_t b = 0; b < 64; ++b)
                    flips[w * 64 + b] += static_cast<int>((difference >> b) & 1);
            }
            EXPECT_NEAR(changed, 64, 36) << bit;  // 6.4 sigma
        }
    }
    // sigma sqrt(texts) / 2 = 40: 6 sigma.
    for (const int count : flips)
        EXPECT_NEAR(count, texts / 2, 240);
}

TEST(ContentDigest, IsTheSameForFileTextAndThreads) {
    const testing::TempDir dir;
    const int threads = num_threads();
    for (const std::size_t bytes : {0u, 5u, 64u, 128u << 10, (9u << 20) + 13}) {
        const std::string text = random_text(bytes, bytes);
        const auto file = dir.write("file", text);
        const std::string digest = content_digest(text);
        EXPECT_EQ(digest.size(), 32u);
        for (const int count : {1, 2, 3}) {
            set_num_threads(count);
            EXPECT_EQ(content_digest(file), digest) << bytes;
        }
        set_num_threads(threads);
    }
    EXPECT_ERROR(content_digest(dir / "none"), "none: cannot be read: No such file");
    EXPECT_ERROR(content_digest(dir.path()), "no file");
}

TEST(ContentDigest, IsTheSameOnEveryMachine) {
    // Caches on shared disks carry it: a change must be deliberate, and makes their entries anew.
    EXPECT_EQ(content_digest("garam"), "44a045232b27049c4b3c952a79b39349");
}

}  // namespace
}  // namespace garam
