#include "garam/io/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <system_error>

#include "garam/core/error.h"

namespace garam {
namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
        std::uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit)
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
        table[byte] = crc;
    }
    return table;
}
constexpr std::array<std::uint32_t, 256> kCrcTable = make_crc_table();

// A checksum over data that holds checksums of its own would be weak, so the format stores them rotated
// and shifted by a constant.
std::uint32_t masked_crc(std::string_view bytes) {
    const std::uint32_t crc =
        crc32c({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
    return std::rotr(crc, 15) + 0xa282ead8u;
}

// Protocol-buffer encoding: a field begins with (number << 3) | kind, kind 0 a variable-length integer,
// 1 eight bytes, 2 a length and that many bytes, 5 four bytes.
enum class Kind : std::uint8_t { varint = 0, eight_bytes = 1, length = 2, four_bytes = 5 };

void put_varint(std::string& out, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        out += static_cast<char>(value | 0x80);
    out += static_cast<char>(value);
}
void put_key(std::string& out, unsigned field, Kind kind) {
    put_varint(out, (field << 3) | static_cast<unsigned>(kind));
}
template <typename T>
void put_raw(std::string& out, T value) {
    static_assert(std::endian::native == std::endian::little);
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_double(std::string& out, unsigned field, double value) {
    put_key(out, field, Kind::eight_bytes);
    put_raw(out, value);
}
void put_float(std::string& out, unsigned field, float value) {
    put_key(out, field, Kind::four_bytes);
    put_raw(out, value);
}
void put_int(std::string& out, unsigned field, std::int64_t value) {
    put_key(out, field, Kind::varint);
    put_varint(out, static_cast<std::uint64_t>(value));
}
void put_bytes(std::string& out, unsigned field, std::string_view bytes) {
    put_key(out, field, Kind::length);
    put_varint(out, bytes.size());
    out += bytes;
}

// Field numbers of Event, Summary and Summary.Value.
constexpr unsigned kEventWallTime = 1;
constexpr unsigned kEventStep = 2;
constexpr unsigned kEventFileVersion = 3;
constexpr unsigned kEventSummary = 5;
constexpr unsigned kSummaryValue = 1;
constexpr unsigned kValueTag = 1;
constexpr unsigned kValueSimple = 2;

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

std::string host_name() {
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
    return name.data();
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) {
    std::uint32_t crc = ~0u;
    for (const std::byte byte : bytes)
        crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<std::uint32_t>(byte)) & 0xffu];
    return ~crc;
}

struct EventFile::Impl {
    std::filesystem::path path;
    int fd = -1;
    off_t size = 0;  // of the whole records written

    [[noreturn]] void fail(int error) const {
        throw Error(path.string() +
                    ": cannot be written: " + std::generic_category().message(error));
    }

    void append(std::string_view event) {
        std::string record;
        put_raw(record, std::uint64_t{event.size()});
        put_raw(record, masked_crc(record));
        record += event;
        put_raw(record, masked_crc(event));
        std::string_view left = record;
        while (!left.empty()) {
            const ssize_t written = ::write(fd, left.data(), left.size());
            if (written < 0 && errno == EINTR) continue;
            if (written < 0) {
                const int error = errno;
                // Half a record would hide all later ones from a reader.
                if (::ftruncate(fd, size) == 0) ::lseek(fd, size, SEEK_SET);
                fail(error);
            }
            left.remove_prefix(static_cast<std::size_t>(written));
        }
        size += static_cast<off_t>(record.size());
    }
};

EventFile::EventFile(const std::filesystem::path& folder) : impl_(std::make_unique<Impl>()) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) throw Error(folder.string() + ": cannot be made: " + error.message());
    const double now = seconds_now();
    const std::string stem = "events.out.tfevents." +
                             std::to_string(static_cast<std::int64_t>(now)) + "." + host_name() +
                             "." + std::to_string(::getpid()) + ".";
    int number = 0;
    do {
        impl_->path = folder / (stem + std::to_string(number++));
        impl_->fd = ::open(impl_->path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (impl_->fd < 0 && errno == EEXIST);
    if (impl_->fd < 0) impl_->fail(errno);
    std::string event;
    put_double(event, kEventWallTime, now);
    put_bytes(event, kEventFileVersion, "brain.Event:2");
    try {
        impl_->append(event);
    } catch (...) {
        ::close(impl_->fd);
        throw;
    }
}

EventFile::~EventFile() {
    ::close(impl_->fd);
}

const std::filesystem::path& EventFile::path() const {
    return impl_->path;
}

void EventFile::scalar(const std::string& tag, double value, std::int64_t step) {
    std::string entry;
    put_bytes(entry, kValueTag, tag);
    put_float(entry, kValueSimple, static_cast<float>(value));
    std::string summary;
    put_bytes(summary, kSummaryValue, entry);
    std::string event;
    put_double(event, kEventWallTime, seconds_now());
    put_int(event, kEventStep, step);
    put_bytes(event, kEventSummary, summary);
    impl_->append(event);
}

}  // namespace garam
