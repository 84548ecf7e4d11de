// Lines of a stream in blocks, so that gigabytes pass through bounded memory and each block can be worked on
// by all threads.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace garam {

class LineBlocks {
  public:
    static constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
    static constexpr std::size_t kLongestLine = std::size_t{256} << 20;

    // `name` is what errors call the stream.
    LineBlocks(std::FILE* stream, std::string name) : stream_(stream), name_(std::move(name)) {}

    // The next whole lines, without their ends ("\n" or "\r\n"): about kBlockBytes, at least one; empty at
    // the end of the stream. They stay valid until the next call. Throws Error naming the line that is too
    // long, or that the stream cannot be read.
    const std::vector<std::string_view>& next();
    std::int64_t first_line() const {
        return first_line_;
    }  // number of the block's first line, from 1

  private:
    std::FILE* stream_;
    std::string name_;
    std::string buffer_;
    std::size_t used_ = 0;  // bytes of buffer_ that earlier blocks were
    bool ended_ = false;
    std::int64_t first_line_ = 1;
    std::vector<std::string_view> lines_;
};

}  // namespace garam
