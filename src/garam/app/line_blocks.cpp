#include "garam/app/line_blocks.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "garam/core/error.h"

namespace garam {

const std::vector<std::string_view>& LineBlocks::next() {
    first_line_ += static_cast<std::int64_t>(lines_.size());
    lines_.clear();
    buffer_.erase(0, used_);
    used_ = 0;
    std::size_t searched = 0;  // no line end before it
    std::size_t last_end = buffer_.rfind('\n');
    while (!ended_ && (last_end == std::string::npos || buffer_.size() < kBlockBytes)) {
        if (buffer_.size() > kLongestLine && last_end == std::string::npos)
            throw Error(name_ + ", line " + std::to_string(first_line_) +
                        ": longer than 256 MiB; cut it up");
        searched = buffer_.size();
        buffer_.resize(searched + kBlockBytes);
        const std::size_t read = std::fread(buffer_.data() + searched, 1, kBlockBytes, stream_);
        buffer_.resize(searched + read);
        if (read < kBlockBytes) {
            if (std::ferror(stream_) != 0)
                throw Error(name_ + ": cannot be read: " + std::strerror(errno));
            ended_ = true;
        }
        if (const std::size_t end = std::string_view(buffer_).substr(searched).rfind('\n');
            end != std::string::npos)
            last_end = searched + end;
    }
    used_ = ended_ ? buffer_.size() : last_end + 1;
    std::string_view rest = std::string_view(buffer_).substr(0, used_);
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        std::string_view line = rest.substr(0, end);
        if (line.ends_with('\r')) line.remove_suffix(1);
        lines_.push_back(line);
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return lines_;
}

}  // namespace garam
