#include "garam/serve/stop_strings.h"

#include <algorithm>
#include <utility>

#include "garam/core/error.h"

namespace garam {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
    for (const std::string& stop : stops_) {
        if (stop.empty()) throw Error("a stop string is empty");
    }
}

std::string StopStrings::push(std::string_view text) {
    if (stopped_) return {};
    held_ += text;
    // The one that is complete first, however the text was cut; of several the longest.
    std::size_t first = std::string::npos;
    std::size_t first_end = std::string::npos;
    for (const std::string& stop : stops_) {
        const std::size_t begin = held_.find(stop);
        if (begin == std::string::npos) continue;
        const std::size_t end = begin + stop.size();
        if (end > first_end || (end == first_end && begin > first)) continue;
        first = begin;
        first_end = end;
    }
    if (first != std::string::npos) {
        stopped_ = true;
        return std::exchange(held_, {}).substr(0, first);
    }
    // The longest end of the text that begins a stop string.
    std::size_t hold = 0;
    for (const std::string& stop : stops_) {
        for (std::size_t length = std::min(stop.size() - 1, held_.size()); length > hold;
             --length) {
            if (held_.ends_with(std::string_view(stop).substr(0, length))) hold = length;
        }
    }
    std::string certain = held_.substr(0, held_.size() - hold);
    held_.erase(0, certain.size());
    return certain;
}

std::string StopStrings::flush() {
    return std::exchange(held_, {});
}

}  // namespace garam
