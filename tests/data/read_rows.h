// All rows of a source, for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "garam/data/sources/row_source.h"

namespace garam::testing {

struct AllRows {
    RowSchema schema;
    std::vector<std::filesystem::path> files;
    std::vector<Json> rows;
    std::vector<std::string> places;
    std::vector<std::int64_t> sizes;  // of the batches

    std::vector<std::string> texts() const {
        std::vector<std::string> list;
        for (const Json& row : rows)
            list.push_back(row.dump());
        return list;
    }
    // The numbers of one column.
    std::vector<std::int64_t> numbers(const std::string& column) const {
        std::vector<std::int64_t> list;
        for (const Json& row : rows)
            list.push_back(row.at(column).integer());
        return list;
    }
};

inline AllRows read_all(RowSource& source) {
    AllRows all{source.schema(), source.files(), {}, {}, {}};
    while (const auto batch = source.next()) {
        all.sizes.push_back(batch->size());
        for (std::int64_t i = 0; i < batch->size(); ++i) {
            all.rows.push_back(batch->row(i));
            all.places.push_back(batch->where(i));
        }
    }
    return all;
}

inline AllRows read_all(const std::filesystem::path& path, const RowSourceOptions& options = {}) {
    return read_all(*open_rows(path.string(), options));
}

}  // namespace garam::testing
