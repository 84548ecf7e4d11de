#include "garam/io/interruptible_writing.h"

#include <signal.h>

#include <array>
#include <atomic>

#include "garam/core/error.h"

namespace garam {
namespace {

constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};

// Handlers can only reach what is global.
std::atomic<int> received{0};
std::atomic<bool> lives{false};
static_assert(std::atomic<int>::is_always_lock_free);
std::array<struct sigaction, kSignals.size()> previous;

void remember(int signal) {
    received = signal;
}

}  // namespace

InterruptibleWriting::InterruptibleWriting() {
    GARAM_CHECK(!lives.exchange(true), "a second InterruptibleWriting");
    received = 0;
    struct sigaction action {};
    action.sa_handler = remember;
    action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
        sigaction(kSignals[i], nullptr, &previous[i]);
        // What `nohup` and shells without job control ignore stays ignored.
        if (previous[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
    }
}

InterruptibleWriting::~InterruptibleWriting() {
    for (std::size_t i = 0; i < kSignals.size(); ++i)
        sigaction(kSignals[i], &previous[i], nullptr);
    lives = false;
}

void throw_if_interrupted() {
    if (const int signal = received; lives && signal != 0) throw WritingInterrupted{signal};
}

}  // namespace garam
