#include "garam/data/sources/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#define ZLIB_CONST  // its input is const
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "garam/core/error.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlockBytes = std::size_t{1} << 18;

class PlainFile : public ByteSource {
  public:
    explicit PlainFile(const fs::path& path) : name_(path.string()) {
        // O_NONBLOCK: opening a named pipe would otherwise wait for a writer.
        fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd_ < 0 && errno == ENOENT) throw Error(name_ + ": no such file");
        if (fd_ < 0) fail(errno);
        struct stat status {};
        const int error = ::fstat(fd_, &status) != 0 ? errno : 0;
        if (error == 0 && S_ISREG(status.st_mode)) return;
        ::close(fd_);
        if (error != 0) fail(error);
        throw Error(name_ + (S_ISDIR(status.st_mode) ? ": is a folder" : ": is no regular file"));
    }
    ~PlainFile() override { ::close(fd_); }
    PlainFile(const PlainFile&) = delete;
    PlainFile& operator=(const PlainFile&) = delete;

    std::size_t read(char* out, std::size_t size) override {
        for (;;) {
            const ::ssize_t got = ::read(fd_, out, size);
            if (got >= 0) return static_cast<std::size_t>(got);
            if (errno != EINTR) fail(errno);
        }
    }
    const std::string& name() const { return name_; }
    // The first bytes, without moving on.
    std::string head(std::size_t size) const {
        std::string bytes(size, '\0');
        const ::ssize_t got = ::pread(fd_, bytes.data(), size, 0);
        bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
        return bytes;
    }

  private:
    [[noreturn]] void fail(int error) const {
        throw Error(name_ + ": cannot be read: " + std::generic_category().message(error));
    }

    std::string name_;
    int fd_ = -1;
};

// Packed bytes, a block at a time.
class PackedInput {
  public:
    explicit PackedInput(std::unique_ptr<PlainFile> file)
        : file_(std::move(file)), buffer_(kBlockBytes) {}
    // False at the end of the file.
    bool fill() {
        if (begin_ < end_) return true;
        begin_ = 0;
        end_ = file_->read(buffer_.data(), buffer_.size());
        return end_ > 0;
    }
    const char* data() const { return buffer_.data() + begin_; }
    std::size_t size() const { return end_ - begin_; }
    void advance(std::size_t count) { begin_ += count; }
    [[noreturn]] void fail(const char* kind, const std::string& what) const {
        throw Error(file_->name() + ": not a whole " + kind + " file: " + what);
    }

  private:
    std::unique_ptr<PlainFile> file_;
    std::vector<char> buffer_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
};

class GzipFile : public ByteSource {
  public:
    explicit GzipFile(std::unique_ptr<PlainFile> file) : input_(std::move(file)) {
        constexpr int kGzipHeader = 16;
        GARAM_CHECK(::inflateInit2(&stream_, MAX_WBITS + kGzipHeader) == Z_OK, "inflateInit2");
    }
    ~GzipFile() override { ::inflateEnd(&stream_); }
    GzipFile(const GzipFile&) = delete;
    GzipFile& operator=(const GzipFile&) = delete;

    std::size_t read(char* out, std::size_t size) override {
        size = std::min(size, kBlockBytes);
        while (!is_over_) {
            if (!input_.fill()) input_.fail("gzip", "it ends too early");
            stream_.next_in = reinterpret_cast<const Bytef*>(input_.data());
            stream_.avail_in = static_cast<uInt>(input_.size());
            stream_.next_out = reinterpret_cast<Bytef*>(out);
            stream_.avail_out = static_cast<uInt>(size);
            const int status = ::inflate(&stream_, Z_NO_FLUSH);
            input_.advance(input_.size() - stream_.avail_in);
            if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
                input_.fail("gzip", stream_.msg != nullptr ? stream_.msg : "corrupt data");
            if (status == Z_STREAM_END) begin_next_member();
            if (const std::size_t got = size - stream_.avail_out; got > 0) return got;
        }
        return 0;
    }

  private:
    void begin_next_member() {
        // Tapes leave zeros behind the last member.
        while (input_.fill() && *input_.data() == '\0')
            input_.advance(1);
        is_over_ = !input_.fill();
        if (!is_over_ && ::inflateReset(&stream_) != Z_OK) input_.fail("gzip", "corrupt data");
    }

    PackedInput input_;
    ::z_stream stream_{};
    bool is_over_ = false;
};

class ZstdFile : public ByteSource {
  public:
    explicit ZstdFile(std::unique_ptr<PlainFile> file)
        : input_(std::move(file)), stream_(::ZSTD_createDStream()) {
        GARAM_CHECK(stream_ != nullptr, "ZSTD_createDStream");
    }
    ~ZstdFile() override { ::ZSTD_freeDStream(stream_); }
    ZstdFile(const ZstdFile&) = delete;
    ZstdFile& operator=(const ZstdFile&) = delete;

    std::size_t read(char* out, std::size_t size) override {
        ::ZSTD_outBuffer output{out, size, 0};
        while (output.pos == 0) {
            const bool is_end = !input_.fill();
            // Without further input the decoder may still hold some output back.
            ::ZSTD_inBuffer packed{input_.data(), is_end ? 0 : input_.size(), 0};
            if (is_end && is_frame_whole_) return 0;
            const std::size_t hint = ::ZSTD_decompressStream(stream_, &output, &packed);
            if (::ZSTD_isError(hint) != 0) input_.fail("Zstandard", ::ZSTD_getErrorName(hint));
            input_.advance(packed.pos);
            is_frame_whole_ = hint == 0;
            if (is_end && output.pos == 0 && !is_frame_whole_)
                input_.fail("Zstandard", "it ends too early");
        }
        return output.pos;
    }

  private:
    PackedInput input_;
    ::ZSTD_DStream* stream_;
    bool is_frame_whole_ = false;
};

std::string lower_extension(const fs::path& path) {
    std::string extension = path.extension().string();
    std::transform(extension.begin(), extension.end(), extension.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return extension;
}

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const fs::path& path) {
    auto file = std::make_unique<PlainFile>(path);
    const std::string head = file->head(4);
    if (head.starts_with("\x1F\x8B")) return std::make_unique<GzipFile>(std::move(file));
    const bool is_skippable =
        head.size() == 4 && (head[0] & 0xF0) == 0x50 && head.ends_with("\x2A\x4D\x18");
    if (head == "\x28\xB5\x2F\xFD" || is_skippable)
        return std::make_unique<ZstdFile>(std::move(file));
    const std::string extension = lower_extension(path);
    if (extension == ".gz" || extension == ".zst") {
        throw Error(path.string() + (head.empty() ? ": is empty, not a " : ": is not a ") +
                    (extension == ".gz" ? "gzip" : "Zstandard") + " file, as its name says");
    }
    return file;
}

std::size_t read_bytes(ByteSource& source, char* out, std::size_t size, std::int64_t line) {
    try {
        return source.read(out, size);
    } catch (const Error& error) {
        throw Error(std::string(error.what()) + ", in line " + std::to_string(line) +
                    " of its text");
    }
}

std::size_t byte_order_mark(std::string_view head, const std::string& name) {
    if (head.starts_with("\xFF\xFE") || head.starts_with("\xFE\xFF"))
        throw Error(name + ": is UTF-16: save it as UTF-8");
    return head.starts_with("\xEF\xBB\xBF") ? 3 : 0;
}

fs::path without_packing(const fs::path& path) {
    const std::string extension = lower_extension(path);
    return extension == ".gz" || extension == ".zst" ? path.parent_path() / path.stem() : path;
}

}  // namespace garam
