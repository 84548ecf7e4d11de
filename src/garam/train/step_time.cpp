#include "garam/train/step_time.h"

#include <algorithm>

namespace garam {
namespace {

constexpr double kIdleTokens = 1.44;  // a multiprocessor
constexpr double kLaunchSeconds = 2e-6;
constexpr double kExposed = 0.5;
constexpr double kAttention = 0.45;  // of the products' rate

struct Rates {
    double flops = 0;      // bf16 products, a second
    double bandwidth = 0;  // bytes a second
    double copies = 0;     // to or from pinned memory
};

Rates rates_of(const DeviceProfile& profile) {
    if (!profile.is_cuda()) return {50e9 * profile.threads, 20e9, 20e9};
    Rates each{0.9e12, 9e9};  // of a multiprocessor, 8.6
    if (profile.compute_capability >= 90) each = {5.8e12, 22e9};
    if (profile.compute_capability >= 100) each = {8e12, 40e9};
    if (profile.compute_capability >= 120) each = {1.2e12, 10e9};
    if (profile.compute_capability == 89) each = {1.3e12, 8e9};
    if (profile.compute_capability == 80) each = {2.4e12, 14e9};
    const double count = std::max(profile.multiprocessors, 1);
    // PCIe 5.0, or 4.0 of which small cards have eight lanes.
    const double copies = profile.compute_capability >= 90 ? 25e9 : 12e9;
    return {each.flops * count, each.bandwidth * count, copies};
}

}  // namespace

double StepTime::seconds() const {
    return std::max(ops + kExposed * decoding, copies);
}

StepTime step_time(const DeviceProfile& profile, const Meter::Table& ops, std::int64_t tokens) {
    const Rates rates = rates_of(profile);
    StepTime time;
    double launches = 0;
    for (const auto& [name, entry] : ops) {
        const bool is_attention =
            name.second == "attention_forward" || name.second == "attention_backward";
        const double rate =
            profile.is_cuda() && is_attention ? kAttention * rates.flops : rates.flops;
        const double seconds =
            std::max(entry.cost.flops / rate,
                     (entry.cost.bytes_read + entry.cost.bytes_written) / rates.bandwidth);
        if (name.second == "dequantize") {
            time.decoding += seconds;
        } else {
            time.ops += seconds;
            launches += static_cast<double>(entry.calls);
        }
    }
    if (profile.is_cuda()) {
        time.ops *= 1 + kIdleTokens * profile.multiprocessors /
                            static_cast<double>(std::max<std::int64_t>(tokens, 1));
        time.ops += launches * kLaunchSeconds;
    }
    return time;
}

double copy_seconds(const DeviceProfile& profile, double bytes) {
    return bytes / rates_of(profile).copies;
}

}  // namespace garam
