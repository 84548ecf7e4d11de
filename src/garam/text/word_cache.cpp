#include "garam/text/word_cache.h"

#include <algorithm>
#include <atomic>
#include <bit>

namespace garam {

static_assert(std::endian::native == std::endian::little, "the masks keep the low bytes");

constexpr std::array<std::array<std::uint64_t, 4>, WordCache::kMaxBytes + 1> WordCache::kMasks =
    [] {
        std::array<std::array<std::uint64_t, 4>, kMaxBytes + 1> masks{};
        for (std::size_t size = 0; size <= kMaxBytes; ++size)
            for (std::size_t i = 0; i < 4; ++i) {
                const std::size_t kept = size > 8 * i ? std::min<std::size_t>(size - 8 * i, 8) : 0;
                masks[size][i] = kept == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * kept) - 1;
            }
        return masks;
    }();

std::uint32_t WordCache::new_model() {
    static std::atomic<std::uint32_t> next{1};
    return next.fetch_add(1);
}

}  // namespace garam
