// What the corpora begin with: files made here, and the small ones of the reference data where it is.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/input.h"
#include "garam/core/json.h"

namespace garam::fuzz {

// Largest file that is taken from the reference data: small inputs run often.
constexpr std::size_t kLargestSeed = std::size_t{1} << 16;

// What any tokenizer may take, however small its files: ids are indices up to Vocabulary::kMaxIds, a string each,
// and the table is twice there while it grows.
constexpr std::size_t kTokenizerBytes = std::size_t{100} << 20;
// Texts may grow to 32 times their size, and each id is decoded by itself.
constexpr double kTokenizerSeconds = 5;

// GARAM_TEST_DATA, else ../shared/data beside the checkout. May not exist.
std::filesystem::path data_folder();
std::filesystem::path source_folder();
// The files below `folder` whose path ends like this, each alone under the name given.
std::vector<InputFiles> reference_files(const std::filesystem::path& folder, std::string_view end,
                                        const std::string& name);
// As model.gguf: one made here, and those of the reference data.
std::vector<InputFiles> gguf_seeds();
// The files of a folder under their own names, those that are there and not too large.
InputFiles files_of(const std::filesystem::path& folder, const std::vector<std::string>& names);

// A Llama of a few hundred weights as a Hugging Face folder, with a byte-level tokenizer of its own.
struct SmallModel {
    static constexpr int kVocabulary = 270;
    static std::string config();
    static std::string tokenizer();  // byte-level
    static std::string tokenizer_config();
    // Names and shapes; values are small fractions. `part` of `parts`: the tensors of one shard.
    static std::string safetensors(int part = 0, int parts = 1);
    static std::string index(int parts);  // model.safetensors.index.json
    static std::string gguf();            // the same with keys of a tokenizer
    static InputFiles adapter();
};
// A tokenizer.json as SentencePiece's, with byte fallback.
std::string sentencepiece_tokenizer();
// safetensors of any content: entries are name, dtype, shape; the data are zeros of the bytes given.
struct StoredEntry {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::string data;
};
std::string safetensors_of(const std::vector<StoredEntry>& entries);

}  // namespace garam::fuzz
