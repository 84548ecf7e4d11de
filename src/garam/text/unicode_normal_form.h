// Unicode normal forms (UAX 15) with alignment.
#pragma once

#include "garam/text/aligned_text.h"

namespace garam {

struct NormalForm {
    bool compose = false;        // NFC, NFKC
    bool compatibility = false;  // NFKC, NFKD
};

// Characters that stay what they are keep their own bytes; what changes together stands for all of it.
AlignedText normal_form(const AlignedText& text, NormalForm form);

}  // namespace garam
