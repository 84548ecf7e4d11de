// The tokens of a job: those of the model's files, of the adapter to go on with, and new ones.
#pragma once

#include "garam/train/prepared_job.h"

namespace garam {

// Reads the adapter to go on with, whose own tokens count, and adds data.add_special_tokens to tokenizer,
// model and what is trained. Throws Error naming the keys that contradict each other.
void prepare_vocabulary(PreparedJob& job);

}  // namespace garam
