// Errors of two kinds.
//
// Error: something outside the program is wrong (a file, a key, a setting, the disk). Its message is
// one clear line that says what happened, where (file, row, key, tensor name) and what to do. The
// command line prints it and exits with status 2.
//
// Bug: a contract inside the program was broken (a shape that the caller should have checked). The
// command line prints it with its source position and aborts, so that a core or a trace remains.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>

namespace garam {

class Error : public std::runtime_error {
  public:
    explicit Error(const std::string& message) : std::runtime_error(message) {}
};

class Bug : public std::logic_error {
  public:
    explicit Bug(const std::string& message) : std::logic_error(message) {}
};

namespace detail {
[[noreturn]] void throw_bug(const char* condition, const std::string& message,
                            const std::source_location& where);
}  // namespace detail

}  // namespace garam

// Checks a contract between two parts of the program; `message` (anything that converts to
// std::string) is only evaluated when the check fails.
#define GARAM_CHECK(condition, message)                                                         \
    do {                                                                                        \
        if (!(condition)) [[unlikely]]                                                          \
            ::garam::detail::throw_bug(#condition, (message), std::source_location::current()); \
    } while (false)
