#include "garam/data/samples/fingerprint.h"

namespace garam {

void Fingerprint::add(const Sample& sample) {
    add(static_cast<std::uint64_t>(sample.row));
    add(sample.ids.size());
    for (std::size_t t = 0; t < sample.ids.size(); ++t) {
        add(static_cast<std::uint32_t>(sample.ids[t]));
        add(static_cast<std::uint32_t>(sample.labels[t]));
    }
}

// A final mix, so that late words reach all bits.
std::uint64_t Fingerprint::value() const {
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 32)) * 0xd6e8feb86659fd93u;
    mixed = (mixed ^ (mixed >> 32)) * 0xd6e8feb86659fd93u;
    return mixed ^ (mixed >> 32);
}

}  // namespace garam
