#include "garam/models/block_offload.h"

#include <algorithm>

namespace garam {

BlockOffload::BlockOffload(Device& device, std::int64_t bytes)
    : device_(device),
      host_(device, bytes),
      copies_(device.open_queue()),
      computed_(device.make_event()) {
    for (std::unique_ptr<DeviceEvent>& event : copied_)
        event = device.make_event();
}

void BlockOffload::begin(Stream& stream, DType dtype, const Shape& input, std::int64_t blocks) {
    blocks_ = blocks;
    slots_.clear();
    for (std::int64_t slot = 0; slot < std::min(kSlots, blocks + 1); ++slot)
        slots_.push_back(stream.arena().push(dtype, input, Purpose::activations));
    const std::int64_t leaving = std::max<std::int64_t>(blocks + 1 - kSlots, 0);
    const std::int64_t needed = leaving * align_up(slots_[0].bytes());
    if (stream.is_dry() && needed > host_.bytes()) {
        host_ = PinnedBuffer();
        host_ = PinnedBuffer(device_, needed);
    }
    GARAM_CHECK(needed <= host_.bytes(), "inputs of blocks: " + std::to_string(needed) +
                                             " bytes do not fit the " +
                                             std::to_string(host_.bytes()) + " planned");
}

void* BlockOffload::host_place(std::int64_t block) const {
    return static_cast<char*>(host_.raw()) + block * align_up(slots_[0].bytes());
}

void BlockOffload::follow(Stream& stream) {
    if (!computed_) return;
    computed_->record(stream.queue());
    computed_->wait_in(copies_);
}

Tensor BlockOffload::place(Stream& stream, std::int64_t block) {
    const std::size_t slot = slot_of(block);
    if (block >= kSlots && copied_[slot]) copied_[slot]->wait_in(stream.queue());
    return slots_[slot];
}

void BlockOffload::written(Stream& stream, std::int64_t block) {
    if (!leaves(block) || stream.is_dry()) return;
    const std::size_t slot = slot_of(block);
    follow(stream);
    device_.copy_out(copies_, host_place(block), slots_[slot].raw(), slots_[slot].bytes());
    if (copied_[slot]) copied_[slot]->record(copies_);
}

void BlockOffload::await(Stream& stream, std::int64_t block) {
    const std::size_t slot = slot_of(block);
    if (leaves(block) && copied_[slot]) copied_[slot]->wait_in(stream.queue());
}

void BlockOffload::done(Stream& stream, std::int64_t block) {
    const std::int64_t next = block - kSlots;
    if (next < 0 || stream.is_dry()) return;
    const std::size_t slot = slot_of(next);
    follow(stream);
    device_.copy_in(copies_, slots_[slot].raw(), host_place(next), slots_[slot].bytes());
    if (copied_[slot]) copied_[slot]->record(copies_);
}

}  // namespace garam
