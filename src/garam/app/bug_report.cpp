#include "garam/app/bug_report.h"

#include <cxxabi.h>
#include <execinfo.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>

namespace garam {

namespace {

// "binary(_ZN5garam1fEv+0x12) [0x55…]" with the name as it is written in the source.
std::string readable(const char* symbol) {
    std::string line = symbol;
    const auto open = line.find('(');
    const auto plus = line.find('+', open == std::string::npos ? 0 : open);
    if (open == std::string::npos || plus == std::string::npos || plus == open + 1) return line;
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> name(
        abi::__cxa_demangle(line.substr(open + 1, plus - open - 1).c_str(), nullptr, nullptr,
                            &status),
        std::free);
    if (status == 0) line.replace(open + 1, plus - open - 1, name.get());
    return line;
}

void print_what() {
    const std::exception_ptr thrown = std::current_exception();
    if (!thrown) {
        std::fputs("garam: bug: terminated\n", stderr);
        return;
    }
    try {
        std::rethrow_exception(thrown);
    } catch (const std::exception& exception) {
        std::fprintf(stderr, "garam: bug: %s\n", exception.what());
    } catch (...) {
        std::fputs("garam: bug: an exception of unknown type\n", stderr);
    }
}

[[noreturn]] void report_and_abort() {
    print_what();
    std::array<void*, 64> frames{};
    const int depth = backtrace(frames.data(), static_cast<int>(frames.size()));
    char** const symbols = backtrace_symbols(frames.data(), depth);
    for (int i = 1; symbols != nullptr && i < depth; ++i)
        std::fprintf(stderr, "  %s\n", readable(symbols[i]).c_str());
    std::fputs("This is a mistake in garam itself; please report it with the lines above.\n",
               stderr);
    std::abort();
}

}  // namespace

void install_bug_report() {
    std::set_terminate(report_and_abort);
}

}  // namespace garam
