// What optimiser steps leave on the device for the host (sums, norms), on its way there: each step's numbers
// are copied into a ring of pinned memory behind the step, and read when they are asked for, so that the
// host need not wait for one step before it enqueues the next.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "garam/core/token_batch.h"
#include "garam/runtime/stream.h"

namespace garam {

class StepRing {
  public:
    static constexpr std::size_t kSteps = 16;
    static constexpr std::int64_t kNumbers = 2;

    // A step as the host knows it, and its numbers once they have arrived.
    struct Step {
        std::int64_t steps_done = 0;  // before it
        std::int64_t targets = 0;
        std::vector<TokenBatch> micro_batches;
        std::array<float, kNumbers> numbers{};
    };

    // The device must outlive the ring.
    explicit StepRing(Device& device);

    bool empty() const { return count_ == 0; }
    bool full() const { return count_ == kSteps; }
    // Follows all that `stream` was given: what is enqueued before is done once the step is popped.
    // `numbers` f32 [kNumbers]; the ring must not be full.
    void push(Stream& stream, Step step, const Tensor& numbers);
    // Waits for the oldest step and takes it out. On a dry device its numbers are 0.
    Step pop();
    void clear() { count_ = 0; }

  private:
    struct Slot {
        Step step;
        std::unique_ptr<DeviceEvent> passed;  // none where work is done at once
    };
    float* numbers_of(std::size_t slot);

    PinnedBuffer pinned_;  // on a card
    std::array<float, kSteps * kNumbers> plain_{};
    bool dry_;
    std::array<Slot, kSteps> slots_;
    std::size_t first_ = 0;
    std::size_t count_ = 0;
};

}  // namespace garam
