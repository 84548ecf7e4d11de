#include "io/mutation.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>

#include "garam/core/error.h"
#include "garam/core/philox.h"

namespace {

std::atomic<std::size_t> live_bytes{0};
std::atomic<std::size_t> peak_bytes{0};

void* counted_allocation(std::size_t size) {
    void* memory = std::malloc(size == 0 ? 1 : size);
    if (memory == nullptr) throw std::bad_alloc();
    const std::size_t now =
        live_bytes.fetch_add(malloc_usable_size(memory)) + malloc_usable_size(memory);
    std::size_t peak = peak_bytes.load();
    while (now > peak && !peak_bytes.compare_exchange_weak(peak, now)) {
    }
    return memory;
}

void counted_release(void* memory) {
    if (memory == nullptr) return;
    live_bytes.fetch_sub(malloc_usable_size(memory));
    std::free(memory);
}

}  // namespace

// The whole test binary counts what it allocates. All forms are replaced, so that each release meets the
// allocation that belongs to it (over-aligned ones, which nothing here uses, are left alone).
void* operator new(std::size_t size) {
    return counted_allocation(size);
}
void* operator new[](std::size_t size) {
    return counted_allocation(size);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    try {
        return counted_allocation(size);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}
void* operator new[](std::size_t size, const std::nothrow_t& nothrow) noexcept {
    return operator new(size, nothrow);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
    counted_release(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
    counted_release(memory);
}
void operator delete(void* memory) noexcept {
    counted_release(memory);
}
void operator delete[](void* memory) noexcept {
    counted_release(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    counted_release(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
    counted_release(memory);
}

namespace garam::testing {
namespace {

void overwrite(std::string& bytes, std::size_t at, const void* value, std::size_t size) {
    if (size > bytes.size()) return;
    std::memcpy(bytes.data() + std::min(at, bytes.size() - size), value, size);
}

void mutate_once(std::string& bytes, Random& random) {
    if (bytes.empty()) return;
    // Headers come first and are where the interesting bytes are: half of the changes fall into the
    // first 512.
    const std::uint64_t range =
        random.below(2) == 0 ? bytes.size() : std::min<std::uint64_t>(bytes.size(), 512);
    const std::size_t at = random.below(range);
    switch (random.below(8)) {
        case 0:
        case 1:
            bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
            break;
        case 2:
            bytes[at] = static_cast<char>(random.below(256));
            break;
        case 3: {
            const std::uint64_t extremes[] = {
                0,          1,          0xff,       0x7fffffff, 1ull << 31, 1ull << 32,
                1ull << 60, 1ull << 62, 1ull << 63, ~0ull,      ~0ull - 7,  random.next_u64()};
            const std::uint64_t value = extremes[random.below(std::size(extremes))];
            overwrite(bytes, at, &value, sizeof value);
            break;
        }
        case 4: {
            const std::uint32_t value = random.below(2) == 0 ? ~0u : random.next_u32();
            overwrite(bytes, at, &value, sizeof value);
            break;
        }
        case 5:
            bytes.erase(at, 1 + random.below(16));
            break;
        case 6:
            bytes.insert(at, bytes.substr(random.below(bytes.size()), 1 + random.below(16)));
            break;
        case 7:
            bytes[at] = "0123456789,:[]{}\"-e."[random.below(20)];
            break;
    }
}

}  // namespace

std::size_t peak_allocation_of(const std::function<void()>& action) {
    const std::size_t before = live_bytes.load();
    peak_bytes.store(before);
    action();
    const std::size_t peak = peak_bytes.load();
    return peak > before ? peak - before : 0;
}

MutationResult try_mutations(const std::string& content, const std::filesystem::path& path,
                             int mutations, std::uint64_t seed,
                             const std::function<void()>& attempt, std::size_t allocation_factor) {
    MutationResult result;
    Random random(seed);
    for (int i = 0; i < mutations; ++i) {
        std::string bytes = content;
        if (random.below(8) == 0) {
            bytes.resize(random.below(bytes.size() + 1));
        } else {
            for (std::uint64_t changes = 1 + random.below(3); changes > 0; --changes)
                mutate_once(bytes, random);
        }
        std::filesystem::remove(path);  // rewriting in place makes ext4 sync each time
        std::ofstream(path, std::ios::binary) << bytes;
        const std::size_t peak = peak_allocation_of([&] {
            try {
                attempt();
                ++result.opened;
            } catch (const Error&) {
                ++result.refused;
            } catch (const std::exception& error) {
                ADD_FAILURE() << "mutation " << i << " of seed " << seed << ": " << error.what();
            }
        });
        EXPECT_LE(peak, allocation_factor * (bytes.size() + 4096)) << "mutation " << i;
    }
    return result;
}

}  // namespace garam::testing
