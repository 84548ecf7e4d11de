#include "garam/data/row_source.h"

#include "garam/core/error.h"
#include "garam/data/json_lines.h"

namespace garam {
namespace {
class LineBatch : public RowBatch {
  public:
    LineBatch(std::string file, std::vector<JsonLines::Line> lines)
        : file_(std::move(file)), lines_(std::move(lines)) {}
    std::int64_t size() const override { return static_cast<std::int64_t>(lines_.size()); }
    Json row(std::int64_t i) const override {
        return parse_row(lines_[static_cast<std::size_t>(i)].text, where(i));
    }
    std::string where(std::int64_t i) const override {
        return file_ + ":" + std::to_string(lines_[static_cast<std::size_t>(i)].number);
    }

  private:
    std::string file_;
    std::vector<JsonLines::Line> lines_;
};
class LineSource : public RowSource {
  public:
    explicit LineSource(const std::string& path) : files_{path}, lines_(path) {
        schema_.format = "jsonl";
    }
    std::unique_ptr<RowBatch> next() override {
        std::vector<JsonLines::Line> lines;
        if (!lines_.next(lines, 4096, std::size_t{16} << 20)) return nullptr;
        return std::make_unique<LineBatch>(files_[0].string(), std::move(lines));
    }
    const RowSchema& schema() const override { return schema_; }
    const std::vector<std::filesystem::path>& files() const override { return files_; }

  private:
    std::vector<std::filesystem::path> files_;
    JsonLines lines_;
    RowSchema schema_;
};
}  // namespace

std::unique_ptr<RowSource> open_rows(const std::string& path, const RowSourceOptions&) {
    return std::make_unique<LineSource>(path);
}
std::unique_ptr<RowSource> open_columns(const std::vector<std::string>&,
                                        const std::vector<std::string>&, const RowSourceOptions&) {
    throw Error("no columns");
}
}  // namespace garam
