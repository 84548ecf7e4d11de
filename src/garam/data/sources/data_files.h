// What a user means by the place of a data set: its files, their format, and the splits that they make up.
#pragma once

#include <string>
#include <vector>

#include "garam/data/sources/file_rows.h"

namespace garam {

struct DataSplit {
    std::string name;  // empty: the place has no splits
    std::vector<DataFile> files;
};

struct DataPlace {
    std::string name;  // for messages: the path as it was given
    std::vector<DataSplit> splits;
    std::string unknown;  // files that are passed over: "2 .log, 1 .xlsx"

    // The one that is asked for; with an empty name the only one. A place without splits also answers to
    // "train". Throws Error with the names that there are.
    const DataSplit& split(const std::string& wanted) const;
};

// `path` as open_rows() takes it. `format` empty: found out. Throws Error as open_rows() does.
DataPlace find_data(const std::string& path, const std::string& format);

}  // namespace garam
