// Writes a safetensors file one tensor after the other, so that a model larger than memory can be
// written: names, dtypes and shapes are told first (the header comes first in the file), then the data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "garam/core/dtype.h"
#include "garam/core/shape.h"
#include "garam/io/atomic_write.h"

namespace garam {

class SafetensorsWriter {
  public:
    struct Entry {
        std::string name;
        DType dtype = DType::f32;
        Shape shape;

        std::int64_t bytes() const {
            return shape.elements() * static_cast<std::int64_t>(size_of(dtype));
        }
    };

    // The file appears under its name at commit(), whole, or never. Throws Error as AtomicFile does.
    SafetensorsWriter(const std::filesystem::path& path, std::vector<Entry> entries,
                      const std::vector<std::pair<std::string, std::string>>& metadata = {});

    // The bytes of the next entry, whose name is given as a check of the order.
    void write(std::string_view name, const void* data, std::int64_t bytes);
    // After the last entry.
    void commit();

  private:
    AtomicFile file_;
    std::vector<Entry> entries_;
    std::size_t next_ = 0;
};

}  // namespace garam
