// A typed view of memory that somebody else owns: pointer, dtype, shape, row pitch, device kind.
//
// The last dimension is contiguous; consecutive rows (all other dimensions, flattened) are `pitch`
// elements apart, pitch >= the last extent. A tensor with pitch equal to its last extent is dense.
// Copying a Tensor copies the view. On the dry device `data` is address space that must not be read
// or written.
#pragma once

#include <cstdint>
#include <string>

#include "garam/core/dtype.h"
#include "garam/core/error.h"
#include "garam/core/shape.h"

namespace garam {

enum class DeviceKind : std::uint8_t { cpu, cuda, dry };

constexpr std::string_view name_of(DeviceKind kind) {
    return kind == DeviceKind::cpu ? "cpu" : kind == DeviceKind::cuda ? "cuda" : "dry";
}

class Tensor {
  public:
    Tensor() = default;
    Tensor(void* data, DType dtype, const Shape& shape, DeviceKind device, std::int64_t pitch = 0)
        : data_(data),
          shape_(shape),
          pitch_(pitch == 0 ? shape.back() : pitch),
          dtype_(dtype),
          device_(device) {
        GARAM_CHECK(pitch_ >= shape.back(), "pitch below the row length of " + shape.to_string());
    }

    explicit operator bool() const { return data_ != nullptr; }
    void* raw() const { return data_; }
    DType dtype() const { return dtype_; }
    const Shape& shape() const { return shape_; }
    DeviceKind device() const { return device_; }
    std::int64_t pitch() const { return pitch_; }  // elements
    std::int64_t extent(int axis) const { return shape_[axis]; }
    std::int64_t elements() const { return shape_.elements(); }
    std::int64_t rows() const { return shape_.rows(); }
    std::int64_t columns() const { return shape_.back(); }
    bool is_dense() const { return pitch_ == shape_.back(); }
    // Bytes of the elements, without the padding between rows.
    std::int64_t bytes() const { return elements() * static_cast<std::int64_t>(size_of(dtype_)); }

    // Typed access; checks the dtype.
    template <typename T>
    T* data() const {
        GARAM_CHECK(dtype_of<T>::value == dtype_, "tensor of " + std::string(name_of(dtype_)) +
                                                      " read as " +
                                                      std::string(name_of(dtype_of<T>::value)));
        return static_cast<T*>(data_);
    }

    // Elements [begin, end) of a vector.
    Tensor slice_elements(std::int64_t begin, std::int64_t end) const {
        GARAM_CHECK(shape_.rank() == 1 && 0 <= begin && begin <= end && end <= elements(),
                    "element slice out of range");
        return Tensor(offset(begin), dtype_, Shape{end - begin}, device_);
    }
    // Rows [begin, end) of the flattened matrix, as a [end - begin, columns] view.
    Tensor slice_rows(std::int64_t begin, std::int64_t end) const {
        GARAM_CHECK(0 <= begin && begin <= end && end <= rows(), "row slice out of range");
        return Tensor(offset(begin * pitch_), dtype_, Shape{end - begin, columns()}, device_,
                      pitch_);
    }
    // Columns [begin, end) of the flattened matrix.
    Tensor slice_columns(std::int64_t begin, std::int64_t end) const {
        GARAM_CHECK(0 <= begin && begin <= end && end <= columns(), "column slice out of range");
        return Tensor(offset(begin), dtype_, Shape{rows(), end - begin}, device_, pitch_);
    }
    // The same elements under another shape; dense tensors only.
    Tensor reshape(const Shape& shape) const {
        GARAM_CHECK(is_dense() && shape.elements() == elements(),
                    "cannot view " + shape_.to_string() + " as " + shape.to_string());
        return Tensor(data_, dtype_, shape, device_);
    }

  private:
    void* offset(std::int64_t elements) const {
        return static_cast<char*>(data_) + elements * static_cast<std::int64_t>(size_of(dtype_));
    }

    void* data_ = nullptr;
    Shape shape_;
    std::int64_t pitch_ = 0;
    DType dtype_ = DType::f32;
    DeviceKind device_ = DeviceKind::cpu;
};

}  // namespace garam
