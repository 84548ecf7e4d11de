// Extents of a tensor, outermost first, at most four; all 64-bit.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace garam {

class Shape {
  public:
    static constexpr int kMaxRank = 4;

    Shape() = default;
    Shape(std::initializer_list<std::int64_t> extents);

    int rank() const { return rank_; }
    std::int64_t operator[](int axis) const { return extents_[static_cast<std::size_t>(axis)]; }
    std::int64_t back() const { return rank_ == 0 ? 1 : (*this)[rank_ - 1]; }
    // Product of all extents; 1 for rank 0. Throws Error when it does not fit 63 bits or an extent is
    // negative (sizes in files are hostile input).
    std::int64_t elements() const;
    // Product of all extents but the last.
    std::int64_t rows() const { return back() == 0 ? leading_product() : elements() / back(); }
    void append(std::int64_t extent);
    std::string to_string() const;  // "[4096, 576]"
    bool operator==(const Shape& other) const;

  private:
    std::int64_t leading_product() const;
    std::array<std::int64_t, kMaxRank> extents_{};
    int rank_ = 0;
};

}  // namespace garam
