#include "garam/runtime/arena.h"

#include <gtest/gtest.h>

#include "garam/runtime/plan_too_large.h"

namespace garam {
namespace {

TEST(Arena, BothEndsShareOneReservation) {
    const auto device = make_cpu_device();
    Arena arena(*device, 4096);
    const Tensor kept = arena.push(DType::f32, {64}, Purpose::activations);  // 256 bytes
    const auto mark = arena.mark();
    {
        const ScratchScope scope(arena);
        const Tensor scratch = arena.scratch(DType::f32, {128});  // 512
        EXPECT_NE(kept.raw(), scratch.raw());
        EXPECT_EQ(arena.used(), 768);
        arena.push(DType::u8, {1}, Purpose::logits);  // rounds up to 256
    }
    EXPECT_EQ(arena.used(), 512);
    EXPECT_EQ(arena.peak(), 1024);
    EXPECT_EQ(arena.peak_by()[static_cast<int>(Purpose::activations)], 256);
    EXPECT_EQ(arena.peak_by()[static_cast<int>(Purpose::scratch)], 512);
    EXPECT_EQ(arena.peak_by()[static_cast<int>(Purpose::logits)], 256);
    arena.rewind(mark);
    EXPECT_EQ(arena.used(), 256);
    EXPECT_THROW(arena.push(DType::u8, {4096}, Purpose::scratch), Bug);
}

TEST(Arena, PlansBeyondTheDryOneAreAnErrorOfTheirOwn) {
    const auto dry = make_dry_device(make_cpu_device()->profile());
    Arena arena(*dry, std::int64_t{1} << 30);
    arena.push(DType::u8, {1 << 29}, Purpose::activations);
    EXPECT_THROW(arena.push(DType::u8, {(1 << 29) + 1}, Purpose::activations), PlanTooLarge);
    EXPECT_EQ(arena.used(), 1 << 29);
}

TEST(Arena, SameLayoutOnADryDevice) {
    const auto cpu = make_cpu_device();
    const auto dry = make_dry_device(cpu->profile());
    Arena real(*cpu, 8192);
    Arena counted(*dry, std::int64_t{1} << 40);
    for (Arena* arena : {&real, &counted}) {
        arena->push(DType::bf16, {3, 100}, Purpose::activations);
        const ScratchScope scope(*arena);
        arena->scratch(DType::f32, {17, 5});
    }
    EXPECT_EQ(real.peak(), counted.peak());
}

}  // namespace
}  // namespace garam
