// An inspection as one HTML page that needs nothing else: no script, no font, no picture from anywhere.
#pragma once

#include <string>

#include "garam/data/inspection/inspection.h"

namespace garam {

// `title` names the configuration. Nothing of the data can become markup: every text is escaped, and the
// page's own policy forbids scripts and loading.
std::string inspection_page(const Inspection& inspection, const std::string& title);

}  // namespace garam
