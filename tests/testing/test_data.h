// Where the reference data lies. Tests that need it call one of the macros first, so that they are
// skipped visibly where it is absent.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace garam::testing {

// GARAM_TEST_DATA, else ../shared/data beside the checkout. May not exist.
std::filesystem::path data_dir();
// GARAM_TEST_SOURCE, else the checkout that the tests were built from (examples, own small data).
std::filesystem::path source_dir();
// Names of the sub-folders of a folder, sorted; empty when it does not exist.
std::vector<std::string> folders_in(const std::filesystem::path& folder);
// Names of the files with an extension (".jsonl") in a folder, sorted.
std::vector<std::string> files_in(const std::filesystem::path& folder,
                                  const std::string& extension);

}  // namespace garam::testing

// Skips the test unless the reference data holds `relative`.
#define GARAM_REQUIRE_DATA(relative)                                              \
    do {                                                                          \
        if (!std::filesystem::exists(::garam::testing::data_dir() / (relative)))  \
            GTEST_SKIP() << "reference data is not here: "                        \
                         << (::garam::testing::data_dir() / (relative)).string(); \
    } while (false)
