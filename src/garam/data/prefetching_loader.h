// A loader that prepares the next step's batches on a thread of its own while this step runs.
#pragma once

#include <cstdint>
#include <future>
#include <vector>

#include "garam/core/token_batch.h"
#include "garam/data/loader.h"

namespace garam {

class PrefetchingLoader {
  public:
    // Gives the steps first .. end - 1. `loader` must outlive this. Work on the first one begins at
    // once; at most one step is ahead.
    PrefetchingLoader(const Loader& loader, std::int64_t first, std::int64_t end);
    // Waits for the step under way.
    ~PrefetchingLoader() = default;
    PrefetchingLoader(const PrefetchingLoader&) = delete;
    PrefetchingLoader& operator=(const PrefetchingLoader&) = delete;

    bool done() const { return next_ == end_; }
    // The batches of the next step. Rethrows what preparing them threw; nothing follows after that.
    std::vector<TokenBatch> next();

  private:
    void begin();

    const Loader& loader_;
    std::int64_t next_;
    std::int64_t end_;
    // From std::async: its destructor joins.
    std::future<std::vector<TokenBatch>> ahead_;
};

}  // namespace garam
