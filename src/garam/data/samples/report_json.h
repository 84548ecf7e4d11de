// What reading found, as it is kept beside the samples.
#pragma once

#include <string>

#include "garam/core/json.h"
#include "garam/data/samples/sample.h"

namespace garam {

Json to_json(const ReadReport& report);
// Throws Error naming `source` when a member is missing or of another kind.
ReadReport report_from_json(const Json& json, const std::string& source);

}  // namespace garam
