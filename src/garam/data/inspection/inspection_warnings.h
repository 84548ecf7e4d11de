// What the numbers of an inspection should make its reader think about.
#pragma once

#include "garam/data/inspection/inspection.h"

namespace garam {

// Fills `warnings` and adds to `notes`, from everything else. A clean set of rows has none.
void add_warnings(Inspection& inspection);

}  // namespace garam
