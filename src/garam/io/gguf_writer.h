// Writes a GGUF file (version 3), tensor by tensor, so that a model larger than memory can be written:
// keys, names, types and shapes are told first, then the data in that order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "garam/core/json.h"
#include "garam/core/shape.h"
#include "garam/io/atomic_write.h"
#include "garam/io/stored_tensor.h"

namespace garam {

using GgufValue =
    std::variant<std::uint32_t, std::int32_t, std::uint64_t, float, bool, std::string,
                 std::vector<std::string>, std::vector<float>, std::vector<std::int32_t>,
                 std::vector<std::uint8_t>>;  // the last: bools
using GgufKeys = std::vector<std::pair<std::string, GgufValue>>;

// The value that GgufFile reads as this one: numbers as u32 (i32 where negative, u64 where large) or
// f32, arrays of one kind. Throws Error naming `key` for what has no such form (nested arrays, null).
GgufValue gguf_value(const Json& value, const std::string& key);

class GgufWriter {
  public:
    struct Entry {
        std::string name;
        Shape shape;  // outermost first
        StoredType type = StoredType::f32;

        std::int64_t bytes() const;
    };

    // The file appears under its name at commit(), whole, or never. Throws Error as AtomicFile does.
    GgufWriter(const std::filesystem::path& path, const GgufKeys& keys, std::vector<Entry> entries);

    // The next bytes of the entries, whose name is given as a check of the order. An entry may come in
    // pieces.
    void write(std::string_view name, const void* data, std::int64_t bytes);
    // After the last entry.
    void commit();

    // Of the whole file.
    std::int64_t total_bytes() const { return total_; }

  private:
    void pad();

    AtomicFile file_;
    std::vector<Entry> entries_;
    std::size_t next_ = 0;
    std::int64_t in_entry_ = 0;  // bytes of entries_[next_] that are written
    std::int64_t total_ = 0;
};

}  // namespace garam
