// TensorBoard event files: scalars only. Format: TFRecord framing (length, masked CRC-32C of the length,
// record, masked CRC-32C of the record; tensorflow/core/lib/io/record_writer) around protocol-buffer
// messages `Event` (tensorflow/core/util/event.proto), written by hand. The first event names the format's
// version, "brain.Event:2".
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace garam {

class EventFile {
  public:
    // Opens "events.out.tfevents.<unix time>.<host>.<pid>.<n>" in `folder` (made if absent), n the first
    // number that is not taken.
    explicit EventFile(const std::filesystem::path& folder);
    ~EventFile();
    EventFile(const EventFile&) = delete;
    EventFile& operator=(const EventFile&) = delete;

    const std::filesystem::path& path() const;
    // Appends one value (rounded to float, as TensorBoard keeps it) and hands it to the system. Throws Error
    // when the disk refuses it; the file then ends with the record before.
    void scalar(const std::string& tag, double value, std::int64_t step);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// CRC-32C (Castagnoli: reflected polynomial 0x82f63b78, RFC 3720 appendix B.4).
std::uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace garam
