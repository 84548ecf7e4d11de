// Model folders put together from the reference data, whose tokenizer files lie partly packed and under
// several names.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "garam/core/error.h"
#include "garam/text/tokenizer.h"
#include "testing/temp_dir.h"

namespace garam::testing {

// Copies the tokenizer files of `name` ("qwen2.5") into `folder`, unpacking .gz; false when the reference
// data has none. Looks at tokenizers/NAME/, tokenizers/NAME.FILE and golden/NAME-hf/.
bool collect_tokenizer_files(const std::string& name, const TempDir& folder);

// The tokenizer of `name`, loaded once a process; nullptr when the reference data has no files.
const Tokenizer* reference_tokenizer(const std::string& name);

// Names of the tokenizers with vectors in golden/tokenizers, and of those with templates in golden/chat.
std::vector<std::string> golden_tokenizers();
std::vector<std::string> golden_templates();

// Evaluates an initialiser, or skips the test where it says that its kind is not supported.
#define GARAM_SKIP_UNSUPPORTED(declaration, expression)                                  \
    try {                                                                                \
        static_cast<void>(expression);                                                   \
    } catch (const Error& error) {                                                       \
        if (std::string(error.what()).find("not supported") == std::string::npos) throw; \
        GTEST_SKIP() << GetParam() << ": " << error.what();                              \
    }                                                                                    \
    declaration = expression

// "qwen2.5" as the name of a test case.
std::string case_name(const ::testing::TestParamInfo<std::string>& info);

}  // namespace garam::testing
