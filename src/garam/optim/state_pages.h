// Optimiser states in pinned host memory that pass through a card a chunk at a time.
//
// The device holds kSlots chunks. One queue copies chunks in, ahead of the updates, another copies
// them out as soon as they are updated, so that both directions of the bus are busy; events order
// them with the stream. Nothing of a step is waited for at its end: the next step's copies in wait
// for its copies out.
//
// The calls of a step: begin(), then for each chunk in its order await(), what reads and writes it,
// done(). Copies are not metered: they run beside the ops. On a device without queues all is done
// at once.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "garam/runtime/stream.h"

namespace garam {

class StatePages {
  public:
    static constexpr std::int64_t kSlots = 3;

    // A part of the host memory, aligned to kAlignment.
    struct Piece {
        std::int64_t offset, bytes;
    };
    using Chunk = std::vector<Piece>;

    // Takes `bytes` of pinned host memory, all zero, and device memory of Purpose::optimizer for
    // the largest chunks. The device must outlive this. Throws Error when there is not that much.
    StatePages(Device& device, std::int64_t bytes, std::vector<Chunk> chunks);
    ~StatePages();
    StatePages(const StatePages&) = delete;
    StatePages& operator=(const StatePages&) = delete;

    // A view of the host memory.
    Tensor host(DType dtype, const Shape& shape, std::int64_t offset) const;
    // The host memory holds what the steps enqueued so far leave there.
    void settle();

    void begin(Stream& stream);
    // Where the pieces of a chunk lie on the device from now on in the stream.
    std::vector<void*> await(Stream& stream, std::int64_t chunk);
    void done(Stream& stream, std::int64_t chunk);

  private:
    struct Slot {
        std::unique_ptr<DeviceEvent> filled, updated, emptied;
    };
    Slot& slot_of(std::int64_t chunk) { return slots_[static_cast<std::size_t>(chunk % kSlots)]; }
    std::vector<void*> places(std::int64_t chunk) const;
    void fill(Stream& stream, std::int64_t chunk);

    Device& device_;
    std::vector<Chunk> chunks_;
    PinnedBuffer host_;
    std::int64_t slot_bytes_ = 0;
    Buffer staging_;
    QueueHandle in_ = nullptr;
    QueueHandle out_ = nullptr;
    std::array<Slot, kSlots> slots_;
    std::unique_ptr<DeviceEvent> all_out_;  // what is enqueued in out_
};

}  // namespace garam
