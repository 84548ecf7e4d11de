#include "garam/runtime/device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

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

TEST(DeviceDeathTest, DryMemoryMustNotBeTouched) {
    const auto device = make_dry_device(detect_cpu_profile());
    OwnedTensor tensor(*device, DType::f32, {1024}, Purpose::scratch);
    EXPECT_DEATH(*static_cast<volatile char*>(tensor.tensor.raw()) = 1, "");
}

std::string refusal_of_device(const std::string& name) {
    try {
        profile_of_device(name);
    } catch (const Error& error) {
        return error.what();
    }
    return "none";
}

TEST(ProfileOfDevice, NamesAndRefusals) {
    EXPECT_EQ(profile_of_device("cpu").kind, DeviceKind::cpu);
    EXPECT_EQ(profile_of_device("auto").is_cuda(), !detect_cuda_cards().cards.empty());
    for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "CUDA"})
        EXPECT_NE(refusal_of_device(name).find("is not one of auto, cpu, cuda, cuda:N"),
                  std::string::npos)
            << name;
    // One line that offers what works.
    for (const char* name : {"cuda", "cuda:99"}) {
        const std::string refusal = refusal_of_device(name);
        if (std::string(name) == "cuda" && refusal == "none") continue;
        EXPECT_NE(refusal.find("device=cpu runs on the processor"), std::string::npos) << refusal;
    }
}

}  // namespace
}  // namespace garam
