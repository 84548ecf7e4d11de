// What is planned on a dry device needs more than dry_address_space() (runtime/device.h): more than any machine has.
#pragma once

#include "garam/core/error.h"

namespace garam {

class PlanTooLarge : public Error {
  public:
    using Error::Error;
};

}  // namespace garam
