#include "garam/runtime/device.h"

#include <gtest/gtest.h>

#include <cstring>

namespace garam {
namespace {

TEST(Device, LedgerSplitsThePeakByPurpose) {
    const auto device = make_cpu_device();
    {
        Buffer weights(*device, 1000, Purpose::weights);  // 1024
        {
            OwnedTensor gradient(*device, DType::f32, {256}, Purpose::gradients);  // 1024
            std::memset(gradient.tensor.raw(), 1, 1024);
        }
        OwnedTensor state(*device, DType::u8, {256}, Purpose::optimizer);
        EXPECT_EQ(device->memory().current, 1280);
    }
    EXPECT_EQ(device->memory().current, 0);
    EXPECT_EQ(device->memory().peak, 2048);
    EXPECT_EQ(device->memory().peak_by[static_cast<int>(Purpose::gradients)], 1024);
    EXPECT_EQ(device->memory().peak_by[static_cast<int>(Purpose::optimizer)], 0);
}

TEST(Device, HostMemoryThatIsNotThereIsAnError) {
    const auto device = make_cpu_device();
    EXPECT_THROW(device->allocate(std::int64_t{1} << 60, Purpose::scratch), Error);
    EXPECT_EQ(device->memory().current, 0);
}

TEST(DeviceDeathTest, DryMemoryMustNotBeTouched) {
    const auto device = make_dry_device(detect_cpu_profile());
    OwnedTensor tensor(*device, DType::f32, {1024}, Purpose::scratch);
    EXPECT_DEATH(*static_cast<volatile char*>(tensor.tensor.raw()) = 1, "");
}

}  // namespace
}  // namespace garam
