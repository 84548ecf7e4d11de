#include "garam/core/shape.h"

#include "garam/core/error.h"

namespace garam {

Shape::Shape(std::initializer_list<std::int64_t> extents) {
    for (const std::int64_t extent : extents)
        append(extent);
}

void Shape::append(std::int64_t extent) {
    if (rank_ == kMaxRank)
        throw Error("a tensor has more than 4 dimensions, which is not supported");
    extents_[static_cast<std::size_t>(rank_++)] = extent;
}

std::int64_t Shape::elements() const {
    std::int64_t product = 1;
    for (int axis = 0; axis < rank_; ++axis) {
        if ((*this)[axis] < 0 || __builtin_mul_overflow(product, (*this)[axis], &product))
            throw Error("shape " + to_string() + " is negative or too large");
    }
    return product;
}

std::int64_t Shape::leading_product() const {
    std::int64_t product = 1;
    for (int axis = 0; axis + 1 < rank_; ++axis)
        product *= (*this)[axis];
    return product;
}

std::string Shape::to_string() const {
    std::string text = "[";
    for (int axis = 0; axis < rank_; ++axis) {
        if (axis > 0) text += ", ";
        text += std::to_string((*this)[axis]);
    }
    return text + "]";
}

bool Shape::operator==(const Shape& other) const {
    if (rank_ != other.rank_) return false;
    for (int axis = 0; axis < rank_; ++axis) {
        if ((*this)[axis] != other[axis]) return false;
    }
    return true;
}

}  // namespace garam
