// Rows of the token embedding that are trained for themselves (PEFT's trainable_token_indices): the trained
// values take their rows' place in the table, and in that of a head that is tied to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "garam/io/stored_tensor.h"
#include "garam/nn/parameter.h"
#include "garam/runtime/stream.h"

namespace garam {

// Throws Error naming a token that is none of the vocabulary or comes twice.
void check_token_indices(const std::vector<std::int64_t>& indices, std::int64_t vocab_size);

// Where the rows of `values` [n, hidden] lie in the table: runs of tokens that follow each other.
std::vector<Parameter::Copy> token_row_copies(const std::vector<std::int64_t>& indices,
                                              const Tensor& values, const Tensor& table);

// Rows of a stored matrix, [n, columns] f32.
void read_rows(const StoredTensor& stored, const std::vector<std::int64_t>& rows, float* out);

// The tables that gradients go by, in memory that is returned: `places` i32 [vocab], of a token its number
// among the indices or -1, and `ids` i32 [n], the indices. A dry device's are not filled.
Buffer make_token_tables(Device& device, Stream& stream, const std::vector<std::int64_t>& indices,
                         std::int64_t vocab_size, Tensor& places, Tensor& ids);

}  // namespace garam
