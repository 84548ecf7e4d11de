// Into which weights an adapter of a base in 4 bits is merged: those that training saw, or the 16-bit ones that
// the 4 bits were made from.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "garam/io/model_files.h"
#include "garam/io/peft_adapter.h"
#include "garam/text/tokenizer.h"

namespace garam {

class MergeBase {
  public:
    // Of `files` the linears become what training saw, where an adapter tells that it quantised
    // them. `original`: the model whose weights are merged into instead; empty: none. Throws Error
    // where the adapters were trained over different 4 bits or over others than the files', and
    // where the original is no model of the same tensors, has other values than those that became
    // the 4 bits, or is not needed, naming them.
    MergeBase(ModelFiles& files, const std::vector<PeftAdapter>& adapters,
              const std::string& original);

    // What is merged into.
    ModelFiles& target() { return original_ ? *original_ : files_; }
    // Whether 4 bits come into it at all.
    bool is_quantised() const { return is_quantised_; }
    // One line that says which weights these are.
    const std::string& statement() const { return statement_; }

  private:
    void take_original(const std::string& original);
    void check_values_of_original() const;

    ModelFiles& files_;
    std::optional<ModelFiles> original_;
    bool is_quantised_ = false;
    std::string statement_;
};

// "On 87 tokens of a sample text (fp32): loss 3.1 before, 3.1 after merging …", or why there is no comparison.
// `adapter` is what `seen` was trained with.
std::string compare_merged(const ModelFiles& seen, const PeftAdapter& adapter,
                           const std::string& source, const std::string& merged,
                           const Tokenizer& tokenizer);

}  // namespace garam
