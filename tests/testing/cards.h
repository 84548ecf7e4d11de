// The cards that tests run on besides the processor; none where there is none, or no CUDA in the build.
// Names of such cases contain "Cuda".
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "garam/runtime/device.h"

namespace garam::testing {

// What a block may have on cards of compute capability 8.6, 8.9 and 12.0: kernels must do with it.
constexpr std::int64_t kSmallSharedBytes = std::int64_t{99} << 10;

// Each card as it is.
inline const std::vector<DeviceProfile>& cards() {
    static const std::vector<DeviceProfile> kCards = detect_cuda_cards().cards;
    return kCards;
}

// Each card, and again as if its blocks had less shared memory.
inline std::vector<DeviceProfile> card_profiles() {
    std::vector<DeviceProfile> profiles;
    for (DeviceProfile card : cards()) {
        profiles.push_back(card);
        if (card.shared_bytes <= kSmallSharedBytes) continue;
        card.shared_bytes = kSmallSharedBytes;
        profiles.push_back(card);
    }
    return profiles;
}

// cuda, cuda_99k; cuda1, cuda1_99k.
inline std::string card_name(const DeviceProfile& card) {
    return "cuda" + (card.ordinal == 0 ? "" : std::to_string(card.ordinal)) +
           (card.shared_bytes == kSmallSharedBytes ? "_99k" : "");
}

// As a user names it: cpu, cuda:0.
inline std::string device_key(const DeviceProfile& profile) {
    return profile.is_cuda() ? "cuda:" + std::to_string(profile.ordinal) : "cpu";
}

}  // namespace garam::testing

// For suites with a DeviceProfile as parameter: the processor as it is, and each of the profiles.
#define GARAM_FOR_CPU_AND(profiles, suite)                                                      \
    INSTANTIATE_TEST_SUITE_P(Cpu, suite, ::testing::Values(::garam::detect_cpu_profile()),      \
                             [](const auto&) { return std::string("cpu"); });                   \
    INSTANTIATE_TEST_SUITE_P(Cuda, suite, ::testing::ValuesIn(profiles), [](const auto& test) { \
        return ::garam::testing::card_name(test.param);                                         \
    })
#define GARAM_FOR_CPU_AND_CARDS(suite) GARAM_FOR_CPU_AND(::garam::testing::card_profiles(), suite)
// Each card only as it is: for jobs, which name their device.
#define GARAM_FOR_CPU_AND_WHOLE_CARDS(suite) GARAM_FOR_CPU_AND(::garam::testing::cards(), suite)
