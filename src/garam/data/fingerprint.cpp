#include "garam/data/fingerprint.h"

namespace garam {
namespace {

// FNV-1a (Fowler, Noll, Vo) over 64-bit words, with a final mix so that late words reach all bits.
class Hash {
  public:
    void add(std::uint64_t word) { state_ = (state_ ^ word) * 0x100000001b3u; }
    std::uint64_t value() const {
        std::uint64_t mixed = state_;
        mixed = (mixed ^ (mixed >> 32)) * 0xd6e8feb86659fd93u;
        mixed = (mixed ^ (mixed >> 32)) * 0xd6e8feb86659fd93u;
        return mixed ^ (mixed >> 32);
    }

  private:
    std::uint64_t state_ = 0xcbf29ce484222325u;
};

}  // namespace

std::uint64_t fingerprint(const std::vector<Sample>& samples) {
    Hash hash;
    for (const Sample& sample : samples) {
        hash.add(static_cast<std::uint64_t>(sample.row));
        hash.add(sample.ids.size());
        for (std::size_t t = 0; t < sample.ids.size(); ++t) {
            hash.add(static_cast<std::uint32_t>(sample.ids[t]));
            hash.add(static_cast<std::uint32_t>(sample.labels[t]));
        }
    }
    return hash.value();
}

}  // namespace garam
