#include "garam/core/error_source.h"

#include <gtest/gtest.h>

#include <string>

namespace garam {
namespace {

TEST(ErrorSource, PrecedesAnErrorOnceForEachPlace) {
    const auto fails = [] { throw Error("tensor x is cut"); };
    try {
        naming_source("a.json", [&] { naming_source("row 3", fails); });
        FAIL() << "the error is lost";
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "a.json: row 3: tensor x is cut");
    }
}

TEST(ErrorSource, LeavesResultsAndBugsAlone) {
    EXPECT_EQ(naming_source("a.json", [] { return std::string("read"); }), "read");
    try {
        naming_source("a.json", [] { throw Bug("a contract"); });
        FAIL() << "the bug is lost";
    } catch (const Bug& bug) {
        EXPECT_STREQ(bug.what(), "a contract");
    }
}

}  // namespace
}  // namespace garam
