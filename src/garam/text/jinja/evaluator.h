// Runs a parsed template.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "garam/text/jinja/syntax.h"
#include "garam/text/jinja/value.h"

namespace garam::jinja {

// Something went wrong at this line of the template.
struct RenderFailure {
    int line;
    std::string message;
};

// `variables` are what the template can see, beside range, namespace, dict, raise_exception and
// strftime_now, which takes `now` (seconds since 1970; none: the clock's) as local time. Throws
// RenderFailure: for what Jinja2 refuses, for raise_exception, and when a limit of Budget is reached.
MarkedText render(const Block& program, std::vector<std::pair<std::string, Value>> variables,
                  std::optional<std::int64_t> now = std::nullopt);

}  // namespace garam::jinja
