// The memory of a step: one reservation, used as a stack from both ends.
//
// The low end holds what outlives the block that made it (the forward pushes, the backward rewinds);
// the high end holds scratch that ends with the op or block that took it. Nothing is ever freed
// singly: a mark taken before is rewound to. The peak is the largest sum of both ends, so a counting
// run of the same program on a dry device gives the exact size to reserve.
#pragma once

#include <array>
#include <cstdint>

#include "garam/runtime/device.h"

namespace garam {

class Arena {
  public:
    enum class End : std::uint8_t { low, high };
    struct Mark {
        std::int64_t low = 0;
        std::int64_t high = 0;
        std::array<std::int64_t, kPurposes> low_by{};
        std::array<std::int64_t, kPurposes> high_by{};
    };

    // Over memory reserved as Purpose::scratch in `device`; the arena itself tells what its bytes
    // are for. Uninitialised.
    Arena(Device& device, std::int64_t capacity);

    // Throws Bug when the reservation is exceeded: the plan did not cover this step.
    Tensor push(DType dtype, const Shape& shape, Purpose purpose) {
        return take(End::low, dtype, shape, purpose);
    }
    Tensor scratch(DType dtype, const Shape& shape, Purpose purpose = Purpose::scratch) {
        return take(End::high, dtype, shape, purpose);
    }

    Mark mark() const { return {low_, high_, low_by_, high_by_}; }
    void rewind(const Mark& mark);  // both ends
    // Rewinds only the high end, keeping what was pushed on the low end since.
    void rewind_scratch(const Mark& mark);

    std::int64_t used() const { return low_ + high_; }
    std::int64_t peak() const { return peak_; }
    const std::array<std::int64_t, kPurposes>& peak_by() const { return peak_by_; }
    std::int64_t capacity() const { return capacity_; }
    void reset_peak();

  private:
    Tensor take(End end, DType dtype, const Shape& shape, Purpose purpose);

    Buffer buffer_;
    DeviceKind kind_;
    std::int64_t capacity_;
    std::int64_t low_ = 0;
    std::int64_t high_ = 0;
    std::int64_t peak_ = 0;
    std::array<std::int64_t, kPurposes> low_by_{};
    std::array<std::int64_t, kPurposes> high_by_{};
    std::array<std::int64_t, kPurposes> peak_by_{};
};

// Rewinds the scratch end of an arena at the end of a scope.
class ScratchScope {
  public:
    explicit ScratchScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
    ~ScratchScope() { arena_.rewind_scratch(mark_); }
    ScratchScope(const ScratchScope&) = delete;
    ScratchScope& operator=(const ScratchScope&) = delete;

  private:
    Arena& arena_;
    Arena::Mark mark_;
};

}  // namespace garam
