// Counter-based random numbers: Philox-4x32 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as
// easy as 1, 2, 3", SC11). The same counter and key give the same four words on every device and in
// every order, which is what makes dropout independent of how a batch is cut up. Ten rounds are the
// authors' choice; seven, the fewest that they found to pass BigCrush, are for where the generator's
// time matters.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace garam {

using PhiloxWords = std::array<std::uint32_t, 4>;

template <int kRounds = 10>
constexpr PhiloxWords philox(PhiloxWords counter, std::uint64_t key) {
    std::uint32_t key0 = static_cast<std::uint32_t>(key);
    std::uint32_t key1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < kRounds; ++round) {
        const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter[0];
        const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
        counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0,
                   static_cast<std::uint32_t>(product1),
                   static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1,
                   static_cast<std::uint32_t>(product0)};
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

// Uniform in [0, 1), 24 bits.
constexpr float uniform01(std::uint32_t word) {
    return static_cast<float>(word >> 8) * 0x1p-24f;
}

// A stream of random numbers for host code (initialisation, shuffles, sampling): one counter, one
// key. Two generators with different `stream` are independent.
class Random {
  public:
    explicit Random(std::uint64_t seed, std::uint64_t stream = 0) : key_(seed), stream_(stream) {}

    std::uint32_t next_u32() {
        if (used_ == 4) {
            words_ = philox(
                {static_cast<std::uint32_t>(count_), static_cast<std::uint32_t>(count_ >> 32),
                 static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
                key_);
            ++count_;
            used_ = 0;
        }
        return words_[static_cast<std::size_t>(used_++)];
    }
    std::uint64_t next_u64() {
        const std::uint64_t low = next_u32();
        return low | (std::uint64_t{next_u32()} << 32);
    }
    double uniform() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }  // [0, 1)
    double uniform(double low, double high) { return low + (high - low) * uniform(); }
    // Uniform in [0, bound), without modulo bias.
    std::uint64_t below(std::uint64_t bound) {
        const std::uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
        for (;;) {
            const std::uint64_t word = next_u64();
            if (word < limit) return word % bound;
        }
    }
    double normal() {  // Box-Muller, one of the pair
        const double u = 1.0 - uniform();
        return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * uniform());
    }

  private:
    std::uint64_t key_;
    std::uint64_t stream_;
    std::uint64_t count_ = 0;
    PhiloxWords words_{};
    int used_ = 4;
};

}  // namespace garam
