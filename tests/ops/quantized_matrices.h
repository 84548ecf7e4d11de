// Quantised matrices for tests of ops: made on the host, their tensors added to an OpRun.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "garam/quant/quantized_matrix.h"
#include "ops/op_run.h"

namespace garam::testing {

class TestMatrix {
  public:
    // 4-bit ones of normal numbers; GGUF's of random codes under scales of an ordinary size.
    TestMatrix(QuantFormat format, std::int64_t rows, std::int64_t columns, std::int64_t block,
               bool is_double, std::uint64_t seed = 5);

    // The tensors as inputs of a run, and the matrix of the run's tensors.
    void add_to(OpRun& run);
    QuantizedMatrix of(const std::vector<Tensor>& tensors) const;

    // As quant/ decodes it, rounded to the type.
    std::vector<double> values(DType dtype) const;
    double bytes() const;  // of codes and scales
    std::string name() const;

  private:
    QuantizedMatrix shape_;
    std::vector<std::uint8_t> codes_, absmax_codes_;
    std::vector<float> absmax_, nested_absmax_, offset_;
    int first_ = 0;  // its tensors' numbers begin here
};

// Tensors for quantize to write into.
class TestOutputs {
  public:
    TestOutputs(OpRun& run, QuantFormat format, std::int64_t rows, std::int64_t columns,
                std::int64_t block, bool is_double);
    QuantizedMatrix of(const std::vector<Tensor>& tensors) const;
    int codes() const { return first_; }
    int absmax() const { return first_ + 1; }
    int nested_absmax() const { return first_ + 2; }
    int offset() const { return first_ + 3; }

  private:
    QuantizedMatrix shape_;
    bool is_double_;
    int first_;
};

}  // namespace garam::testing
