// Unicode normal forms (UAX 15) with alignment.
#pragma once

#include <string_view>

#include "garam/text/aligned_text.h"

namespace garam {

struct NormalForm {
    bool compose = false;        // NFC, NFKC
    bool compatibility = false;  // NFKC, NFKD
};

// Characters that stay what they are keep their own bytes; what changes together stands for all of it.
AlignedText normal_form(const AlignedText& text, NormalForm form);

// Whether all characters of valid UTF-8 are such that the text certainly is in this form: a quick check that says
// no where it would have to look at neighbours.
bool is_normal(std::string_view text, NormalForm form);

}  // namespace garam
