#include "garam/core/parallel.h"

#include <omp.h>

#include <algorithm>
#include <exception>
#include <mutex>

namespace garam {

void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body) {
    if (count <= 0) return;
    grain = std::max<std::int64_t>(grain, 1);
    const std::int64_t pieces = (count + grain - 1) / grain;
    if (pieces == 1 || omp_in_parallel() || omp_get_max_threads() == 1) {
        for (std::int64_t piece = 0; piece < pieces; ++piece)
            body(piece * grain, std::min(count, (piece + 1) * grain));
        return;
    }
    std::exception_ptr failure;
    std::mutex failure_lock;
#pragma omp parallel for schedule(dynamic, 1)
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
        try {
            body(piece * grain, std::min(count, (piece + 1) * grain));
        } catch (...) {
            const std::lock_guard<std::mutex> guard(failure_lock);
            if (!failure) failure = std::current_exception();
        }
    }
    if (failure) std::rethrow_exception(failure);
}

int num_threads() { return omp_get_max_threads(); }

void set_num_threads(int threads) { omp_set_num_threads(std::max(threads, 1)); }

}  // namespace garam
