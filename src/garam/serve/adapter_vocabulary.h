// The vocabulary that an adapter brings along.
#pragma once

#include <memory>
#include <string>

#include "garam/io/model_files.h"
#include "garam/io/peft_adapter.h"
#include "garam/text/tokenizer.h"

namespace garam {

// Gives the model as many tokens as `adapter`, read from `source`, was trained with, and takes the tokenizer
// of its folder where that has special tokens that the model's own has not and all of its tokens have rows:
// a folder may hold a padding token that was never trained. Returns whether the tokenizer was taken. Throws
// Error where the adapter's rows do not fit the model.
bool take_vocabulary(ModelFiles& files, std::unique_ptr<Tokenizer>& tokenizer,
                     const PeftAdapter& adapter, const std::string& source);

}  // namespace garam
