// The matrix product of oneDNN, behind a header of our own.
//
// A Product is everything that its generated code depends on. Preparing one costs tens of
// microseconds to milliseconds, so prepared ones are kept (the least recently used of many is
// dropped). Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "garam/core/dtype.h"

namespace garam {

struct OnednnProduct {
    std::int64_t m = 0, n = 0, k = 0;  // all >= 1
    DType in = DType::f32;
    DType out = DType::f32;
    // Strides in elements of op(a) [m, k] and op(b) [k, n]; c's rows are contiguous.
    std::int64_t a_row = 0, a_column = 0, b_row = 0, b_column = 0, c_row = 0;
    float alpha = 1;
    bool accumulate = false;
    int threads = 1;

    bool operator==(const OnednnProduct&) const = default;
};

class PreparedProduct {
  public:
    virtual ~PreparedProduct() = default;
    virtual std::int64_t scratch_bytes() const = 0;
    // `scratch` as many bytes as asked for, 64-byte aligned.
    virtual void execute(const void* a, const void* b, void* c, void* scratch) const = 0;
};

std::shared_ptr<const PreparedProduct> prepare(const OnednnProduct& product);

}  // namespace garam
