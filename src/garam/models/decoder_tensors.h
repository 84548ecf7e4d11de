// Whether a model's files hold the tensors that its config asks for, and no others.
#pragma once

#include <set>
#include <string>

#include "garam/io/model_files.h"
#include "garam/models/decoder_config.h"

namespace garam {

// Throws Error naming a tensor that is not in `used`, but for those that the config implies.
void refuse_unknown_tensors(const ModelFiles& files, const std::set<std::string>& used,
                            const DecoderConfig& config);

// Throws Error where a tensor of the model that config.json describes is missing or has another shape, and naming one
// that is none of it: for whoever makes another file of these without computing with them.
void check_tensors(const ModelFiles& files);

}  // namespace garam
