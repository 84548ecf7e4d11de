#include "garam/train/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string_view>

#include "garam/core/error.h"

namespace garam {
namespace {

// Handlers can only reach what is global; lock-free atomics are safe in them.
std::atomic<int> received{0};
std::atomic<bool> guarded{false};
static_assert(std::atomic<int>::is_always_lock_free);

struct sigaction previous_int;
struct sigaction previous_term;

void handle(int signal) {
    int none = 0;
    if (!received.compare_exchange_strong(none, signal)) _exit(128 + signal);
    constexpr std::string_view kMessage =
        "\ngaram: finishing this step, then saving; once more to stop at once\n";
    // A lost message is no reason to do anything else here.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
}

}  // namespace

InterruptGuard::InterruptGuard() {
    GARAM_CHECK(!guarded.exchange(true), "a second InterruptGuard");
    received = 0;
    struct sigaction action {};
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;  // a write of a checkpoint goes on
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &previous_int);
    sigaction(SIGTERM, &action, &previous_term);
}

InterruptGuard::~InterruptGuard() {
    sigaction(SIGINT, &previous_int, nullptr);
    sigaction(SIGTERM, &previous_term, nullptr);
    guarded = false;
}

int InterruptGuard::signal() const {
    return received;
}

}  // namespace garam
