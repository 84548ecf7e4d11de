// What readers refuse, as their tests look at it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "garam/core/error.h"

namespace garam::testing {

// The message of the Error in which `read` ends, one line that begins with `named`, a file or the
// folder it is in; "read" where there is none.
template <typename Read>
std::string refusal_naming(const std::filesystem::path& named, const Read& read) {
    try {
        read();
    } catch (const Error& error) {
        const std::string message = error.what();
        EXPECT_EQ(message.find(named.string()), 0u) << "the file is named: " << message;
        EXPECT_EQ(message.find('\n'), std::string::npos) << message;
        return message;
    }
    return "read";
}

}  // namespace garam::testing

// That refusal_of(), which each test file has for what it reads, tells `part`.
#define EXPECT_REFUSED(what, part)                                                         \
    do {                                                                                   \
        const std::string refusal = refusal_of(what);                                      \
        EXPECT_NE(refusal.find(part), std::string::npos) << refusal << "\nlacks " << part; \
    } while (false)
