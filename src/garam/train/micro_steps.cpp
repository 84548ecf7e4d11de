#include "garam/train/micro_steps.h"

#include <algorithm>
#include <vector>

namespace garam {

bool ShapesToRecord::worth_recording(const BatchShape& shape) {
    if (recorded_ == kMost || seen_.insert(shape).second || largest_ > bytes_left_) return false;
    ++recorded_;
    return true;
}

void ShapesToRecord::took(std::int64_t bytes) {
    bytes_left_ -= bytes;
    largest_ = recorded_ == 1 ? bytes : std::max(largest_, bytes);
}

MicroSteps::MicroSteps(Device& device, Stream& stream, Decoder& model, std::int64_t batch_bytes,
                       std::int64_t recorded_bytes)
    : device_(device),
      stream_(stream),
      model_(model),
      base_(stream.arena().used()),
      to_record_(recorded_bytes) {
    for (Slot& slot : ring_)
        reserve(slot, batch_bytes);
}

void MicroSteps::reserve(Slot& slot, std::int64_t bytes) {
    if (slot.bytes.bytes() >= bytes) return;
    slot.bytes = PinnedBuffer();
    slot.bytes = PinnedBuffer(device_, bytes);
}

void MicroSteps::copy(const TokenBatch& batch, std::uint32_t steps_done, DeviceBatch& device) {
    if (stream_.is_dry()) {
        for (Slot& slot : ring_)
            reserve(slot, device.memory.bytes());
        std::vector<std::byte> unread(static_cast<std::size_t>(device.memory.bytes()));
        lay_out_batch(batch, model_.batch_place(steps_done), device, unread.data());
        return;
    }
    Slot& slot = ring_[next_];
    next_ = (next_ + 1) % ring_.size();
    if (slot.copied) slot.copied->synchronize();
    reserve(slot, device.memory.bytes());
    lay_out_batch(batch, model_.batch_place(steps_done), device,
                  static_cast<std::byte*>(slot.bytes.raw()));
    device_.copy_in(stream_.queue(), device.memory.raw(), slot.bytes.raw(), device.memory.bytes());
    if (!slot.copied) slot.copied = device_.make_event();
    slot.copied->record(stream_.queue());
}

void MicroSteps::run(const TokenBatch& batch, const TrainingPass& pass, const Tensor& loss_sum) {
    if (!stream_.is_for_cuda()) {
        model_.train_step(stream_, batch, pass, loss_sum);
        return;
    }
    model_.check_batch(batch);
    if (batch.num_targets() == 0) return;
    Arena& arena = stream_.arena();
    GARAM_CHECK(arena.used() == base_, "step memory in use between micro-steps");
    const Arena::Mark start = arena.mark();
    DeviceBatch device = reserve_batch(stream_, shared_shape(shape_of(batch)));
    copy(batch, pass.step, device);

    const bool records = records_ && device_.can_record();
    const auto found = recorded_.find(device.shape);
    if (records && found != recorded_.end()) {
        found->second->enqueue(stream_.queue());
    } else if (records && to_record_.worth_recording(device.shape)) {
        const std::int64_t free = device_.free_memory();
        device_.begin_recording(stream_.queue());
        model_.train_step(stream_, device, pass, loss_sum);
        auto& work = recorded_[device.shape] = device_.end_recording(stream_.queue());
        work->enqueue(stream_.queue());
        to_record_.took(std::max<std::int64_t>(free - device_.free_memory(), 0));
    } else {
        // Also loads kernels and chooses algorithms, which is not for a recording.
        model_.train_step(stream_, device, pass, loss_sum);
    }
    arena.rewind(start);
}

}  // namespace garam
