// The lines of a JSON Lines file, read in blocks.
//
// A byte order mark at the start, CR at the end of a line and blank lines are passed over. Throws
// Error naming the file when it is missing, a folder, of a kind that is not JSON Lines, cannot be
// read, or holds a line beyond kMaxLineBytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "garam/core/json.h"

namespace garam {

class JsonLines {
  public:
    struct Line {
        std::int64_t number = 0;  // in the file, from 1
        std::string text;
    };
    static constexpr std::size_t kMaxLineBytes = std::size_t{1} << 30;

    explicit JsonLines(const std::filesystem::path& path);

    // Replaces `lines` by the next ones: at most `max_lines`, and no further line once `max_bytes`
    // are reached. False when there is none left.
    bool next(std::vector<Line>& lines, std::size_t max_lines, std::size_t max_bytes);

  private:
    bool read_line(std::string& line);

    std::string name_;
    std::ifstream file_;
    std::vector<char> buffer_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    std::int64_t line_number_ = 0;
};

// The object on a line. Throws Error "<where>: ..." when it is not one; `where` is "file:line".
Json parse_row(const std::string& line, const std::string& where);

}  // namespace garam
