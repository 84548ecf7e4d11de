// The files of a model, seen alike whether they are a Hugging Face folder (config.json and
// safetensors, sharded or not) or a GGUF file: Hugging Face's config keys, tensor names and memory
// layout.
//
// Files are memory-mapped; nothing is read before it is asked for. All sizes, offsets and shapes
// are checked against the file when it is opened. Throws Error naming file and tensor.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "garam/core/dtype.h"
#include "garam/core/json.h"
#include "garam/core/shape.h"

namespace garam {

class GgufFile;

// How the elements of a stored tensor are encoded.
enum class StoredType : std::uint8_t { f32, f16, bf16, i64, i32, u8, q8_0, q4_0, q4_1 };
std::string_view name_of(StoredType type);

struct StoredTensor {
    std::string name;  // Hugging Face's
    Shape shape;       // outermost first, [out, in] for a linear weight
    StoredType type = StoredType::f32;
    const std::byte* data = nullptr;  // in the mapped file
    std::size_t bytes = 0;
    // GGUF stores rows of q and k so that rotary pairs are neighbours; reading undoes it. 0: not
    // so.
    std::int64_t permuted_heads = 0;
};

class ModelFiles {
  public:
    // `path`: a folder with config.json, or a file ending in .gguf.
    static ModelFiles open(const std::filesystem::path& path);
    ModelFiles(ModelFiles&&) noexcept;
    ModelFiles& operator=(ModelFiles&&) noexcept;
    ~ModelFiles();

    const std::filesystem::path& path() const;
    bool is_gguf() const;
    // config.json, or for a GGUF what its keys say in config.json's words (model_type "llama", …; a
    // `rope_freqs.weight` tensor appears as "garam_rope_divisors": [..] in "rope_scaling").
    const Json& config() const;
    // Hugging Face's repository name if the files tell it (config's _name_or_path), else empty.
    std::string name() const;

    const std::vector<StoredTensor>& tensors() const;
    const StoredTensor* find(std::string_view name) const;
    // Throws Error naming the model and the tensor when it is missing.
    const StoredTensor& at(std::string_view name) const;

    // Present for a GGUF: its raw keys (tokenizer, template).
    const GgufFile* gguf() const;

  private:
    struct Impl;
    explicit ModelFiles(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// Elements in row-major Hugging Face order, converted to f32 or bf16 (round to nearest even), into
// `out`, which holds shape.elements() elements. Rows are shared among the cores. Throws Error
// naming the tensor when a value is NaN or infinite.
void read_tensor(const StoredTensor& tensor, float* out);
void read_tensor(const StoredTensor& tensor, bfloat16* out);

// Whether the mapped bytes can be used as they are for that dtype (same type, no permutation,
// aligned to its size).
bool usable_in_place(const StoredTensor& tensor, DType dtype);
// Throws Error naming the tensor and the index of its first NaN or infinity (f32, f16, bf16
// tensors).
void check_finite(const StoredTensor& tensor);

}  // namespace garam
