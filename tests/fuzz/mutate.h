// Changes to inputs that know the structure of their format, so that what lies behind the first check is
// reached too.
#pragma once

#include <string>
#include <vector>

#include "fuzz/input.h"
#include "garam/core/philox.h"

namespace garam::fuzz {

constexpr std::size_t kLargestInput = std::size_t{1} << 18;

// Changes one file of an input once or a few times, by its format, which its name tells. `other` is another
// input of the same target, to take pieces from; `words` are worth inserting.
void mutate(InputFiles& files, const InputFiles& other, const std::vector<std::string>& words,
            Random& random);

// The formats alone; each changes `bytes` once.
void mutate_bytes(std::string& bytes, const std::string& other, Random& random);
void mutate_text(std::string& text, const std::string& other, const std::vector<std::string>& words,
                 Random& random);
void mutate_json(std::string& text, const std::string& other, const std::vector<std::string>& words,
                 Random& random);
void mutate_safetensors(std::string& bytes, const std::string& other, Random& random);
void mutate_gguf(std::string& bytes, const std::string& other, Random& random);

// Numbers at which sizes, offsets and counts go wrong.
std::uint64_t edge_number(Random& random);
// Bytes that text may hold and should not trip over: invalid UTF-8, NUL, long runs, odd code points.
std::string odd_text(Random& random);

}  // namespace garam::fuzz
