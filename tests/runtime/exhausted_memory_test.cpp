// CASES 19: whichever memory is exhausted, the error names that pool and no other, what was wanted, what
// was free, and what to change; nothing is left behind.
#include <gtest/gtest.h>

#include "garam/core/error.h"
#include "testing/cards.h"

namespace garam {
namespace {

constexpr std::int64_t kPebibyte = std::int64_t{1} << 50;  // beyond every process's address space

class ExhaustedMemory : public ::testing::TestWithParam<DeviceProfile> {
  protected:
    std::unique_ptr<Device> device_ = make_device(GetParam());
};
GARAM_FOR_CPU_AND_WHOLE_CARDS(ExhaustedMemory);

template <typename Take>
std::string error_of(const Take& take) {
    try {
        take();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

void expect_parts(const std::string& error, const std::string& pool, std::int64_t wanted) {
    EXPECT_TRUE(error.starts_with(pool + ": ")) << error;
    for (const std::string& part :
         {std::to_string(wanted >> 20) + " MiB wanted", std::string(" free o"),
          std::string("train.per_device_train_batch_size"), std::string("end other programs")})
        EXPECT_NE(error.find(part), std::string::npos) << part << " in: " << error;
}

TEST_P(ExhaustedMemory, OfTheDeviceNamesPoolWantedFreeAndWhatToChange) {
    const bool card = GetParam().is_cuda();
    const std::int64_t wanted = card ? 2 * GetParam().memory_bytes : kPebibyte;
    const std::string error =
        error_of([&] { const Buffer buffer(*device_, wanted, Purpose::activations); });
    expect_parts(error, card ? "card memory" : "host memory", wanted);
    if (card) {
        EXPECT_NE(error.find(GetParam().name), std::string::npos) << error;
    }
    // The ledger and the device go on as if nothing had been asked.
    EXPECT_EQ(device_->memory().current, 0);
    EXPECT_EQ(device_->memory().peak, 0);
    const Buffer small(*device_, 1 << 20, Purpose::activations);
    EXPECT_EQ(device_->memory().current, 1 << 20);
}

TEST_P(ExhaustedMemory, PinnedIsNotTakenForTheCards) {
    const std::string error = error_of([&] { const PinnedBuffer buffer(*device_, kPebibyte); });
    expect_parts(error, GetParam().is_cuda() ? "pinned host memory" : "host memory", kPebibyte);
    EXPECT_EQ(error.find("card memory"), std::string::npos) << error;
    const PinnedBuffer small(*device_, 1 << 20);
    EXPECT_NE(small.raw(), nullptr);
}

}  // namespace
}  // namespace garam
