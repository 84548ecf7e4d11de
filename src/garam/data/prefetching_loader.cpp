#include "garam/data/prefetching_loader.h"

#include "garam/core/error.h"

namespace garam {

PrefetchingLoader::PrefetchingLoader(const Loader& loader, std::int64_t first, std::int64_t end)
    : loader_(loader), next_(first), end_(end) {
    GARAM_CHECK(first <= end, "steps in order");
    begin();
}

void PrefetchingLoader::begin() {
    if (done()) return;
    ahead_ = std::async(std::launch::async,
                        [&loader = loader_, step = next_] { return loader.step(step); });
}

std::vector<TokenBatch> PrefetchingLoader::next() {
    GARAM_CHECK(!done() && ahead_.valid(), "no step is left");
    std::vector<TokenBatch> batches = ahead_.get();
    ++next_;
    begin();
    return batches;
}

}  // namespace garam
