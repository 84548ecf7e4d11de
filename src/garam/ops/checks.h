// What the entries of ops have in common: checks of their operands, and the size of operands in
// bytes.
#pragma once

#include <initializer_list>
#include <string>

#include "garam/runtime/stream.h"

namespace garam {

inline void check_operand(const Stream& stream, const char* op, const Tensor& x) {
    GARAM_CHECK(x.device() == stream.device().kind(),
                std::string(op) + ": tensor on " + std::string(name_of(x.device())) +
                    ", stream on " + std::string(name_of(stream.device().kind())));
    GARAM_CHECK(x.raw() != nullptr || x.elements() == 0,
                std::string(op) + ": no memory behind " + x.shape().to_string());
}

// A matrix of the given extents and dtype.
inline void check_matrix(const Stream& stream, const char* op, const Tensor& x, std::int64_t rows,
                         std::int64_t columns, DType dtype) {
    check_operand(stream, op, x);
    GARAM_CHECK(x.dtype() == dtype && x.rows() == rows && x.columns() == columns,
                std::string(op) + ": got " + std::string(name_of(x.dtype())) + " " +
                    x.shape().to_string() + ", expected " + std::string(name_of(dtype)) + " [" +
                    std::to_string(rows) + ", " + std::to_string(columns) + "]");
}

// A dense tensor of `elements` elements, whatever its rank.
inline void check_vector(const Stream& stream, const char* op, const Tensor& x,
                         std::int64_t elements, DType dtype) {
    check_operand(stream, op, x);
    GARAM_CHECK(x.dtype() == dtype && x.elements() == elements && x.is_dense(),
                std::string(op) + ": got " + std::string(name_of(x.dtype())) + " " +
                    x.shape().to_string() + ", expected dense " + std::string(name_of(dtype)) +
                    " [" + std::to_string(elements) + "]");
}

// f32 or bf16, the two types that ops compute with.
inline void check_compute_dtype(const char* op, const Tensor& x) {
    GARAM_CHECK(x.dtype() == DType::f32 || x.dtype() == DType::bf16,
                std::string(op) + ": f32 or bf16, not " + std::string(name_of(x.dtype())));
}

inline double bytes_of(std::initializer_list<const Tensor*> operands) {
    double bytes = 0;
    for (const Tensor* x : operands)
        bytes += static_cast<double>(x->bytes());
    return bytes;
}

}  // namespace garam
