#include "garam/core/parallel.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace garam {
namespace {

using Body = std::function<void(std::int64_t, std::int64_t)>;

// One call of parallel_for: pieces are taken by whoever is free.
struct Job {
    const Body* body = nullptr;
    std::int64_t count = 0;
    std::int64_t grain = 1;
    std::int64_t pieces = 0;
    std::atomic<std::int64_t> next{0};
    std::atomic<int> workers{0};  // inside run()
    std::exception_ptr failure;
    std::mutex failure_lock;

    void run() {
        for (;;) {
            const std::int64_t piece = next.fetch_add(1, std::memory_order_relaxed);
            if (piece >= pieces) return;
            try {
                (*body)(piece * grain, std::min(count, (piece + 1) * grain));
            } catch (...) {
                const std::lock_guard<std::mutex> guard(failure_lock);
                if (!failure) failure = std::current_exception();
            }
        }
    }
};

thread_local bool inside_body = false;

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// Workers that wait for jobs: awake for some microseconds after the last one, since the ops of a step
// follow each other closely, then asleep, so that an idle program takes no processor time.
class Pool {
  public:
    explicit Pool(int workers) {
        for (int i = 0; i < workers; ++i)
            threads_.emplace_back([this] { work(); });
    }
    ~Pool() {
        {
            const std::lock_guard<std::mutex> guard(lock_);
            stop_ = true;
            ticket_.fetch_add(1);
        }
        wake_.notify_all();
        for (std::thread& thread : threads_)
            thread.join();
    }
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    void run(Job& job) {
        {
            const std::lock_guard<std::mutex> guard(lock_);
            job_ = &job;
            ticket_.fetch_add(1);
        }
        if (sleeping_.load() > 0) wake_.notify_all();
        inside_body = true;
        job.run();
        inside_body = false;
        {
            // No worker may join from here on; those inside finish their pieces.
            const std::lock_guard<std::mutex> guard(lock_);
            job_ = nullptr;
        }
        for (int spins = 0; job.workers.load(std::memory_order_acquire) > 0; ++spins) {
            if (spins < kSpins) {
                pause();
            } else {
                std::this_thread::yield();
            }
        }
    }

  private:
    static constexpr int kSpins = 4000;

    void work() {
        inside_body = true;
        std::uint64_t seen = 0;
        for (;;) {
            for (int spins = 0; spins < kSpins && ticket_.load() == seen; ++spins)
                pause();
            Job* job = nullptr;
            {
                std::unique_lock<std::mutex> guard(lock_);
                if (ticket_.load() == seen) {
                    sleeping_.fetch_add(1);
                    wake_.wait(guard, [&] { return ticket_.load() != seen; });
                    sleeping_.fetch_sub(1);
                }
                if (stop_) return;
                seen = ticket_.load();
                job = job_;
                if (job != nullptr) job->workers.fetch_add(1);
            }
            if (job == nullptr) continue;
            job->run();
            job->workers.fetch_sub(1, std::memory_order_release);
        }
    }

    std::mutex lock_;
    std::condition_variable wake_;
    std::atomic<std::uint64_t> ticket_{0};
    std::atomic<int> sleeping_{0};
    Job* job_ = nullptr;
    bool stop_ = false;
    std::vector<std::thread> threads_;
};

int usable_processors() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(CPU_COUNT(&set), 1);
    return static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u));
}

// The process's pool. A forked child has none of its parent's threads: it forgets the pool (whose
// memory is then unreachable, once a fork) and makes its own.
struct Shared {
    std::mutex in_use;
    int threads = usable_processors();
    std::unique_ptr<Pool> pool;

    Shared() {
        pthread_atfork(nullptr, nullptr, [] {
            Shared& shared = instance();
            [[maybe_unused]] Pool* const lost = shared.pool.release();
            new (&shared.in_use) std::mutex;
            inside_body = false;
        });
    }
    static Shared& instance() {
        static Shared shared;
        return shared;
    }
};

}  // namespace

void parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
    if (count <= 0) return;
    grain = std::max<std::int64_t>(grain, 1);
    const std::int64_t pieces = (count + grain - 1) / grain;
    Shared& shared = Shared::instance();
    std::unique_lock<std::mutex> alone(shared.in_use, std::defer_lock);
    if (pieces == 1 || inside_body || shared.threads == 1 || !alone.try_lock()) {
        for (std::int64_t piece = 0; piece < pieces; ++piece)
            body(piece * grain, std::min(count, (piece + 1) * grain));
        return;
    }
    if (!shared.pool) shared.pool = std::make_unique<Pool>(shared.threads - 1);
    Job job;
    job.body = &body;
    job.count = count;
    job.grain = grain;
    job.pieces = pieces;
    shared.pool->run(job);
    if (job.failure) std::rethrow_exception(job.failure);
}

int num_threads() {
    return Shared::instance().threads;
}

void set_num_threads(int threads) {
    Shared& shared = Shared::instance();
    const std::lock_guard<std::mutex> guard(shared.in_use);
    threads = std::max(threads, 1);
    if (threads == shared.threads) return;
    shared.threads = threads;
    shared.pool.reset();
}

}  // namespace garam
