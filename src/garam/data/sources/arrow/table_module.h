// Readers of Arrow and Parquet files lie in a module of their own, which is loaded when the first such file is
// opened: Arrow's libraries are large, and take longer to start than all the rest of the program.
//
// The module has a copy of core/ of its own; objects cross its border only as FileRows, RowBatch, Json and Error,
// whose code both sides compile alike.
#pragma once

#include <string>
#include <vector>

#include "garam/data/sources/file_rows.h"

namespace garam {

constexpr const char* kTableModule = "libgaram_arrow.so";
constexpr const char* kTableModuleEntry = "garam_open_table";
// The caller owns what it gives. Throws Error.
using OpenTable = FileRows* (*)(const DataFile& file, const std::vector<std::string>& only_columns);

}  // namespace garam
