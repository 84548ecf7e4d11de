#include "garam/core/error.h"

namespace garam::detail {

void throw_bug(const char* condition, const std::string& message,
               const std::source_location& where) {
    throw Bug(std::string(where.file_name()) + ":" + std::to_string(where.line()) + ": in " +
              where.function_name() + ": check failed: " + condition + ": " + message);
}

}  // namespace garam::detail
