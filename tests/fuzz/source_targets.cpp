// Files of rows: separated values, JSON documents, tables, packed texts.
//
// The code of Arrow and Parquet is a library's, without coverage: changes to their files go by their bytes.
#include <string>
#include <vector>

#include "fuzz/seeds.h"
#include "fuzz/target.h"
#include "garam/core/error.h"
#include "garam/data/sources/row_source.h"
#include "testing/temp_dir.h"

namespace garam::fuzz {
namespace {

// Reads all rows; those that cannot be read must say so by an Error that names the file.
void read_rows(const std::filesystem::path& path, const RowSourceOptions& options) {
    const auto source = open_rows(path.string(), options);
    while (const auto batch = source->next()) {
        expect(batch->size() > 0, "a batch without rows");
        for (std::int64_t i = 0; i < batch->size(); ++i) {
            try {
                expect(batch->row(i).is_object(), "a row is no object");
            } catch (const Error& error) {
                expect(
                    std::string(error.what()).find(path.filename().string()) != std::string::npos,
                    "an error of a row does not name the file");
            }
        }
    }
}

Target target_of(const char* name, const char* file, std::vector<std::string> words,
                 const std::vector<std::string>& seeds) {
    Target target;
    target.name = name;
    target.files = {file};
    target.bytes = std::size_t{64} << 20;
    target.bytes_per_byte = 400;
    target.cpu_seconds = 5;
    target.words = std::move(words);
    target.seeds = [file, seeds] {
        std::vector<InputFiles> list;
        for (const std::string& seed : seeds)
            list.push_back({{file, seed}});
        return list;
    };
    target.run = [file](const Execution& execution) { read_rows(execution / file, {}); };
    return target;
}

std::string stored(const char* name) {
    return testing::read_file(source_folder() / "tests" / "data" / "files" / name);
}

Target csv_target() {
    Target target =
        target_of("csv", "rows.csv", {"\"", "\"\"", "\r\n", "\r", ",", ";", "\t", "|", "\n\n"},
                  {"text,label\n\"a, \"\"b\"\"\r\nc\",1\n,\n", "a;b\n1;2\n",
                   "\xEF\xBB\xBF"
                   "a\tb\n1\t\n"});
    target.run = [](const Execution& execution) {
        RowSourceOptions options;
        options.csv_header = false;
        options.csv_quote = '\0';
        options.split = "[:50%]";
        std::string refusal;
        try {
            read_rows(execution / "rows.csv", options);
        } catch (const Error& error) {
            refusal = error.what();
        }
        read_rows(execution / "rows.csv", {});
        if (!refusal.empty()) throw Error(refusal);
    };
    return target;
}

// Arrow takes what a page says that it holds before it is unpacked, up to the bound of small files
// (sources/arrow/table_memory.h); what is read of it comes on top.
Target table_target(const char* name, const char* file, const std::vector<std::string>& seeds) {
    Target target = target_of(name, file, {}, {});
    target.bytes = std::size_t{512} << 20;
    target.cpu_seconds = 20;
    target.seeds = [file, seeds] {
        std::vector<InputFiles> list;
        for (const std::string& seed : seeds)
            list.push_back({{file, stored(seed.c_str())}});
        return list;
    };
    return target;
}

}  // namespace

std::vector<Target> source_targets() {
    return {csv_target(),
            target_of(
                "json_document", "rows.json", {"[", "]", "{", "}", ",", ":", "\"", "\\\"", "null"},
                {"[{\"a\": 1}, {\"a\": \"]\"}]", "{\"v\": {}, \"data\": [{\"a\": 1}], \"n\": 3}",
                 "{\"a\": [1, 2], \"b\": [\"x\", [3]]}", "{\"a\": 1}\n{\"a\": 2}\n"}),
            table_target("arrow", "rows.arrow",
                         {"types.arrow", "types_zstd.arrow", "types_file.arrow", "views.arrow"}),
            table_target("parquet", "rows.parquet", {"types.parquet", "three.parquet"})};
}

}  // namespace garam::fuzz
