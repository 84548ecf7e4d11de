// GGUF files cut into parts, NAME-00001-of-0000N.gguf, as llama-gguf-split and the converters write
// them: each has its own tensors and the keys split.no (from 0), split.count and split.tensors.count;
// the model's keys are in the first.
#pragma once

#include <functional>
#include <memory>

#include "garam/io/gguf.h"

namespace garam {

// The whole that `part` belongs to (`part` itself where it is one): the first part's keys, all parts'
// tensors. `open` opens one file. Throws Error naming the part: for a name or number that contradicts
// the keys, parts that are not there (all of them are named), a tensor that two parts hold, and
// fewer or more tensors than the keys tell.
std::shared_ptr<const GgufFile> join_gguf_parts(
    std::shared_ptr<const GgufFile> part,
    const std::function<std::shared_ptr<const GgufFile>(const std::filesystem::path&)>& open);

}  // namespace garam
