#include "garam/quant/dynamic_map.h"

#include <algorithm>
#include <iterator>

#include "garam/core/dynamic_code_tables.h"

namespace garam {

const DynamicMap& signed_dynamic_map() {
    static const DynamicMap map = [] {
        DynamicMap values{};
        std::copy(std::begin(kSignedDynamicCode.value), std::end(kSignedDynamicCode.value),
                  values.begin());
        return values;
    }();
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
