// Which split a file belongs to by its name, as `datasets` tells it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "garam/data/sources/file_rows.h"

namespace garam {

// `relative`: the path within the data set. "anything-00000-of-00002.parquet" is of the split "anything". Else the
// words train(ing), valid(ation), dev, val, test(ing), eval(uation) count, first in the file's name, then in those
// of its folders: "train", "validation" or "test". Empty where there is none.
std::string split_of_name(const std::filesystem::path& relative);

// Throws Error where the files of a split lie in several folders that are no splits: the Hub's repositories hold
// several data sets in that way.
void check_one_data_set(const std::string& name, const std::filesystem::path& root,
                        const std::string& split, const std::vector<DataFile>& files);

}  // namespace garam
