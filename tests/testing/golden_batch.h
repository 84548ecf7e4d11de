// Reference files of language models: right-padded batches with labels as Hugging Face shifts them, and
// tensors to compare with.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "garam/core/shape.h"
#include "garam/core/token_batch.h"

namespace garam::testing {

struct GoldenTensor {
    Shape shape;
    std::vector<float> values;           // of f32 tensors
    std::vector<std::int64_t> integers;  // of i64 tensors
};

class GoldenFile {
  public:
    explicit GoldenFile(const std::filesystem::path& path);
    bool has(const std::string& name) const { return tensors_.contains(name); }
    const GoldenTensor& at(const std::string& name) const { return tensors_.at(name); }
    float scalar(const std::string& name) const { return at(name).values.at(0); }
    const std::map<std::string, GoldenTensor>& tensors() const { return tensors_; }

    // The padded batch `index` of input_ids [.., rows, length] (or the only one, when input_ids is
    // [rows, length]) without its padding.
    TokenBatch batch(std::int64_t index = 0) const;
    // Where the tokens of that batch lie among its padded rows: row * length + column.
    std::vector<std::int64_t> places(std::int64_t index = 0) const;

  private:
    std::map<std::string, GoldenTensor> tensors_;
};

// |got - want| / |want| in the 2-norm; where want is all zero, 0 if got is too, else infinity.
double relative_error(const float* got, const std::vector<float>& want);

}  // namespace garam::testing
