// What the cards of this machine do as devices; nothing where there is none.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "garam/core/error.h"
#include "garam/runtime/stream.h"
#include "testing/cards.h"

namespace garam {
namespace {

class CudaDevice : public ::testing::TestWithParam<DeviceProfile> {
  protected:
    CudaDevice() : device_(make_device(GetParam())), queue_(device_->open_queue()) {}
    ~CudaDevice() override { device_->close_queue(queue_); }

    std::unique_ptr<Device> device_;
    QueueHandle queue_;
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CudaDevice);
INSTANTIATE_TEST_SUITE_P(Cuda, CudaDevice, ::testing::ValuesIn(testing::cards()),
                         [](const auto& test) { return testing::card_name(test.param); });

std::vector<std::int32_t> counted(std::size_t count) {
    std::vector<std::int32_t> values(count);
    std::iota(values.begin(), values.end(), 1);
    return values;
}

TEST_P(CudaDevice, ProfileIsComplete) {
    const DeviceProfile& profile = device_->profile();
    EXPECT_TRUE(profile.is_cuda());
    EXPECT_FALSE(profile.name.empty());
    EXPECT_GE(profile.compute_capability, 80);
    EXPECT_GT(profile.multiprocessors, 0);
    EXPECT_GE(profile.shared_bytes, testing::kSmallSharedBytes);
    EXPECT_GT(profile.free_bytes, 0);
    EXPECT_LE(profile.free_bytes, profile.memory_bytes);
    EXPECT_TRUE(profile.fast_bf16);
    EXPECT_EQ(profile_of_device("cuda:" + std::to_string(profile.ordinal)).name, profile.name);
}

TEST_P(CudaDevice, RowsComeBackFromBetweenPads) {
    constexpr std::int64_t kRows = 5, kColumns = 3, kPitch = 7;  // i32
    const Buffer buffer(*device_, kRows * kPitch * 4, Purpose::scratch);
    const std::vector<std::int32_t> poison(kRows * kPitch, -1);
    device_->copy_in(queue_, buffer.raw(), poison.data(), kRows * kPitch * 4);
    const std::vector<std::int32_t> sent = counted(kRows * kColumns);
    device_->copy_rows_in(queue_, buffer.raw(), kPitch * 4, sent.data(), kColumns * 4, kRows);
    std::vector<std::int32_t> back(kRows * kColumns), all(kRows * kPitch);
    device_->copy_rows_out(queue_, back.data(), buffer.raw(), kPitch * 4, kColumns * 4, kRows);
    device_->copy_out(queue_, all.data(), buffer.raw(), kRows * kPitch * 4);
    device_->synchronize(queue_);
    EXPECT_EQ(back, sent);
    for (std::size_t i = 0; i < all.size(); ++i) {
        const std::size_t column = i % kPitch;
        EXPECT_EQ(all[i], column < kColumns ? sent[i / kPitch * kColumns + column] : -1);
    }
    device_->clear(queue_, buffer.raw(), kRows * kPitch * 4);
    device_->copy_out(queue_, all.data(), buffer.raw(), kRows * kPitch * 4);
    device_->synchronize(queue_);
    EXPECT_EQ(all, std::vector<std::int32_t>(kRows * kPitch, 0));
}

// Recorded work reads what its memory holds when it runs, and runs as often as it is enqueued.
TEST_P(CudaDevice, RecordedWorkReadsNewNumbers) {
    ASSERT_TRUE(device_->can_record());
    constexpr std::int64_t kBytes = 64;
    const PinnedBuffer in(*device_, kBytes);
    const PinnedBuffer out(*device_, kBytes);
    const Buffer buffer(*device_, kBytes, Purpose::scratch);
    std::memset(out.raw(), 0, kBytes);
    device_->begin_recording(queue_);
    device_->copy_in(queue_, buffer.raw(), in.raw(), kBytes);
    device_->copy_out(queue_, out.raw(), buffer.raw(), kBytes);
    const auto work = device_->end_recording(queue_);
    device_->synchronize(queue_);
    EXPECT_EQ(static_cast<char*>(out.raw())[5], 0) << "recording ran the work";
    for (const int value : {3, 4}) {
        std::memset(in.raw(), value, kBytes);
        work->enqueue(queue_);
        device_->synchronize(queue_);
        EXPECT_EQ(std::memcmp(in.raw(), out.raw(), kBytes), 0);
    }
}

TEST_P(CudaDevice, EventsOrderQueuesAndTellTime) {
    constexpr std::int64_t kBytes = std::int64_t{64} << 20;
    const Buffer buffer(*device_, kBytes, Purpose::scratch);
    const PinnedBuffer out(*device_, 256);
    const QueueHandle other = device_->open_queue();
    const auto begin = device_->make_event();
    const auto end = device_->make_event();
    std::memset(out.raw(), 1, 256);
    begin->record(queue_);
    for (int i = 0; i < 20; ++i)
        device_->clear(queue_, buffer.raw(), kBytes);
    end->record(queue_);
    end->wait_in(other);
    device_->copy_out(other, out.raw(), static_cast<char*>(buffer.raw()) + kBytes - 256, 256);
    device_->synchronize(other);
    EXPECT_EQ(static_cast<char*>(out.raw())[255], 0);
    EXPECT_GT(end->seconds_since(*begin), 20 * 64e6 / 100e12);
    EXPECT_LT(end->seconds_since(*begin), 10);
    device_->close_queue(other);
}

TEST_P(CudaDevice, ACardThatIsNotHereIsRefused) {
    try {
        profile_of_device("cuda:99");
        FAIL() << "there is no such card";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("device=cpu"), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace garam
