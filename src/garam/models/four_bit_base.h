// The files of a model with its linears in 4 bits, made in memory: half a byte a weight.
#pragma once

#include <optional>
#include <string>

#include "garam/io/model_files.h"
#include "garam/models/decoder_family.h"
#include "garam/quant/base_quantization.h"

namespace garam {

// The module of a layer's matrix ("model.layers.0.mlp.down_proj"), which is what 4 bits are for; empty for all other
// tensors.
std::string four_bit_module(const DecoderFamily& family, const StoredTensor& tensor);

// Whether any of the model's weights is in 4 bits.
bool is_in_four_bits(const ModelFiles& files);

// Throws Error where a skipped module is none of the model's, the head aside, which Transformers' lists name, and
// where nothing is left to quantise.
void check_skipped_modules(const ModelFiles& files, const BaseQuantization& options);

// The first weight that the files have in other 4 bits than `options` says, with what it is in; empty: none.
std::string in_other_four_bits(const ModelFiles& files, const BaseQuantization& options);

// How the files have their linears in 4 bits; those of the layers that are not are its skipped modules. Nothing where
// none is, or where they are not alike.
std::optional<BaseQuantization> stored_quantization(const ModelFiles& files);

// One such matrix in 4 bits, in host memory that the result shares ownership of. Throws Error naming tensor and element
// for a value that is not finite.
StoredTensor quantised(const StoredTensor& tensor, const BaseQuantization& options);

// Puts the 4 bits in the place of each linear that is not skipped nor in 4 bits already, so that whatever reads the
// files finds what a run with load_in_4bit computes with. Throws Error naming tensor and element for a value
// that is not finite, the files too.
void quantise_linears(ModelFiles& files, const BaseQuantization& options);

}  // namespace garam
