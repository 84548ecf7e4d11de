// Readers of the module: Arrow files of both kinds, Parquet, and selections of rows out of several tables.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "garam/data/sources/file_rows.h"

namespace garam {

using ColumnNames = std::vector<std::string>;

std::unique_ptr<FileRows> open_arrow(const DataFile& file, const ColumnNames& only);
std::unique_ptr<FileRows> open_parquet(const DataFile& file, const ColumnNames& only);
// The rows that file.indices name, out of file.tables laid end to end.
std::unique_ptr<FileRows> open_selection(const DataFile& file, const ColumnNames& only);

}  // namespace garam
