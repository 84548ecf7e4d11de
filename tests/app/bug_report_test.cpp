#include "garam/app/bug_report.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"

namespace garam {

// Outside the anonymous namespace, so that its name can appear in the stack.
[[gnu::noinline]] void break_a_contract() {
    GARAM_CHECK(false, "the probe broke it");
}

namespace {

// The death test would catch an exception; noexcept ends the process as main() does.
void die() noexcept {
    install_bug_report();
    break_a_contract();
}

TEST(BugReportDeathTest, TellsMessageAndStack) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_DEATH(die(), "garam: bug: .*bug_report_test.cpp:[0-9]+: .*the probe broke it");
    EXPECT_DEATH(die(), "garam::break_a_contract");
    EXPECT_DEATH(die(), "please report it");
}

}  // namespace
}  // namespace garam
