// A model, with an adapter folded in or as it is, as a GGUF file that llama.cpp loads.
//
// Sums are those of models/merge.h, rounded once to f32 and then quantised where a block type is asked
// for. Rows of some megabytes at a time: memory does not grow with the model.
//
// Vectors (norms, biases) are f32, matrices of the type asked for, but
//   - with q4_0 and q4_k the embedding and the head are q8_0, since each of their rows is a token's;
//   - a matrix whose rows are no whole blocks is q8_0, or f16 where that does not fit either.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "garam/io/gguf_writer.h"
#include "garam/io/model_files.h"
#include "garam/io/peft_adapter.h"

namespace garam {

struct GgufExportOptions {
    // f32, f16, bf16, q8_0, q4_0, q4_k. Unset: what most of the base's matrices are, q8_0 where they are
    // of another block type.
    std::optional<StoredType> type;
    std::string name;         // general.name; empty: none
    GgufKeys tokenizer_keys;  // tokenizer.*, of text/gguf_tokenizer_keys.h
    // Called now and then with the bytes of tensors written and of all.
    std::function<void(std::int64_t done, std::int64_t total)> progress;
};

struct GgufExportReport {
    StoredType type = StoredType::f32;  // of the matrices
    std::int64_t tensors = 0;
    std::int64_t merged_tensors = 0;
    std::int64_t fallbacks = 0;  // matrices of another type, since their rows are no whole blocks
    std::int64_t bytes = 0;      // of the file
    std::vector<std::string> notes;
};

// Whether write_gguf_model can write matrices of that type.
bool is_gguf_export_type(StoredType type);
// Rows of the embedding: as many tokens as the file must list.
std::int64_t embedding_rows(const ModelFiles& base);

// Writes the file, whole or not at all. `adapter` may be nullptr. Throws Error naming file and tensor: a
// family or setting that GGUF cannot hold, a tensor without a name there, an adapter that does not fit,
// a value beyond the range of the type.
GgufExportReport write_gguf_model(const ModelFiles& base, const PeftAdapter* adapter,
                                  const std::string& adapter_source,
                                  const std::filesystem::path& path,
                                  const GgufExportOptions& options);

}  // namespace garam
