// Model folders put together from the reference data, whose tokenizer files lie partly packed and under
// several names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "garam/text/tokenizer.h"
#include "testing/temp_dir.h"

namespace garam::testing {

// Copies the tokenizer files of `name` ("qwen2.5") into `folder`, unpacking .gz; false when the reference
// data has none. Looks at tokenizers/NAME/, tokenizers/NAME.FILE and golden/NAME-hf/.
bool collect_tokenizer_files(const std::string& name, const TempDir& folder);

// The tokenizer of `name`, loaded once a process; nullptr when the reference data has no files.
const Tokenizer* reference_tokenizer(const std::string& name);

// Names of the tokenizers with vectors in golden/tokenizers, or those given where there are none.
std::vector<std::string> golden_tokenizers();

}  // namespace garam::testing
