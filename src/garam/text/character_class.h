// What a pre-tokenizer's pattern asks of a character, as a table: letter (\p{L}), number (\p{N}), white space
// (\s), newline (\r or \n, which are white space too) or none of these.
//
// The table is filled once a process from the engine that matches all other patterns, so that scanners and
// engine cannot differ in the version of Unicode. About 100 KB.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace garam {

// Bits, so that several classes can be asked for at once.
using CharacterClass = std::uint8_t;
constexpr CharacterClass kLetter = 1;
constexpr CharacterClass kNumber = 2;
constexpr CharacterClass kSpace = 4;
constexpr CharacterClass kNewline = 8;
constexpr CharacterClass kOther = 16;

class CharacterClasses {
  public:
    // Thread-safe; the first call fills the table.
    static const CharacterClasses& table();

    CharacterClass of(char32_t code_point) const {
        return blocks_[static_cast<std::size_t>(block_[code_point >> 8]) << 8 |
                       (code_point & 0xFF)];
    }
    CharacterClass of_ascii(unsigned char byte) const { return blocks_[byte]; }

    // The character of valid UTF-8 that begins at `at`, and its length in bytes.
    CharacterClass at(const char* at, std::size_t& length) const {
        const auto byte = [&](int i) {
            return static_cast<char32_t>(static_cast<unsigned char>(at[i]));
        };
        const char32_t lead = byte(0);
        if (lead < 0x80) {
            length = 1;
            return blocks_[lead];
        }
        if (lead < 0xE0) {
            length = 2;
            return of((lead & 0x1F) << 6 | (byte(1) & 0x3F));
        }
        if (lead < 0xF0) {
            length = 3;
            return of((lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F));
        }
        length = 4;
        return of((lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
                  (byte(3) & 0x3F));
    }

  private:
    CharacterClasses();

    static constexpr std::size_t kCodePoints = 0x110000;
    std::array<std::uint16_t, kCodePoints / 256> block_{};  // which block the 256 characters have
    std::vector<CharacterClass> blocks_;  // equal blocks stand here once; ASCII's first
};

}  // namespace garam
