// The samples of a data set, in a file that is mapped into memory: however many there are, they take no
// memory that the system could not take back.
//
// A table is immutable and may be used from several threads and processes.
//
// The file, all of it little-endian: a header of 128 bytes; the tokens; the index; the report as JSON.
// A token is its id in 32 bits, the highest set where its label is the id; unset, it is no target. A
// sample that has any other label is followed by its labels, 32 bits each. The index has for each sample
// 24 bytes (where its tokens begin, how many are scored, how many there were, its row), and one more
// entry for the end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "garam/core/token_batch.h"
#include "garam/data/samples/sample.h"

namespace garam {

class SampleTable {
  public:
    SampleTable() = default;  // holds no sample
    // Takes the same time for every size. Throws Error naming the file when it is not a whole table of
    // this version, told by its size, header and report. An index entry that points out of the file is
    // told when it is used, by the same Error; the tokens themselves are trusted.
    explicit SampleTable(const std::filesystem::path& file);

    std::int64_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    std::int64_t tokens(std::int64_t sample) const;
    std::int64_t targets(std::int64_t sample) const;  // scored labels, after the shift
    // Tokens before truncation; tokens() where none were cut.
    std::int64_t full_tokens(std::int64_t sample) const;
    std::int64_t row(std::int64_t sample) const;  // number of the row in its source, from 0
    Sample sample(std::int64_t sample) const;     // a copy
    Sample operator[](std::int64_t i) const { return sample(i); }
    // Appends the sample to a batch, under `sample_id`.
    void append_to(TokenBatch& batch, std::int64_t sample, std::int64_t sample_id) const;

    // What reading the rows found.
    const ReadReport& report() const;
    // See fingerprint.h; kept in the file.
    std::uint64_t fingerprint() const;

  private:
    friend class SampleTableWriter;
    struct Mapping;
    struct Place;
    SampleTable(int fd, const std::filesystem::path& file);
    Place place(std::int64_t sample) const;

    std::shared_ptr<const Mapping> mapping_;
    std::int64_t size_ = 0;
};

// Writes a table sample by sample, with memory that does not grow with it.
class SampleTableWriter {
  public:
    explicit SampleTableWriter(const std::filesystem::path& file);
    // In a file without a name, in the system's temporary folder, which is gone with the last table of
    // it.
    SampleTableWriter();
    ~SampleTableWriter();  // an unfinished file is removed
    SampleTableWriter(const SampleTableWriter&) = delete;
    SampleTableWriter& operator=(const SampleTableWriter&) = delete;

    // `full_tokens`: see SampleTable. Throws Error when the disk is full, naming the file and what to
    // change. Ids are 0 or more.
    void append(const Sample& sample, std::int64_t full_tokens);
    // On disk when this returns. Nothing can be appended afterwards.
    SampleTable finish(const ReadReport& report);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

// A table of these samples in an unnamed file, with a report of their counts: for small sets and tests.
SampleTable table_of(const std::vector<Sample>& samples);

}  // namespace garam
