// Lets the interop script read data sets: requests and answers are JSON, a line each.
//
//   {"path": …, "split": …, "format": …, "only": […], "csv_columns": […], "csv_quote": …, "text_unit": …}
//   {"schema": [[name, type], …], "rows": [...]}, or {"error": …}
#include <iostream>
#include <string>

#include "garam/core/error.h"
#include "garam/data/sources/row_source.h"

namespace {

using garam::Json;

std::string text_of(const Json& request, const char* key) {
    const Json* found = request.find(key);
    return found != nullptr && found->is_string() ? found->string() : "";
}

Json answer(const Json& request) {
    garam::RowSourceOptions options;
    options.split = text_of(request, "split");
    options.format = text_of(request, "format");
    if (const Json* only = request.find("only"))
        for (const Json& name : only->array())
            options.only_columns.push_back(name.string());
    if (const Json* names = request.find("csv_columns"))
        for (const Json& name : names->array())
            options.csv_columns.push_back(name.string());
    if (const Json* quote = request.find("csv_quote"))
        options.csv_quote = quote->string().empty() ? '\0' : quote->string()[0];
    if (const std::string unit = text_of(request, "text_unit"); !unit.empty())
        options.text_unit = unit;
    const auto source = garam::open_rows(text_of(request, "path"), options);
    Json schema = Json(Json::Array{});
    for (const garam::ColumnSchema& column : source->schema().columns)
        schema.push_back(Json(Json::Array{Json(column.name), Json(column.type)}));
    Json rows = Json(Json::Array{});
    while (const auto batch = source->next())
        for (std::int64_t i = 0; i < batch->size(); ++i)
            rows.push_back(batch->row(i));
    return Json(Json::Object{{"schema", std::move(schema)}, {"rows", std::move(rows)}});
}

}  // namespace

int main() {
    std::string line;
    while (std::getline(std::cin, line)) {
        try {
            std::cout << answer(Json::parse(line, "request")).dump() << std::endl;
        } catch (const garam::Error& error) {
            std::cout << Json(Json::Object{{"error", Json(error.what())}}).dump() << std::endl;
        }
    }
    return 0;
}
