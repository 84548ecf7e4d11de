#include "garam/data/json_lines.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string_view>

#include "garam/core/error.h"

namespace garam {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;

bool is_blank(std::string_view text) {
    return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

void refuse_other_formats(const std::filesystem::path& path) {
    constexpr const char* kOthers[] = {".csv", ".tsv", ".parquet", ".arrow", ".gz",
                                       ".zst", ".zip", ".xlsx",    ".txt"};
    std::string extension = path.extension().string();
    std::transform(extension.begin(), extension.end(), extension.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    for (const char* other : kOthers) {
        if (extension != other) continue;
        throw Error(path.string() + ": " + extension +
                    " files are not supported: give JSON Lines (.jsonl), one object a line");
    }
}

}  // namespace

JsonLines::JsonLines(const std::filesystem::path& path) : name_(path.string()) {
    std::error_code failure;
    const auto status = std::filesystem::status(path, failure);
    if (!std::filesystem::exists(status)) throw Error(name_ + ": no such file");
    if (std::filesystem::is_directory(status))
        throw Error(name_ + ": is a folder: give a JSON Lines file (.jsonl), one object a line");
    refuse_other_formats(path);
    file_.open(path, std::ios::binary);
    if (!file_) throw Error(name_ + ": cannot be opened");
    buffer_.resize(kBufferBytes);
}

bool JsonLines::read_line(std::string& line) {
    line.clear();
    bool any = false;
    for (;;) {
        if (begin_ == end_) {
            file_.read(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
            begin_ = 0;
            end_ = static_cast<std::size_t>(file_.gcount());
            if (file_.bad()) throw Error(name_ + ": cannot be read");
            if (end_ == 0) break;
        }
        any = true;
        const char* start = buffer_.data() + begin_;
        const std::size_t available = end_ - begin_;
        const void* newline = std::memchr(start, '\n', available);
        const std::size_t length =
            newline == nullptr
                ? available
                : static_cast<std::size_t>(static_cast<const char*>(newline) - start);
        if (line.size() + length > kMaxLineBytes) {
            throw Error(name_ + ":" + std::to_string(line_number_ + 1) +
                        ": the line is longer than " + std::to_string(kMaxLineBytes >> 20) +
                        " MiB");
        }
        line.append(start, length);
        begin_ += length;
        if (newline != nullptr) {
            ++begin_;
            break;
        }
    }
    if (!any) return false;
    ++line_number_;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line_number_ == 1) {
        if (line.starts_with("\xFF\xFE") || line.starts_with("\xFE\xFF"))
            throw Error(name_ + ": is UTF-16: save it as UTF-8");
        if (line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    }
    return true;
}

bool JsonLines::next(std::vector<Line>& lines, std::size_t max_lines, std::size_t max_bytes) {
    lines.clear();
    std::size_t bytes = 0;
    std::string line;
    while (lines.size() < max_lines && bytes < max_bytes && read_line(line)) {
        if (is_blank(line)) continue;
        bytes += line.size();
        lines.push_back({line_number_, std::move(line)});
    }
    return !lines.empty();
}

Json parse_row(const std::string& line, const std::string& where) {
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
