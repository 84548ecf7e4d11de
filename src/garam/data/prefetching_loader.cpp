#include "garam/data/prefetching_loader.h"

#include <algorithm>
#include <utility>

#include "garam/core/error.h"

namespace garam {
namespace {

constexpr std::int64_t kMostWorkers = 64;

}  // namespace

PrefetchingLoader::PrefetchingLoader(const Loader& loader, std::int64_t first, std::int64_t end,
                                     std::int64_t workers)
    : loader_(loader), first_(first), end_(end), next_(first), begun_(first) {
    GARAM_CHECK(first <= end, "steps in order");
    workers = std::min(std::clamp<std::int64_t>(workers, 1, kMostWorkers), end - first);
    slots_.resize(
        static_cast<std::size_t>(std::max<std::int64_t>(1, workers > 1 ? 2 * workers : 1)));
    for (std::int64_t i = 0; i < workers; ++i)
        threads_.emplace_back([this] { work(); });
}

PrefetchingLoader::~PrefetchingLoader() {
    {
        const std::lock_guard<std::mutex> guard(lock_);
        stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_)
        thread.join();
}

void PrefetchingLoader::work() {
    const auto ahead = static_cast<std::int64_t>(slots_.size());
    std::unique_lock<std::mutex> guard(lock_);
    for (;;) {
        changed_.wait(guard, [&] { return stop_ || begun_ == end_ || begun_ < next_ + ahead; });
        if (stop_ || begun_ == end_) return;
        const std::int64_t step = begun_++;
        guard.unlock();
        std::vector<TokenBatch> batches;
        std::exception_ptr failure;
        try {
            batches = loader_.step(step);
        } catch (...) {
            failure = std::current_exception();
        }
        guard.lock();
        slot(step) = {true, std::move(batches), failure};
        changed_.notify_all();
    }
}

std::vector<TokenBatch> PrefetchingLoader::next() {
    std::unique_lock<std::mutex> guard(lock_);
    GARAM_CHECK(next_ < end_ && !stop_, "no step is left");
    Slot& ready = slot(next_);
    changed_.wait(guard, [&] { return ready.ready; });
    Slot taken = std::exchange(ready, {});
    if (taken.failure) {
        stop_ = true;
        changed_.notify_all();
        std::rethrow_exception(taken.failure);
    }
    ++next_;
    changed_.notify_all();
    return std::move(taken.batches);
}

}  // namespace garam
