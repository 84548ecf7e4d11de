// Cuts samples into the micro-batches of optimiser steps.
//
// A unit is one sample, or with packing one bin of samples (packing.h). Each epoch holds every unit
// once, in an order of its own when shuffled. A micro-batch is `rows_per_micro_batch` units, a step
// `micro_batches_per_step` micro-batches; the last ones of an epoch hold what is left, so that a
// step never reaches into the next epoch. Steps are counted as Transformers counts them:
// ceil(ceil(units / rows_per_micro_batch) / micro_batches_per_step) an epoch.
//
// Several processes that train together have each a loader of the same samples and options but `rank`: the
// micro-batches of a step are dealt to them one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "garam/core/token_batch.h"
#include "garam/data/packing.h"
#include "garam/data/samples/sample_selection.h"

namespace garam {

struct LoaderOptions {
    std::int64_t rows_per_micro_batch = 8;
    std::int64_t micro_batches_per_step = 1;
    std::int64_t max_length = 1024;  // tokens of a bin; used by packing only
    bool packing = false;
    bool shuffle = true;
    std::uint64_t seed = 42;
    // Without packing: samples of similar length come together.
    bool group_by_length = false;
    // Of the processes that share each step; the other members are of all of them together.
    std::int64_t rank = 0;
    std::int64_t world_size = 1;
};

class Loader {
  public:
    // Keeps no more than some bytes a sample. Throws Error when there are none, an option is out of
    // range or a micro-batch would hold more than 2^31 - 1 tokens.
    Loader(SampleSelection samples, const LoaderOptions& options);

    // The same in every epoch, packed too: bins depend on lengths only.
    std::int64_t steps_per_epoch() const { return steps_; }
    std::int64_t micro_batches_per_epoch() const { return micro_batches_; }
    std::int64_t units() const { return units_; }
    // Share of the bins' room that holds tokens; 1 without packing.
    double packing_efficiency() const;

    struct Position {
        std::int64_t epoch = 0;
        std::int64_t step = 0;  // within the epoch
    };
    // `step` counts from 0 over all epochs.
    Position position(std::int64_t step) const;
    // The epoch as Transformers logs it once this step is done: 1.5 is half of the second one.
    double epoch_at(std::int64_t step) const;

    // This rank's micro-batches of a step, none where the last one of an epoch has fewer than
    // ranks: a pure function of its number, whatever was asked before, so that a resumed run needs
    // no state. May be called from several threads.
    std::vector<TokenBatch> step(std::int64_t step) const;

    // The micro-batches of a step of all ranks, without their tokens.
    struct Shape {
        std::int64_t units = 0;
        std::int64_t tokens = 0;
        std::int64_t longest = 0;  // tokens of a sample
    };
    std::vector<Shape> shapes(std::int64_t step) const;

    // No micro-batch of any epoch is larger. `tokens`, `longest` and `samples` are reached by some
    // order; `targets` is a bound that packing need not reach.
    struct Largest {
        std::int64_t tokens = 0;
        std::int64_t longest = 0;
        std::int64_t samples = 0;
        std::int64_t targets = 0;
    };
    const Largest& largest() const { return largest_; }

  private:
    struct Epoch {
        std::vector<std::uint32_t> order;  // of the units; without packing, of the samples
        Bins bins;                         // with packing
    };
    std::shared_ptr<const Epoch> epoch(std::int64_t number) const;
    Epoch arrange(std::int64_t number) const;
    void group_by_length(std::vector<std::uint32_t>& order) const;
    Largest find_largest() const;

    SampleSelection samples_;
    LoaderOptions options_;
    std::optional<PackedLayout> layout_;
    std::int64_t units_ = 0;
    std::int64_t micro_batches_ = 0;
    std::int64_t steps_ = 0;
    Largest largest_;

    mutable std::mutex lock_;
    // Two, as the steps that are prepared ahead may lie on both sides of an epoch's end; the last used first.
    using NumberedEpoch = std::pair<std::int64_t, std::shared_ptr<const Epoch>>;
    mutable std::vector<NumberedEpoch> cached_;
};

// All samples in their order, as many to a batch as fit `max_tokens`; a longer sample
// has a batch of its own.
std::vector<TokenBatch> evaluation_batches(const SampleSelection& samples, std::int64_t max_tokens);

}  // namespace garam
