// Errors of those who know what is wrong, but not in which file.
#pragma once

#include <string>

#include "garam/core/error.h"

namespace garam {

// What `body` returns. An Error that it throws becomes one that begins with `source`, a file's name or whatever else
// tells where, and a colon.
template <typename Body>
auto naming_source(const std::string& source, const Body& body) {
    try {
        return body();
    } catch (const Error& error) {
        throw Error(source + ": " + error.what());
    }
}

}  // namespace garam
