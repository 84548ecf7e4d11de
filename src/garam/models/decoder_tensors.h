// What a model's files hold besides the tensors that its config asks for.
#pragma once

#include <set>
#include <string>

#include "garam/io/model_files.h"
#include "garam/models/decoder_config.h"

namespace garam {

// Throws Error naming a tensor that is not in `used`, but for those that the config implies.
void refuse_unknown_tensors(const ModelFiles& files, const std::set<std::string>& used,
                            const DecoderConfig& config);

}  // namespace garam
