// GGUF files (version 2 and 3, little-endian; specification: ggml/docs/gguf.md): keys and tensors,
// memory-mapped.
//
// Keys are given as Json values: integers (beyond int64: doubles), floats, bools and strings as
// such, arrays as arrays. Strings that become names are UTF-8; string values are taken as they are.
// Every length and count is checked against the file's size before anything is allocated; names are
// unique; tensors lie inside the file at multiples of general.alignment without overlap. Throws
// Error naming the file and the key or tensor. Of a file in parts (io/gguf_split.h) any part is given.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "garam/core/json.h"
#include "garam/io/stored_tensor.h"

namespace garam {

// Id of ggml's type of that encoding; nothing for u8, which ggml does not have.
std::optional<std::uint32_t> ggml_type_of(StoredType type);

class GgufFile {
  public:
    static std::shared_ptr<const GgufFile> open(const std::filesystem::path& path);
    virtual ~GgufFile() = default;

    virtual const std::filesystem::path& path() const = 0;
    // nullptr when absent.
    virtual const Json* find(std::string_view key) const = 0;
    virtual const Json::Object& keys() const = 0;
    // Under GGUF's own names, shapes outermost first, in the file's order. Tensors of a block type
    // that is not supported are refused, naming the type and those that are.
    virtual const std::vector<StoredTensor>& tensors() const = 0;
};

}  // namespace garam
