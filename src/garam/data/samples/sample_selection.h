// Which samples of which tables a run goes through. All of a table costs no memory, some of it four bytes a
// sample.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "garam/core/token_batch.h"
#include "garam/data/samples/sample_table.h"

namespace garam {

// A place in the data: passes over one table, one behind the other.
class SampleSelection {
  public:
    SampleSelection() = default;         // of nothing
    SampleSelection(SampleTable table);  // all of it, once

    std::int64_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    std::int64_t tokens(std::int64_t i) const;
    std::int64_t targets(std::int64_t i) const;
    // Keys dropout: the row, numbered on through all passes, so that no two samples share it. Of a single
    // table that is taken once, its rows.
    std::int64_t id(std::int64_t i) const;
    void append_to(TokenBatch& batch, std::int64_t i) const;

    struct Origin {
        std::int64_t source = 0;  // number of the table, from 0
        std::int64_t row = 0;
    };
    Origin origin(std::int64_t id) const;

    // As of a table: of a single one that is taken once, the table's.
    std::uint64_t fingerprint() const;

    // Samples of a table, ascending; null: all.
    using Indices = std::shared_ptr<const std::vector<std::uint32_t>>;
    // Adds a pass. Throws Error when the table has more samples than 32 bits count.
    void add(const SampleTable& table, std::int64_t source, Indices indices = nullptr);

  private:
    struct Part {
        SampleTable table;
        Indices indices;
        std::int64_t source = 0;
        std::int64_t begin = 0;     // first place
        std::int64_t first_id = 0;  // of its row 0
    };
    struct Place {
        const Part* part;
        std::int64_t sample;
    };
    Place place(std::int64_t i) const;

    std::vector<Part> parts_;
    std::int64_t size_ = 0;
    std::int64_t ids_ = 0;
};

struct WeightedTable {
    SampleTable table;
    // Passes over its samples an epoch. Of a fraction, that share of them is taken, chosen once by the
    // seed: 2.5 takes each twice and every other one once more.
    double weight = 1;
};

struct SampleSplit {
    SampleSelection training;
    SampleSelection held_out;  // each sample once, whatever its weight
};

// Throws Error when a weight is out of range. `seed`: the run's.
SampleSelection select_samples(const std::vector<WeightedTable>& tables, std::uint64_t seed);
// `fraction` of each table, at least one sample of all and never all, is held out: drawn by the seed and by
// nothing else, and never trained on. Throws Error when it is not between 0 and 1.
SampleSplit hold_out(const std::vector<WeightedTable>& tables, double fraction, std::uint64_t seed);

}  // namespace garam
