#include "garam/app/standard_output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "garam/core/error.h"

namespace garam {

namespace {

[[noreturn]] void fail(int code) {
    if (code == EPIPE) throw OutputClosed();
    throw Error(std::string("cannot write to standard output: ") + std::strerror(code));
}

}  // namespace

void print(std::string_view text) {
    errno = 0;
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail(errno);
}

void flush_output() {
    errno = 0;
    if (std::fflush(stdout) != 0) fail(errno);
}

}  // namespace garam
