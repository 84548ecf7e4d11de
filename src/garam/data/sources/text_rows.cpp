// Plain text: a row a line, a paragraph or a file, in the column "text".
#include "garam/core/error.h"
#include "garam/data/sources/file_rows.h"
#include "garam/data/sources/line_reader.h"

namespace garam {
namespace {

class TextBatch : public RowBatch {
  public:
    TextBatch(std::string file, TextPile texts, std::vector<std::int64_t> lines)
        : file_(std::move(file)), texts_(std::move(texts)), lines_(std::move(lines)) {}
    std::int64_t size() const override { return texts_.size(); }
    Json row(std::int64_t i) const override {
        check_utf8(texts_[i], where(i));
        Json::Object object;
        object.emplace_back("text", texts_[i]);
        return Json(std::move(object));
    }
    std::string where(std::int64_t i) const override {
        return lines_.empty() ? file_
                              : file_ + ":" + std::to_string(lines_[static_cast<std::size_t>(i)]);
    }

  private:
    std::string file_;
    TextPile texts_;
    std::vector<std::int64_t> lines_;  // empty: of a whole document
};

class TextRows : public FileRows {
  public:
    TextRows(const std::filesystem::path& path, const std::string& unit)
        : lines_(path), unit_(unit) {
        if (unit != "line" && unit != "paragraph" && unit != "document")
            throw Error("data.text_unit must be line, paragraph or document, not \"" + unit + "\"");
        schema_.format = "text";
        schema_.columns = {{"text", "string", {}}};
    }
    const RowSchema& schema() const override { return schema_; }
    ReadRows next() override {
        TextPile texts;
        std::vector<std::int64_t> numbers;
        if (unit_ == "document") {
            if (!read_document(texts)) return {};
        } else {
            while (texts.size() < kBatchRows && texts.bytes() < kBatchBytes) {
                const std::int64_t line =
                    unit_ == "line" ? read_line(texts) : read_paragraph(texts);
                if (line == 0) break;
                numbers.push_back(line);
            }
            if (numbers.empty()) return {};
        }
        const std::size_t bytes = texts.bytes();
        return {std::make_unique<TextBatch>(lines_.name(), std::move(texts), std::move(numbers)),
                bytes};
    }

  private:
    // These give the number of the text's first line, 0 at the end.
    std::int64_t read_line(TextPile& texts) {
        if (!lines_.append_next(texts.open_text())) return 0;
        texts.end_text();
        return lines_.number();
    }
    std::int64_t read_paragraph(TextPile& texts) {
        std::string& text = texts.open_text();
        std::int64_t first = 0;
        std::size_t end = text.size();  // of what was read without the newline that may follow
        for (;;) {
            const std::size_t begin = text.size();
            if (!lines_.append_next(text)) break;
            if (is_blank(std::string_view(text).substr(begin))) {
                text.resize(begin);
                if (first != 0) break;
                continue;
            }
            if (first == 0) first = lines_.number();
            end = text.size();
            if (texts.pending().size() > kMaxRowBytes) {
                throw Error(lines_.name() + ":" + std::to_string(first) +
                            ": the paragraph is longer than " + std::to_string(kMaxRowBytes >> 20) +
                            " MiB");
            }
            text += '\n';
        }
        if (first == 0) return 0;
        text.resize(end);
        texts.end_text();
        return first;
    }
    // As it lies in the file, but for carriage returns.
    bool read_document(TextPile& texts) {
        std::string& text = texts.open_text();
        bool any = false;
        while (lines_.append_next(text)) {
            any = true;
            text += '\n';
            if (text.size() > kMaxRowBytes) {
                throw Error(lines_.name() + ": the document is longer than " +
                            std::to_string(kMaxRowBytes >> 20) + " MiB");
            }
        }
        if (any) texts.end_text();
        return any;
    }

    LineReader lines_;
    std::string unit_;
    RowSchema schema_;
};

}  // namespace

std::unique_ptr<FileRows> open_text(const std::filesystem::path& path, const std::string& unit) {
    return std::make_unique<TextRows>(path, unit);
}

}  // namespace garam
