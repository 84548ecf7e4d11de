#include "garam/quant/dynamic_map.h"

#include <algorithm>
#include <cmath>

namespace garam {
namespace {

constexpr int kExponents = 7;

// Point `i` of `count` equally spaced ones in [0.1, 1], counted from the nearer end and rounded once as
// torch.linspace does.
float boundary(int i, int count) {
    const float step = (1.0f - 0.1f) / static_cast<float>(count - 1);
    return i < count / 2 ? std::fma(step, static_cast<float>(i), 0.1f)
                         : std::fma(-step, static_cast<float>(count - 1 - i), 1.0f);
}

DynamicMap make_map(bool with_sign) {
    DynamicMap map{};
    std::size_t filled = 0;
    for (int e = 0; e < kExponents; ++e) {
        const int intervals = 1 << (with_sign ? e : e + 1);
        const auto scale = static_cast<float>(std::pow(10.0, e - (kExponents - 1)));
        for (int i = 0; i < intervals; ++i) {
            const float mean = (boundary(i, intervals + 1) + boundary(i + 1, intervals + 1)) / 2.0f;
            map[filled++] = scale * mean;
            if (with_sign) map[filled++] = -scale * mean;
        }
    }
    map[filled++] = 0.0f;
    map[filled++] = 1.0f;
    std::sort(map.begin(), map.end());
    return map;
}

}  // namespace

const DynamicMap& signed_dynamic_map() {
    static const DynamicMap map = make_map(true);
    return map;
}

const DynamicMap& unsigned_dynamic_map() {
    static const DynamicMap map = make_map(false);
    return map;
}

std::uint8_t nearest_code(const DynamicMap& map, float x) {
    // The number of codes below x: lower is the last of them, upper the first that is not.
    unsigned upper = 0;
    for (unsigned step = 128; step > 0; step /= 2)
        upper += step * static_cast<unsigned>(x > map[upper + step - 1]);
    upper += static_cast<unsigned>(x > map[upper]);
    if (upper == 0) return 0;
    if (upper == 256) return 255;
    const unsigned lower = upper - 1;
    const float midpoint = (map[lower] + map[upper]) * 0.5f;
    const bool takes_upper = x > midpoint || (x == midpoint && upper % 2 == 0);
    return static_cast<std::uint8_t>(takes_upper ? upper : lower);
}

}  // namespace garam
