// One JSON document: a list of objects, an object with one such list ({"data": [...]}), an object of columns
// ({"text": [...], "label": [...]}), or, under the name .json, JSON Lines.
#include <algorithm>
#include <map>

#include "garam/core/error.h"
#include "garam/data/sources/file_rows.h"
#include "garam/data/sources/json_lines.h"
#include "garam/data/sources/json_splitter.h"
#include "garam/data/sources/line_reader.h"

namespace garam {
namespace {

Json parse_element(std::string_view text, const std::string& where) {
    Json value;
    try {
        value = Json::parse(text, where);
    } catch (const Error& error) {
        std::string message = error.what();
        // Lines count from the element's first.
        constexpr std::string_view kWithin = ": not valid JSON at line ";
        if (const std::size_t at = message.find(kWithin); at != std::string::npos)
            message.insert(at + kWithin.size() - 5, "its ");
        throw Error(message);
    }
    return value;
}

class ElementBatch : public RowBatch {
  public:
    ElementBatch(std::string file, TextPile elements, std::vector<std::int64_t> lines)
        : file_(std::move(file)), elements_(std::move(elements)), lines_(std::move(lines)) {}
    std::int64_t size() const override { return elements_.size(); }
    Json row(std::int64_t i) const override {
        Json row = parse_element(elements_[i], where(i));
        if (!row.is_object())
            throw Error(where(i) + ": a row must be one JSON object, not " + row.kind());
        return row;
    }
    std::string where(std::int64_t i) const override {
        return file_ + ":" + std::to_string(lines_[static_cast<std::size_t>(i)]);
    }

  private:
    std::string file_;
    TextPile elements_;
    std::vector<std::int64_t> lines_;
};

struct JsonColumn {
    std::string name;
    TextPile values;
};

class ColumnBatch : public RowBatch {
  public:
    ColumnBatch(std::string file, std::shared_ptr<const std::vector<JsonColumn>> columns,
                std::int64_t begin, std::int64_t count)
        : file_(std::move(file)), columns_(std::move(columns)), begin_(begin), count_(count) {}
    std::int64_t size() const override { return count_; }
    Json row(std::int64_t i) const override {
        Json::Object object;
        for (const JsonColumn& column : *columns_)
            object.emplace_back(column.name, parse_element(column.values[begin_ + i], where(i)));
        return Json(std::move(object));
    }
    std::string where(std::int64_t i) const override {
        return file_ + ", row " + std::to_string(begin_ + i);
    }

  private:
    std::string file_;
    std::shared_ptr<const std::vector<JsonColumn>> columns_;
    std::int64_t begin_;
    std::int64_t count_;
};

class JsonDocument : public FileRows {
  public:
    explicit JsonDocument(const std::filesystem::path& path) : json_(path) {
        schema_.format = "json";
        if (json_.take('[')) {
            mode_ = Mode::list;
        } else if (json_.take('{')) {
            read_members();
        } else {
            throw Error(json_.name() +
                        (json_.peek() < 0 ? ": is empty" : ": holds no JSON list of objects"));
        }
    }
    const RowSchema& schema() const override { return schema_; }
    ReadRows next() override { return mode_ == Mode::columns ? next_rows() : next_elements(); }

  private:
    enum class Mode { list, member, columns };

    [[noreturn]] void refuse(const std::string& what) const {
        throw Error(
            json_.name() + ": " + what +
            ": give a list of objects, {\"data\": [objects]}, {\"column\": [values], …}, or "
            "JSON Lines");
    }

    // Up to the first list of objects, or to the end with all columns.
    void read_members() {
        auto columns = std::make_shared<std::vector<JsonColumn>>();
        std::size_t bytes = 0;
        bool is_first = true;
        while (!json_.take('}')) {
            if (!is_first && !json_.take(',')) json_.fail("no comma between the members");
            is_first = false;
            std::string name = read_key();
            if (!json_.take('[')) {
                json_.value(nullptr);  // "version": "1.0"
                continue;
            }
            if (json_.peek() == '{') {
                if (!columns->empty())
                    refuse("\"" + name + "\" is a list of objects, beside columns");
                member_ = std::move(name);
                mode_ = Mode::member;
                return;
            }
            TextPile values;
            while (take_element()) {
                json_.value(&values.open_text());
                values.end_text();
            }
            bytes += values.bytes();
            if (bytes > kMaxRowBytes)
                refuse("its columns are larger than " + std::to_string(kMaxRowBytes >> 20) +
                       " MiB, and cannot be read row by row");
            columns->push_back({std::move(name), std::move(values)});
        }
        if (json_.peek() >= 0) json_.fail("something follows the document");
        if (columns->empty()) refuse("its object holds no list");
        for (const JsonColumn& column : *columns) {
            const JsonColumn& first = columns->front();
            if (column.values.size() == first.values.size()) continue;
            refuse("column \"" + column.name + "\" has " + std::to_string(column.values.size()) +
                   " values where \"" + first.name + "\" has " +
                   std::to_string(first.values.size()));
        }
        columns_ = std::move(columns);
        mode_ = Mode::columns;
    }

