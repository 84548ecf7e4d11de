#include "garam/data/sources/line_reader.h"

#include <cstring>

#include "garam/core/error.h"
#include "garam/data/sources/file_rows.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;

}  // namespace

LineReader::LineReader(const std::filesystem::path& path)
    : name_(path.string()), bytes_(open_bytes(path)), buffer_(kBufferBytes) {}

bool LineReader::append_next(std::string& text) {
    const std::size_t begin = text.size();
    bool any = false;
    for (;;) {
        if (begin_ == end_) {
            begin_ = 0;
            end_ = read_bytes(*bytes_, buffer_.data(), buffer_.size(), number_ + 1);
            if (end_ == 0) break;
        }
        any = true;
        const char* start = buffer_.data() + begin_;
        const std::size_t available = end_ - begin_;
        const auto* newline = static_cast<const char*>(std::memchr(start, '\n', available));
        const std::size_t length =
            newline == nullptr ? available : static_cast<std::size_t>(newline - start);
        if (text.size() - begin + length > kMaxRowBytes) {
            throw Error(name_ + ":" + std::to_string(number_ + 1) + ": the line is longer than " +
                        std::to_string(kMaxRowBytes >> 20) + " MiB");
        }
        text.append(start, length);
        begin_ += length;
        if (newline != nullptr) {
            ++begin_;
            break;
        }
    }
    if (!any) return false;
    ++number_;
    if (text.size() > begin && text.back() == '\r') text.pop_back();
    if (number_ == 1) strip_byte_order_mark(text, begin, name_);
    return true;
}

bool is_blank(std::string_view text) {
    return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

void check_utf8(std::string_view text, const std::string& where) {
    const std::size_t at = first_invalid_utf8(text);
    if (at == std::string_view::npos) return;
    throw Error(where + ": is not UTF-8 at byte " + std::to_string(at + 1) +
                ": convert the file (iconv -f CP949 -t UTF-8, or whatever its encoding is)");
}

void strip_byte_order_mark(std::string& text, std::size_t begin, const std::string& name) {
    text.erase(begin, byte_order_mark(std::string_view(text).substr(begin), name));
}

}  // namespace garam
