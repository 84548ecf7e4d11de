// Normalizers that drop or replace single characters: StripAccents, Nmt, BertNormalizer, ByteLevel.
#pragma once

#include "garam/text/aligned_text.h"

namespace garam {

AlignedText without_marks(const AlignedText& text);             // M
AlignedText without_nonspacing_marks(const AlignedText& text);  // Mn

// Control characters dropped, other white space and line ends made spaces, as SentencePiece's nmt rules.
AlignedText nmt_cleaned(const AlignedText& text);

// BERT's: control characters and U+FFFD dropped, white space made spaces; spaces around ideographs.
AlignedText bert_cleaned(const AlignedText& text);
AlignedText with_spaced_ideographs(const AlignedText& text);

// Each byte as the character that GPT-2 spells it with.
AlignedText spelled_as_bytes(const AlignedText& text);

}  // namespace garam
