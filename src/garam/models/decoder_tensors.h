// What a model's files hold besides the tensors that its config asks for.
#pragma once

#include <set>
#include <string>

#include "garam/io/model_files.h"
#include "garam/models/decoder_config.h"

namespace garam {

// A tied model's files may hold the shared matrix twice: whether they do. Throws Error where there are two
// different ones, which contradict the config.
bool holds_shared_head(const ModelFiles& files, const std::string& head,
                       const std::string& embedding);

// Throws Error naming a tensor that is not in `used`, but for those that the config implies.
void refuse_unknown_tensors(const ModelFiles& files, const std::set<std::string>& used,
                            const DecoderConfig& config);

}  // namespace garam
