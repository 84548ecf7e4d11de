// A model with more or fewer tokens than its files have: rows of the embedding and of a head of its own.
#pragma once

#include <cstdint>
#include <string>

#include "garam/io/model_files.h"
#include "garam/io/peft_adapter.h"

namespace garam {

// Tokens of the config.
std::int64_t vocabulary_size(const ModelFiles& files);

// Leaves `rows` tokens. New rows are the mean of all old ones, where Transformers' resize_token_embeddings
// begins them, too (it adds a noise of 1e-9 of their covariance). Old ones keep their bits; a quantised
// table becomes f32.
void resize_token_embeddings(ModelFiles& files, std::int64_t rows);

// Whether one of PeftAdapter::embeddings stands instead of the base's: PEFT also saves, unchanged, what an
// adapter of the embedding or the head is beside.
bool is_instead_of_base(const AdapterTensor& tensor, std::int64_t vocab_size);

// The vocabulary that the adapter was trained with: as many rows as the matrices that its file has whole,
// and as its trained tokens need among the first `tokenizer_size`; and of what PEFT saves when a
// vocabulary was resized (PeftAdapter::embeddings) the values. Throws Error naming `source` and the
// tensor where they do not fit the model.
void fit_vocabulary(ModelFiles& files, const PeftAdapter& adapter, const std::string& source,
                    std::int64_t tokenizer_size);

}  // namespace garam
