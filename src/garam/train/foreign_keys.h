// Keys that users of Transformers, PEFT, TRL and their kin bring along and that garam does not
// have: each is refused by name with what stands for it here.
#pragma once

#include "garam/core/config_table.h"

namespace garam {

void refuse_foreign_keys(ConfigTable& table);

}  // namespace garam
