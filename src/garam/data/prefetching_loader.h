// A loader that prepares the next steps' batches on threads of its own while this step runs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "garam/core/token_batch.h"
#include "garam/data/loader.h"

namespace garam {

class PrefetchingLoader {
  public:
    // Gives the steps first .. end - 1. `loader` must outlive this. Work begins at once: one step ahead by
    // one thread, or with several workers two steps ahead by each of them. The steps are the same, and
    // come in the same order, for any number.
    PrefetchingLoader(const Loader& loader, std::int64_t first, std::int64_t end,
                      std::int64_t workers = 1);
    // Waits for the steps under way.
    ~PrefetchingLoader();
    PrefetchingLoader(const PrefetchingLoader&) = delete;
    PrefetchingLoader& operator=(const PrefetchingLoader&) = delete;

    bool done() const { return next_ == end_; }
    // The batches of the next step. Rethrows what preparing them threw; nothing follows after that.
    std::vector<TokenBatch> next();

  private:
    struct Slot {
        bool ready = false;
        std::vector<TokenBatch> batches;
        std::exception_ptr failure;
    };
    void work();
    Slot& slot(std::int64_t step) {
        return slots_[static_cast<std::size_t>((step - first_) %
                                               static_cast<std::int64_t>(slots_.size()))];
    }

    const Loader& loader_;
    const std::int64_t first_;
    const std::int64_t end_;
    std::int64_t next_;  // changed by next() alone, under the lock

    std::mutex lock_;
    std::condition_variable changed_;
    std::vector<Slot> slots_;  // step s in slot (s - first) mod their number
    std::int64_t begun_;       // steps before it were taken up
    bool stop_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace garam
