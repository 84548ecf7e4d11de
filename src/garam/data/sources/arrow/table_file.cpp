#include "garam/data/sources/arrow/table_file.h"

#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/status.h>
#include <sys/mman.h>

#include <algorithm>

#include "garam/core/error.h"
#include "garam/data/sources/arrow/table_memory.h"

namespace garam {
namespace {

// Between two releases of pages.
constexpr std::size_t kKeptBytes = std::size_t{64} << 20;

class MappedBuffer : public arrow::Buffer {
  public:
    explicit MappedBuffer(std::shared_ptr<const MappedFile> file)
        : arrow::Buffer(reinterpret_cast<const std::uint8_t*>(file->data()),
                        static_cast<std::int64_t>(file->size())),
          file_(std::move(file)) {}

  private:
    std::shared_ptr<const MappedFile> file_;
};

// Several lines, with source positions in debugging builds, are one clear line to the user.
std::string one_line(std::string text) {
    text = text.substr(0, std::min(text.find('\n'), std::size_t{400}));
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c > 0x7E; }, '?');
    return text;
}

}  // namespace

TableFile::TableFile(const std::filesystem::path& path)
    : name_(path.string()), file_(std::make_shared<MappedFile>(path)) {
    if (file_->size() == 0) throw Error(name_ + ": is empty");
}

std::size_t TableFile::size() const {
    return file_->size();
}

std::string_view TableFile::head(std::size_t size) const {
    return {reinterpret_cast<const char*>(file_->data()), std::min(size, file_->size())};
}

std::string_view TableFile::tail(std::size_t size) const {
    const std::string_view all = head(file_->size());
    return all.substr(all.size() - std::min(size, all.size()));
}

std::shared_ptr<arrow::io::RandomAccessFile> TableFile::stream() const {
    return std::make_shared<arrow::io::BufferReader>(std::make_shared<MappedBuffer>(file_));
}

arrow::MemoryPool* TableFile::memory() const {
    return table_memory(file_->size());
}

void TableFile::used(std::size_t bytes) {
    used_ += bytes;
    if (used_ < kKeptBytes) return;
    used_ = 0;
    // A hint: a failure changes nothing.
    ::madvise(const_cast<std::byte*>(file_->data()), file_->size(), MADV_DONTNEED);
}

void TableFile::fail(const arrow::Status& status) const {
    throw Error(name_ + ": cannot be read: " + one_line(status.message()));
}

void TableFile::fail(const std::exception& error) const {
    throw Error(name_ + ": cannot be read: " + one_line(error.what()));
}

void TableFile::check(const arrow::Status& status) const {
    if (!status.ok()) fail(status);
}

}  // namespace garam
