#include "garam/train/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "garam/core/error.h"

namespace garam {
namespace {

TEST(Interrupt, TheFirstSignalOnlySetsTheFlag) {
    for (const int signal : {SIGINT, SIGTERM}) {
        const InterruptGuard guard;
        EXPECT_FALSE(guard.requested());
        EXPECT_EQ(guard.signal(), 0);
        raise(signal);
        EXPECT_TRUE(guard.requested());
        EXPECT_EQ(guard.signal(), signal);
    }
    const InterruptGuard later;
    EXPECT_FALSE(later.requested());  // a new run starts without the old request
}

int heard = 0;

TEST(Interrupt, TheHandlersBeforeComeBack) {
    const auto before = ::signal(SIGINT, [](int) { ++heard; });
    { const InterruptGuard guard; }
    heard = 0;
    raise(SIGINT);
    EXPECT_EQ(heard, 1);
    ::signal(SIGINT, before);
}

TEST(Interrupt, OneAtATime) {
    const InterruptGuard guard;
    EXPECT_THROW(InterruptGuard(), Bug);
}

// A process that never asks for the flag (a step that takes for ever) still ends at the second signal.
TEST(Interrupt, TheSecondSignalEndsTheProcessAtOnce) {
    for (const int signal : {SIGINT, SIGTERM}) {
        int to_parent[2];
        ASSERT_EQ(pipe(to_parent), 0);
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            const InterruptGuard guard;
            dup2(to_parent[1], STDERR_FILENO);
            close(to_parent[0]);
            close(to_parent[1]);
            raise(signal);
            if (!guard.requested()) _exit(1);
            raise(signal);
            _exit(0);  // not reached
        }
        close(to_parent[1]);
        std::string said;
        char block[256];
        for (ssize_t got; (got = read(to_parent[0], block, sizeof block)) > 0;)
            said.append(block, static_cast<std::size_t>(got));
        close(to_parent[0]);
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFEXITED(status));
        EXPECT_EQ(WEXITSTATUS(status), 128 + signal);
        EXPECT_NE(said.find("finishing this step"), std::string::npos) << said;
    }
    EXPECT_EQ(128 + SIGINT, 130);
}

}  // namespace
}  // namespace garam
