// The rows of a JSON Lines file as samples (see data_config.h for the shapes of rows, row_encoder.h
// for how they become ids and labels).
#pragma once

#include <filesystem>

#include "garam/data/data_config.h"
#include "garam/data/row_encoder.h"
#include "garam/data/sample.h"
#include "garam/data/sample_table.h"
#include "garam/text/tokenizer.h"

namespace garam {

// Samples in the order of their rows; the same for any number of threads. Rows without a target are
// dropped and counted. Throws Error naming file and line for the first row that cannot be read
// (with on_error = skip such rows are counted instead), for an id outside of the model's
// vocabulary, and, before anything is trained, when no row is left: with the count, the first
// example and the reason.
SampleSet read_samples(const std::filesystem::path& file, const DataConfig& config,
                       const EncodingSettings& settings, const Tokenizer& tokenizer);

// The same, written to a table as they are read.
ReadReport read_samples(const std::filesystem::path& file, const DataConfig& config,
                        const EncodingSettings& settings, const Tokenizer& tokenizer,
                        SampleTableWriter& table);
// In an unnamed file.
SampleTable read_sample_table(const std::filesystem::path& file, const DataConfig& config,
                              const EncodingSettings& settings, const Tokenizer& tokenizer);

}  // namespace garam
