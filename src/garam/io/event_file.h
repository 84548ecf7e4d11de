// TensorBoard event files: scalars only. Format: TFRecord framing (length, masked CRC-32C of the
// length, record, masked CRC-32C of the record) around protocol-buffer messages `Event`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace garam {

class EventFile {
  public:
    // Opens "events.out.tfevents.<unix time>.<host>.<pid>.0" in `folder` (made if absent).
    explicit EventFile(const std::filesystem::path& folder);
    ~EventFile();
    EventFile(const EventFile&) = delete;
    EventFile& operator=(const EventFile&) = delete;

    // Appends one value and flushes it to the system. Throws Error when the disk refuses it.
    void scalar(const std::string& tag, double value, std::int64_t step);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace garam
