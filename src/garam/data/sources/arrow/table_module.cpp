#include "garam/data/sources/arrow/table_module.h"

#include "garam/data/sources/arrow/arrow_rows.h"

extern "C" __attribute__((visibility("default"))) garam::FileRows* garam_open_table(
    const garam::DataFile& file, const std::vector<std::string>& only_columns) {
    using namespace garam;
    if (!file.indices.empty()) return open_selection(file, only_columns).release();
    if (file.format == "parquet") return open_parquet(file, only_columns).release();
    return open_arrow(file, only_columns).release();
}
