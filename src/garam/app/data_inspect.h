// garam data inspect CONFIG… [KEY=VALUE…]: what a person should see of the data before training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "garam/app/command.h"

namespace garam {

struct DataInspect {
    bool json = false;
    std::string html;
    std::int64_t samples = 3;
    bool strict = false;

    void declare(Arguments& arguments);
    // Returns the exit status: 1 with `strict` and a warning.
    int run(const std::vector<std::string>& settings) const;
};

}  // namespace garam
