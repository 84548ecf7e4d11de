// safetensors files: an 8-byte header length, a JSON header, the tensors' bytes
// (format: huggingface/safetensors, README "Format").
//
// Reading maps the file and checks the header fully: length against the file and a limit of 100 MB,
// names unique, every dtype one of F32 F16 BF16 I64 I32 U8, at most four dimensions, offsets inside
// the file, in agreement with the shape, without overlap or holes. Throws Error naming the file and
// tensor.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "garam/core/tensor.h"
#include "garam/io/stored_tensor.h"

namespace garam {

class SafetensorsFile {
  public:
    static std::shared_ptr<const SafetensorsFile> open(const std::filesystem::path& path);
    virtual ~SafetensorsFile() = default;
    virtual const std::filesystem::path& path() const = 0;
    virtual const std::vector<StoredTensor>& tensors() const = 0;  // in the order of their offsets
    virtual const StoredTensor* find(std::string_view name) const = 0;
    virtual const std::vector<std::pair<std::string, std::string>>& metadata() const = 0;
};

// Writes dense host tensors (f32, f16, bf16, u8, i32, i64) in the order given, atomically (a
// temporary name, synced, renamed). The header is padded so that data begins at a multiple of 8.
void write_safetensors(const std::filesystem::path& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::vector<std::pair<std::string, std::string>>& metadata = {});

}  // namespace garam
