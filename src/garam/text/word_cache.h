// The tokens of words that a thread has met: words repeat, and looking one up is many times faster than
// merging it anew.
//
// One cache a thread, so no locks; all models share it, told apart by their numbers. Of fixed size: 2 MiB a
// thread that encodes, however long it runs; a word that comes to a full place takes it over.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace garam {

class WordCache {
  public:
    static constexpr std::size_t kMaxBytes = 32;  // of a word
    static constexpr std::size_t kMaxTokens = 6;

    // The calling thread's.
    static WordCache& of_this_thread() {
        thread_local WordCache cache;
        return cache;
    }
    // A number that no other model of the process has.
    static std::uint32_t new_model();

    // A word of a model, spelled in four numbers: equal words have equal ones.
    struct Key {
        std::array<std::uint64_t, 4> bytes;
        std::uint64_t model_and_size;
    };
    // Bytes [begin, end) of `text`, at most kMaxBytes.
    static Key key(std::uint32_t model, std::string_view text, std::size_t begin, std::size_t end) {
        const std::size_t size = end - begin;
        Key key{{}, static_cast<std::uint64_t>(model) << 8 | size};
        if (text.size() - begin >= kMaxBytes) {
            // Reading beyond the word and masking is faster than a copy of odd length.
            std::memcpy(key.bytes.data(), text.data() + begin, kMaxBytes);
            for (std::size_t i = 0; i < key.bytes.size(); ++i)
                key.bytes[i] &= kMasks[size][i];
        } else {
            std::memcpy(key.bytes.data(), text.data() + begin, size);
        }
        return key;
    }

    struct alignas(64) Entry {
        Key key{{}, 0};  // the number of tokens in its last byte; all zero: free
        std::array<std::int32_t, kMaxTokens> ids{};
    };

    // The tokens of a word; nullptr: not known.
    const Entry* find(const Key& key) const {
        const Entry& entry = entries_[place(key)];
        const bool same =
            ((entry.key.bytes[0] ^ key.bytes[0]) | (entry.key.bytes[1] ^ key.bytes[1]) |
             (entry.key.bytes[2] ^ key.bytes[2]) | (entry.key.bytes[3] ^ key.bytes[3]) |
             ((entry.key.model_and_size ^ key.model_and_size) & ~kCountMask)) == 0;
        return same ? &entry : nullptr;
    }
    static std::size_t count(const Entry& entry) { return entry.key.model_and_size >> kCountShift; }

    void put(const Key& key, std::span<const std::int32_t> ids) {
        if (ids.size() > kMaxTokens) return;
        Entry& entry = entries_[place(key)];
        entry.key = key;
        entry.key.model_and_size |= static_cast<std::uint64_t>(ids.size()) << kCountShift;
        std::memcpy(entry.ids.data(), ids.data(), ids.size() * sizeof(std::int32_t));
    }

  private:
    static constexpr std::size_t kEntries = std::size_t{1} << 15;
    static constexpr int kCountShift = 56;
    static constexpr std::uint64_t kCountMask = std::uint64_t{0xFF} << kCountShift;
    static const std::array<std::array<std::uint64_t, 4>, kMaxBytes + 1> kMasks;  // by size

    static std::size_t place(const Key& key) {
        std::uint64_t mixed = (key.bytes[0] ^ key.model_and_size) * 0x9E3779B97F4A7C15u;
        mixed = (mixed ^ mixed >> 29 ^ key.bytes[1]) * 0xBF58476D1CE4E5B9u;
        mixed = (mixed ^ mixed >> 32 ^ key.bytes[2]) * 0x94D049BB133111EBu;
        mixed = (mixed ^ mixed >> 31 ^ key.bytes[3]) * 0x9E3779B97F4A7C15u;
        return static_cast<std::size_t>(mixed >> 40) & (kEntries - 1);
    }

    std::vector<Entry> entries_ = std::vector<Entry>(kEntries);
};
static_assert(sizeof(WordCache::Entry) == 64);

}  // namespace garam
