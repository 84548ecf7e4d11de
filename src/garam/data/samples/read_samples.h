// The rows of sources as samples (see row_schema.h for the shapes of rows, row_encoder.h for how they become
// ids and labels).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "garam/data/data_config.h"
#include "garam/data/data_sources.h"
#include "garam/data/rows/row_encoder.h"
#include "garam/data/samples/sample.h"
#include "garam/data/samples/sample_cache.h"
#include "garam/data/samples/sample_selection.h"
#include "garam/data/samples/sample_table.h"
#include "garam/text/tokenizer.h"

namespace garam {

// How far reading has come.
struct ReadingState {
    std::string source;
    std::int64_t rows = 0;
    std::int64_t tokens = 0;
    double seconds = 0;
    double part = -1;  // of the source's bytes; below 0: unknown

    // "tokenising train.parquet: 42 %, 120,000 rows, 350,000 tokens/s".
    std::string to_string() const;
};
using ReadingProgress = std::function<void(const ReadingState&)>;

// Samples in the order of their rows; the same for any number of threads. Rows without a target are
// dropped and counted. Throws Error naming file and row for the first row that cannot be read
// (with on_error = skip such rows are counted instead), for an id outside of the model's
// vocabulary, and, before anything is trained, when no row is left: with the count, the first
// example and the reason.
ReadReport read_samples(OpenSource& source, const DataConfig& config,
                        const EncodingSettings& settings, const Tokenizer& tokenizer,
                        const std::function<void(Sample&&, std::int64_t full_tokens)>& take,
                        const ReadingProgress& progress = {});

// One table a source, from the cache where it has been made before with the same data, tokenizer and
// settings (data.cache, data.cache_dir); its report names the source as it is named now.
struct SourceSamples {
    SampleTable table;
    ReadReport report;
    bool made = true;  // false: it was there already
};
struct SampleTables {
    std::vector<SourceSamples> sources;
    std::vector<std::string> notes;  // what the user should know of the cache
};
SampleTables read_sample_tables(std::vector<OpenSource> sources, const DataConfig& config,
                                const EncodingSettings& settings, const Tokenizer& tokenizer,
                                const ReadingProgress& progress = {});

// All that decides the samples of a source, for the cache.
Json sample_key(const OpenSource& source, const DataConfig& config,
                const EncodingSettings& settings, const Tokenizer& tokenizer,
                const std::string& tokenizer_digest, SampleCache& cache);
// Of the files that the tokenizer is saved as.
std::string tokenizer_digest(const Tokenizer& tokenizer);

// For select_samples() and hold_out(); no weights: one each.
std::vector<WeightedTable> weighted(const SampleTables& tables, const std::vector<double>& weights);

// The samples of one file in memory.
SampleSet read_samples(const std::filesystem::path& file, const DataConfig& config,
                       const EncodingSettings& settings, const Tokenizer& tokenizer);

}  // namespace garam
