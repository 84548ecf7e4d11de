// Writes GGUF files for tests, valid or with one lie, independently of garam's reader.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace garam::testing {

// A growing string of little-endian values.
class Bytes {
  public:
    template <typename T>
    Bytes& put(T value) {
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
        return *this;
    }
    Bytes& text(std::string_view value) {
        put<std::uint64_t>(value.size());
        bytes_ += value;
        return *this;
    }
    Bytes& raw(std::string_view value) {
        bytes_ += value;
        return *this;
    }
    const std::string& str() const { return bytes_; }

  private:
    std::string bytes_;
};

class GgufBuilder {
  public:
    struct Entry {
        std::string name;
        std::vector<std::uint64_t> extents;  // fastest first
        std::uint32_t type = 0;
        std::string data;
        std::int64_t offset = -1;  // -1: where it belongs
    };

    std::uint32_t version = 3;
    std::uint64_t alignment = 32;  // of what is written; the key is up to the test
    std::int64_t claimed_tensors = -1;
    std::int64_t claimed_keys = -1;

    GgufBuilder& key_u32(std::string_view key, std::uint32_t value) {
        return key_raw(key, 4, Bytes().put(value).str());
    }
    GgufBuilder& key_f32(std::string_view key, float value) {
        return key_raw(key, 6, Bytes().put(value).str());
    }
    GgufBuilder& key_text(std::string_view key, std::string_view value) {
        return key_raw(key, 8, Bytes().text(value).str());
    }
    GgufBuilder& key_raw(std::string_view key, std::uint32_t type, std::string_view value) {
        keys_.text(key).put(type).raw(value);
        ++num_keys_;
        return *this;
    }
    GgufBuilder& tensor(std::string name, std::vector<std::uint64_t> extents, std::uint32_t type,
                        std::string data, std::int64_t offset = -1) {
        tensors_.push_back({std::move(name), std::move(extents), type, std::move(data), offset});
        return *this;
    }
    GgufBuilder& tensor_f32(std::string name, std::vector<std::uint64_t> extents,
                            const std::vector<float>& values) {
        return tensor(std::move(name), std::move(extents), 0,
                      std::string(reinterpret_cast<const char*>(values.data()),
                                  values.size() * sizeof(float)));
    }

    std::string build() const {
        Bytes head;
        head.raw("GGUF").put(version);
        head.put<std::uint64_t>(claimed_tensors < 0 ? tensors_.size()
                                                    : static_cast<std::uint64_t>(claimed_tensors));
        head.put<std::uint64_t>(claimed_keys < 0 ? num_keys_
                                                 : static_cast<std::uint64_t>(claimed_keys));
        head.raw(keys_.str());
        std::string data;
        for (const Entry& entry : tensors_) {
            data.append((alignment - data.size() % alignment) % alignment, '\0');
            head.text(entry.name)
                .put<std::uint32_t>(static_cast<std::uint32_t>(entry.extents.size()));
            for (const std::uint64_t extent : entry.extents)
                head.put(extent);
            head.put(entry.type)
                .put<std::uint64_t>(entry.offset < 0 ? data.size()
                                                     : static_cast<std::uint64_t>(entry.offset));
            data += entry.data;
        }
        std::string file = head.str();
        if (!tensors_.empty()) file.append((alignment - file.size() % alignment) % alignment, '\0');
        return file + data;
    }

  private:
    Bytes keys_;
    std::uint64_t num_keys_ = 0;
    std::vector<Entry> tensors_;
};

}  // namespace garam::testing
