// Which samples of the sources are trained on and which are held out.
#pragma once

#include <cstdint>
#include <vector>

#include "garam/data/read_samples.h"
#include "garam/data/sample_table.h"

namespace garam {

// Samples of one source, by number; one that comes twice is there twice.
using Chosen = std::vector<std::int64_t>;

// Those of an epoch: without the rows that `held_out_fraction` holds out, `weights` times each (empty: once).
// Of a fraction the samples are drawn by seed. One list a source.
std::vector<Chosen> training_samples(const std::vector<SourceSamples>& sources,
                                     const std::vector<double>& weights, double held_out_fraction,
                                     std::uint64_t seed);
std::vector<Chosen> held_out_samples(const std::vector<SourceSamples>& sources, double fraction,
                                     std::uint64_t seed);

// All chosen samples in one table, in the order of the sources: the table itself where there is one source
// that gives all, else in an unnamed file. Its report joins those of the sources, with the counts of what is
// in it. Throws Error when nothing is.
SourceSamples joined(const std::vector<SourceSamples>& sources, const std::vector<Chosen>& chosen);
SourceSamples joined(const std::vector<SourceSamples>& sources);

}  // namespace garam
