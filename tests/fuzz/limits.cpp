#include "fuzz/limits.h"

#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>

#if defined(__SANITIZE_ADDRESS__)
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, std::size_t),
                                              void (*)(const volatile void*));
std::size_t __sanitizer_get_allocated_size(const volatile void*);
void __sanitizer_print_stack_trace();
// The process ends by _exit and is short-lived: leaks are the test suite's business. A size beyond what the
// allocator takes is a finding like any other.
const char* __asan_default_options() {
    return "detect_leaks=0:allocator_may_return_null=0:handle_abort=1:detect_stack_use_after_"
           "return=0:"
           "quarantine_size_mb=16:malloc_context_size=12";
}
const char* __ubsan_default_options() {
    return "print_stacktrace=1";
}
}
#endif

namespace garam::fuzz {
namespace {

std::atomic<bool> counting{false};
std::atomic<std::ptrdiff_t> live{0};
std::atomic<std::ptrdiff_t> peak{0};
std::atomic<std::ptrdiff_t> most{0};

[[noreturn]] void end_beyond(const char* what, std::ptrdiff_t value, std::ptrdiff_t limit) {
    counting = false;
    char message[200];
    const int length = std::snprintf(message, sizeof message,
                                     "garam_fuzz: %s: %td, the limit is %td\n", what, value, limit);
    if (::write(STDERR_FILENO, message, static_cast<std::size_t>(length)) < 0) _exit(kBeyondLimits);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_print_stack_trace();
#endif
    _exit(kBeyondLimits);
}

#if defined(__SANITIZE_ADDRESS__)
void on_allocation(const volatile void*, std::size_t size) {
    if (!counting) return;
    const std::ptrdiff_t now = live += static_cast<std::ptrdiff_t>(size);
    if (now > peak) peak = now;
    if (now > most) end_beyond("bytes allocated", now, most);
}
void on_release(const volatile void* memory) {
    if (counting && memory != nullptr)
        live -= static_cast<std::ptrdiff_t>(__sanitizer_get_allocated_size(memory));
}
#endif

void on_timer(int) {
    end_beyond("time on the processor is over; bytes allocated so far", live, most);
}

void set_timer(double seconds) {
    itimerval timer{};
    timer.it_value.tv_sec = static_cast<time_t>(seconds);
    timer.it_value.tv_usec =
        static_cast<suseconds_t>((seconds - static_cast<double>(timer.it_value.tv_sec)) * 1e6);
    ::setitimer(ITIMER_PROF, &timer, nullptr);
}

}  // namespace

LimitedRun::LimitedRun(const Limits& limits) {
    static const bool installed = [] {
        struct sigaction action {};
        action.sa_handler = on_timer;
        ::sigaction(SIGPROF, &action, nullptr);
#if defined(__SANITIZE_ADDRESS__)
        return __sanitizer_install_malloc_and_free_hooks(on_allocation, on_release) > 0;
#else
        return false;
#endif
    }();
    static_cast<void>(installed);
    live = peak = 0;
    most = static_cast<std::ptrdiff_t>(limits.bytes);
    set_timer(limits.cpu_seconds);
    counting = true;
}

LimitedRun::~LimitedRun() {
    counting = false;
    set_timer(0);
}

std::size_t LimitedRun::peak_bytes() {
    return static_cast<std::size_t>(std::max<std::ptrdiff_t>(peak, 0));
}

}  // namespace garam::fuzz
