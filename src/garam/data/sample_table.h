// The samples of a data set, in a file that is mapped into memory: however many there are, they take no
// memory that the system could not take back.
//
// A table is immutable and may be used from several threads and processes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "garam/core/token_batch.h"
#include "garam/data/sample.h"

namespace garam {

class SampleTable {
  public:
    SampleTable() = default;  // holds no sample
    // Throws Error naming the file when it is not a whole table of this version: kinds of damage are told by
    // size, header and index; the content is trusted (the cache writes it whole or not at all).
    explicit SampleTable(const std::filesystem::path& file);

    std::int64_t size() const;
    bool empty() const { return size() == 0; }
    std::int64_t tokens(std::int64_t sample) const;
    std::int64_t targets(std::int64_t sample) const;  // scored labels, after the shift
    // Tokens before truncation; tokens() where none were cut.
    std::int64_t full_tokens(std::int64_t sample) const;
    std::int64_t row(std::int64_t sample) const;  // number of the row in its source, from 0
    Sample sample(std::int64_t sample) const;     // a copy
    // Appends the sample to a batch, under `sample_id`.
    void append_to(TokenBatch& batch, std::int64_t sample, std::int64_t sample_id) const;

    // What reading the rows found.
    const ReadReport& report() const;
    // See fingerprint.h; kept in the file.
    std::uint64_t fingerprint() const;

  private:
    struct Mapping;
    std::shared_ptr<const Mapping> mapping_;
};

// Writes a table row by row, with memory that does not grow with it.
class SampleTableWriter {
  public:
    explicit SampleTableWriter(const std::filesystem::path& file);
    ~SampleTableWriter();  // an unfinished file is removed
    SampleTableWriter(const SampleTableWriter&) = delete;
    SampleTableWriter& operator=(const SampleTableWriter&) = delete;

    // `full_tokens`: see SampleTable. Throws Error when the disk is full, naming file and what to change.
    void append(const Sample& sample, std::int64_t full_tokens);
    // On disk when this returns.
    void finish(const ReadReport& report);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

// A table of these samples that lies in no folder: for small sets and tests.
SampleTable table_of(const std::vector<Sample>& samples);

}  // namespace garam
