// Rows that are tokens already: input_ids, with labels and masks beside them.
#pragma once

#include <string>

#include "garam/core/json.h"
#include "garam/data/rows/row_encoder.h"
#include "garam/data/rows/row_schema.h"

namespace garam {

// Positions that attention_mask leaves out at either end are padding and are left away, whatever their ids
// are. Labels are those of the row, else all tokens; of these completion_mask and assistant_masks leave what
// they name. Throws Error "<where>: ..." for lists of other lengths, ids that the model has no embedding
// for, and a mask with a hole.
Sample sample_of_token_ids(const Json& row, const RowColumns& columns,
                           const EncodingSettings& settings, const std::string& where);

}  // namespace garam
