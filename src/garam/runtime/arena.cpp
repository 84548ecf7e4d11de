#include "garam/runtime/arena.h"

#include "garam/runtime/plan_too_large.h"

namespace garam {

Arena::Arena(Device& device, std::int64_t capacity)
    : buffer_(device, capacity, Purpose::scratch), kind_(device.kind()), capacity_(capacity) {}

Tensor Arena::take(End end, DType dtype, const Shape& shape, Purpose purpose) {
    const std::int64_t bytes =
        align_up(shape.elements() * static_cast<std::int64_t>(size_of(dtype)));
    const bool fits = low_ + high_ + bytes <= capacity_;
    if (!fits && kind_ == DeviceKind::dry)
        throw PlanTooLarge("plan: a step needs more than " + std::to_string(capacity_ >> 30) +
                           " GiB: take shorter sequences, or fewer at once");
    GARAM_CHECK(fits, "step memory: " + std::to_string(bytes) + " bytes for " + name_of(purpose) +
                          " " + shape.to_string() + " do not fit the " + std::to_string(capacity_) +
                          " planned, of which " + std::to_string(used()) + " are in use");
    std::int64_t offset = low_;
    if (end == End::low) {
        low_ += bytes;
        low_by_[static_cast<std::size_t>(purpose)] += bytes;
    } else {
        high_ += bytes;
        high_by_[static_cast<std::size_t>(purpose)] += bytes;
        offset = capacity_ / kAlignment * kAlignment - high_;
    }
    if (used() > peak_) {
        peak_ = used();
        for (std::size_t p = 0; p < peak_by_.size(); ++p)
            peak_by_[p] = low_by_[p] + high_by_[p];
    }
    return Tensor(static_cast<char*>(buffer_.raw()) + offset, dtype, shape, kind_);
}

void Arena::rewind(const Mark& mark) {
    GARAM_CHECK(mark.low <= low_ && mark.high <= high_, "arena rewound forwards");
    low_ = mark.low;
    low_by_ = mark.low_by;
    rewind_scratch(mark);
}

void Arena::rewind_scratch(const Mark& mark) {
    GARAM_CHECK(mark.high <= high_, "arena rewound forwards");
    high_ = mark.high;
    high_by_ = mark.high_by;
}

void Arena::reset_peak() {
    peak_ = used();
    for (std::size_t p = 0; p < peak_by_.size(); ++p)
        peak_by_[p] = low_by_[p] + high_by_[p];
}

}  // namespace garam
