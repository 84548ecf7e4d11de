// `garam data inspect`: the data of a job as it would be trained on, before anything is.
#pragma once

#include "garam/data/inspection/inspection.h"
#include "garam/data/samples/read_samples.h"
#include "garam/train/job_config.h"

namespace garam {

// Reads the rows as prepare() does, through the same cache. Of the model only the tokenizer and the config
// are needed, its weights only where new tokens or an adapter change its vocabulary. Rows that max_length
// cuts are read a second time whole, through the cache, too. Throws Error for what training would refuse.
Inspection inspect_data(const JobConfig& config, std::int64_t shown_samples,
                        const ReadingProgress& progress = {});

}  // namespace garam