    std::string read_key() {
        if (json_.peek() != '"') json_.fail("a member without a name");
        std::string quoted;
        const std::string where = json_.name() + ":" + std::to_string(json_.line());
        json_.value(&quoted);
        if (!json_.take(':')) json_.fail("no colon behind the name of a member");
        return Json::parse(quoted, where).string();
    }

    // Whether another element follows in the list, which stands behind its '[' or an element.
    bool take_element() {
        if (json_.take(']')) {
            is_first_element_ = true;
            return false;
        }
        if (!is_first_element_ && !json_.take(',')) json_.fail("no comma between the elements");
        if (!is_first_element_ && json_.peek() == ']') json_.fail("nothing behind the last comma");
        is_first_element_ = false;
        return true;
    }

    ReadRows next_elements() {
        if (is_over_) return {};
        TextPile elements;
        std::vector<std::int64_t> lines;
        while (elements.size() < kBatchRows && elements.bytes() < kBatchBytes) {
            if (!take_element()) {
                end_list();
                break;
            }
            json_.peek();
            lines.push_back(json_.line());
            json_.value(&elements.open_text());
            elements.end_text();
        }
        if (lines.empty()) return {};
        const std::size_t bytes = elements.bytes();
        return {std::make_unique<ElementBatch>(json_.name(), std::move(elements), std::move(lines)),
                bytes};
    }

    void end_list() {
        is_over_ = true;
        if (mode_ == Mode::member) {
            while (!json_.take('}')) {
                if (!json_.take(',')) json_.fail("no comma between the members");
                const std::string name = read_key();
                if (json_.peek() == '[')
                    refuse("beside \"" + member_ + "\" there is another list, \"" + name + "\"");
                json_.value(nullptr);
            }
        }
        if (json_.peek() >= 0) json_.fail("something follows the document");
    }

    ReadRows next_rows() {
        const std::int64_t count = std::min(kBatchRows, columns_->front().values.size() - begin_);
        if (count == 0) return {};
        auto batch = std::make_unique<ColumnBatch>(json_.name(), columns_, begin_, count);
        begin_ += count;
        return {std::move(batch), 0};
    }

    JsonSplitter json_;
    RowSchema schema_;
    Mode mode_ = Mode::list;
    std::string member_;
    bool is_first_element_ = true;
    bool is_over_ = false;
    std::shared_ptr<const std::vector<JsonColumn>> columns_;
    std::int64_t begin_ = 0;
};

// Whether a file holds an object a line: its first line is one, and another follows.
bool is_json_lines(const std::filesystem::path& path) {
    JsonSplitter json(path);
    if (json.peek() != '{') return false;
    constexpr std::size_t kLooked = std::size_t{1} << 20;
    // A document may be larger than memory: only its head is looked at.
    const std::unique_ptr<ByteSource> bytes = open_bytes(path);
    std::string head;
    std::vector<char> buffer(std::size_t{1} << 16);
    while (head.size() < kLooked) {
        const std::size_t got = bytes->read(buffer.data(), buffer.size());
        if (got == 0) break;
        head.append(buffer.data(), got);
    }
    std::int64_t depth = 0;
    bool is_text = false;
    for (std::size_t i = 0; i < head.size(); ++i) {
        const char c = head[i];
        if (is_text) {
            if (c == '\\') {
                ++i;
            } else {
                is_text = c != '"';
            }
        } else if (c == '"') {
            is_text = true;
        } else if (c == '{' || c == '[') {
            ++depth;
        } else if ((c == '}' || c == ']') && --depth == 0) {
            const std::size_t next = head.find_first_not_of(" \t\r\n", i + 1);
            return next != std::string::npos && head[next] == '{';
        }
    }
    return false;
}

}  // namespace

std::unique_ptr<FileRows> open_json_document(const std::filesystem::path& path) {
    if (is_json_lines(path)) return open_json_lines(path);
    return std::make_unique<JsonDocument>(path);
}

}  // namespace garam
