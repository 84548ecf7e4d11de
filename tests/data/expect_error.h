// EXPECT_ERROR(statement, "part", "part", …): the statement throws garam::Error whose message has
// every part.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "garam/core/error.h"

namespace garam::testing {

inline void expect_parts(const std::string& message, std::initializer_list<const char*> parts) {
    for (const char* part : parts)
        EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
}

}  // namespace garam::testing

#define EXPECT_ERROR(statement, ...)                                     \
    do {                                                                 \
        bool threw = false;                                              \
        try {                                                            \
            statement;                                                   \
        } catch (const ::garam::Error& error) {                          \
            threw = true;                                                \
            ::garam::testing::expect_parts(error.what(), {__VA_ARGS__}); \
        }                                                                \
        EXPECT_TRUE(threw) << "no Error from " #statement;               \
    } while (false)
