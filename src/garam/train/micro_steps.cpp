#include "garam/train/micro_steps.h"

#include <vector>

namespace garam {

void MicroSteps::copy(const TokenBatch& batch, std::uint32_t steps_done, DeviceBatch& device) {
    if (stream_.is_dry()) {
        std::vector<std::byte> unread(static_cast<std::size_t>(device.memory.bytes()));
        lay_out_batch(batch, model_.batch_place(steps_done), device, unread.data());
        return;
    }
    Slot& slot = ring_[next_];
    next_ = (next_ + 1) % ring_.size();
    if (slot.copied) slot.copied->synchronize();
    if (slot.bytes.bytes() < device.memory.bytes())
        slot.bytes = PinnedBuffer(device_, device.memory.bytes());
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

    Shape& shape = shapes_[device.shape];
    if (shape.work && records_) {
        shape.work->enqueue(stream_.queue());
    } else if (shape.was_run && records_ && !shape.work && device_.can_record()) {
        device_.begin_recording(stream_.queue());
        model_.train_step(stream_, device, pass, loss_sum);
        shape.work = device_.end_recording(stream_.queue());
        shape.work->enqueue(stream_.queue());
    } else {
        // Also loads kernels and chooses algorithms, which is not for a recording.
        model_.train_step(stream_, device, pass, loss_sum);
        shape.was_run = true;
    }
    arena.rewind(start);
}

}  // namespace garam
