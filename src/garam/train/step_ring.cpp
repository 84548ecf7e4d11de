#include "garam/train/step_ring.h"

#include <algorithm>
#include <utility>

#include "garam/runtime/transfer.h"

namespace garam {

StepRing::StepRing(Device& device) : dry_(device.kind() == DeviceKind::dry) {
    if (device.profile().is_cuda())
        pinned_ = PinnedBuffer(device, static_cast<std::int64_t>(sizeof(plain_)));
    for (Slot& slot : slots_)
        slot.passed = device.make_event();
}

float* StepRing::numbers_of(std::size_t slot) {
    float* const all =
        pinned_.raw() != nullptr ? static_cast<float*>(pinned_.raw()) : plain_.data();
    return all + slot * kNumbers;
}

void StepRing::push(Stream& stream, Step step, const Tensor& numbers) {
    GARAM_CHECK(!full() && numbers.elements() == kNumbers, "a full ring of steps");
    const std::size_t at = (first_ + count_++) % kSteps;
    slots_[at].step = std::move(step);
    copy_to_host_later(stream, numbers, numbers_of(at));
    if (slots_[at].passed) slots_[at].passed->record(stream.queue());
}

StepRing::Step StepRing::pop() {
    GARAM_CHECK(!empty(), "no step in the ring");
    const std::size_t at = first_;
    if (slots_[at].passed) slots_[at].passed->synchronize();
    first_ = (first_ + 1) % kSteps;
    --count_;
    Step step = std::move(slots_[at].step);
    if (!dry_) std::copy_n(numbers_of(at), kNumbers, step.numbers.begin());
    return step;
}

}  // namespace garam
