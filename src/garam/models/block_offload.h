// The inputs of a decoder's blocks between forward and backward, where these are kept in pinned host memory
// (Recompute::offload).
//
// A device holds kSlots of them: that of block l lies in slot l % kSlots. A second queue copies an input
// out while the blocks behind it compute, and in the backward back into its slot as soon as the block that
// was there is done, kSlots - 1 blocks ahead of its use. The last kSlots - 1 inputs never leave, nor does
// the output of the last block. Events order the two queues, so that a pass can be recorded: all that the
// second queue is given in a pass, the first one waits for within it.
//
// The calls of a pass, for L blocks: begin(); place(0), written(0); for l = 0 .. L - 1: place(l + 1),
// block l, written(l + 1); when the output was used, done(L); for l = L - 1 .. 0: await(l), the backward
// of block l, done(l). Copies are not metered: they run beside the ops.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "garam/runtime/stream.h"

namespace garam {

class BlockOffload {
  public:
    static constexpr std::int64_t kSlots = 2;

    // Reserves `bytes` of pinned host memory; a dry device instead takes what its passes need. The device
    // must outlive this. Throws Error when there is not that much.
    BlockOffload(Device& device, std::int64_t bytes);
    ~BlockOffload() { device_.close_queue(copies_); }
    BlockOffload(const BlockOffload&) = delete;
    BlockOffload& operator=(const BlockOffload&) = delete;

    std::int64_t bytes() const { return host_.bytes(); }

    // A pass of `blocks` blocks with inputs of this shape. Slots lie on the arena's low end until the
    // caller rewinds it, which must not be before the pass is over.
    void begin(Stream& stream, DType dtype, const Shape& input, std::int64_t blocks);
    // Where the input of block `block` is to be written.
    Tensor place(Stream& stream, std::int64_t block);
    void written(Stream& stream, std::int64_t block);
    // The input is where it was written.
    void await(Stream& stream, std::int64_t block);
    // Nothing enqueued later reads it.
    void done(Stream& stream, std::int64_t block);

  private:
    // Whether the input leaves the device.
    bool leaves(std::int64_t block) const { return block + kSlots <= blocks_; }
    std::size_t slot_of(std::int64_t block) const {
        return static_cast<std::size_t>(block % kSlots);
    }
    void* host_place(std::int64_t block) const;
    void follow(Stream& stream);  // the copies enqueued next

    Device& device_;
    PinnedBuffer host_;
    QueueHandle copies_;
    std::unique_ptr<DeviceEvent> computed_;
    std::array<std::unique_ptr<DeviceEvent>, kSlots> copied_;  // the last copy of each slot
    std::vector<Tensor> slots_;
    std::int64_t blocks_ = 0;
};

}  // namespace garam
