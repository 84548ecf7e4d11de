#include "garam/data/sources/json_lines.h"

#include "garam/core/error.h"
#include "garam/data/sources/file_rows.h"
#include "garam/data/sources/line_reader.h"

namespace garam {
namespace {

class JsonLineBatch : public RowBatch {
  public:
    JsonLineBatch(std::string file, TextPile lines, std::vector<std::int64_t> numbers)
        : file_(std::move(file)), lines_(std::move(lines)), numbers_(std::move(numbers)) {}
    std::int64_t size() const override { return lines_.size(); }
    Json row(std::int64_t i) const override { return parse_row(lines_[i], where(i)); }
    std::string where(std::int64_t i) const override {
        return file_ + ":" + std::to_string(numbers_[static_cast<std::size_t>(i)]);
    }

  private:
    std::string file_;
    TextPile lines_;
    std::vector<std::int64_t> numbers_;
};

class JsonLineRows : public FileRows {
  public:
    explicit JsonLineRows(const std::filesystem::path& path) : lines_(path) {
        schema_.format = "jsonl";
    }
    const RowSchema& schema() const override { return schema_; }
    ReadRows next() override {
        TextPile lines;
        std::vector<std::int64_t> numbers;
        while (lines.size() < kBatchRows && lines.bytes() < kBatchBytes &&
               lines_.append_next(lines.open_text())) {
            if (is_blank(lines.pending())) {
                lines.drop_text();
                continue;
            }
            lines.end_text();
            numbers.push_back(lines_.number());
        }
        if (numbers.empty()) return {};
        const std::size_t bytes = lines.bytes();
        return {
            std::make_unique<JsonLineBatch>(lines_.name(), std::move(lines), std::move(numbers)),
            bytes};
    }

  private:
    LineReader lines_;
    RowSchema schema_;
};

}  // namespace

std::unique_ptr<FileRows> open_json_lines(const std::filesystem::path& path) {
    return std::make_unique<JsonLineRows>(path);
}

Json parse_row(std::string_view line, const std::string& where) {
    Json row;
    try {
        row = Json::parse(line, where);
    } catch (const Error& error) {
        // The position within the text is that of its only line.
        std::string message = error.what();
        constexpr std::string_view kOnlyLine = " at line 1, column ";
        if (const std::size_t at = message.find(kOnlyLine); at != std::string::npos)
            message.replace(at, kOnlyLine.size(), " at column ");
        if (line.starts_with("[") || line == "{")
            message += " (JSON Lines hold one whole object on each line)";
        throw Error(message);
    }
    if (!row.is_object()) {
        throw Error(where + ": a row must be one JSON object, not " + row.kind() +
                    (row.is_array() ? ": write each row of a list on a line of its own" : ""));
    }
    return row;
}

}  // namespace garam
