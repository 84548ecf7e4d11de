// An inspection for a terminal of 100 columns.
#pragma once

#include <string>

#include "garam/data/inspection/inspection.h"

namespace garam {

// `colour`: with the escape sequences of a terminal; else targets stand between ⟦ and ⟧.
std::string inspection_text(const Inspection& inspection, bool colour);

}  // namespace garam
