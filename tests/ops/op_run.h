// Runs one op on tensors of a case, in every way in which its promises can be broken.
//
// A case declares its tensors (random inputs; poisoned outputs; rows with a poisoned pad) and then runs
// the op once by OpRun::run. That call
// - computes with one thread, and again with two and three from the same start: all bits must agree
//   (unless the op does not promise it);
// - checks that pads were left alone, and that inputs were;
// - repeats the op on a dry device of the same profile: same peak of step memory, same cost, nothing
//   touched (its memory cannot be);
// - compares the declared cost with the case's.
// Afterwards the tensors hold the result, read as doubles.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "garam/core/philox.h"
#include "garam/runtime/stream.h"

namespace garam::testing {

// What a tensor is to the op.
enum class Role : std::uint8_t { input, output, in_place };

// The profiles that this machine can run: each instruction set up to its own, and its own without
// native bf16.
std::vector<DeviceProfile> test_profiles();
std::string profile_name(const DeviceProfile& profile);

// The largest relative error of one rounding: half the distance of neighbours at 1.
constexpr double unit_of(DType dtype) {
    return dtype == DType::bf16 ? 0x1p-8 : 0x1p-24;
}

class OpRun {
  public:
    explicit OpRun(const DeviceProfile& profile, std::uint64_t seed = 1);

    // Each adds a tensor and returns its number. `pad` elements of poison follow each row.
    int input(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t pad = 0);
    int output(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t pad = 0);
    // Random to begin with, and changed by the op.
    int in_place(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t pad = 0);
    int integers(const std::vector<std::int32_t>& values);
    int integers64(const std::vector<std::int64_t>& values);
    void set(int tensor, const std::vector<double>& values);

    // The op's call, on whichever device; t[i] is the tensor of number i.
    using Body = std::function<void(Stream& stream, const std::vector<Tensor>& t)>;
    void run(const Body& body, const Cost& cost, bool same_bits_for_any_threads = true);

    // Elements row after row, without pads.
    std::vector<double> values(int tensor) const;
    // As they were before the run.
    std::vector<double> before(int tensor) const;
    Random& random() { return random_; }

  private:
    struct Memory {
        DType dtype;
        std::int64_t rows, columns, pitch;
        Role role;
        std::vector<std::uint64_t> now, start;  // 8-byte aligned
    };
    int add(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t pad, Role role);
    std::vector<Tensor> views();
    void compute(const Body& body, int threads, std::int64_t& peak, Cost& cost);
    std::vector<double> read(const Memory& memory, const std::vector<std::uint64_t>& bytes) const;
    void check_untouched(const Memory& memory, std::size_t number) const;

    DeviceProfile profile_;
    std::unique_ptr<Device> device_;
    Random random_;
    std::vector<Memory> memories_;
};

// |got - want| <= bound, element by element; NaN never passes. Reports the worst element.
void expect_within(const std::vector<double>& got, const std::vector<double>& want,
                   const std::vector<double>& bound, const std::string& what);
// The same with bound = relative * |want| + absolute.
void expect_close(const std::vector<double>& got, const std::vector<double>& want, double relative,
                  double absolute, const std::string& what);

// d(sum of weights * f(x)) / dx[i] by two-sided differences in double precision. The error is about
// h^2 |f'''| / 6 + 2^-53 |f| / h, some 1e-9 of |f| with h = 1e-5.
using Function = std::function<std::vector<double>(const std::vector<double>& x)>;
double numeric_derivative(const Function& f, const std::vector<double>& x, std::size_t i,
                          const std::vector<double>& weights);
// Gradient by all elements of x; where x is long only some `most`, the others come back as NaN.
std::vector<double> numeric_gradient(const Function& f, const std::vector<double>& x,
                                     const std::vector<double>& weights, std::size_t most = 400);
// expect_within at the elements where want is not NaN.
void expect_gradient(const std::vector<double>& got, const std::vector<double>& want,
                     double relative, double absolute, const std::string& what);

// Tests of an op run once for each profile.
class OpTest : public ::testing::TestWithParam<DeviceProfile> {};

}  // namespace garam::testing

#define GARAM_FOR_ALL_PROFILES(suite)                                       \
    INSTANTIATE_TEST_SUITE_P(                                               \
        Cpu, suite, ::testing::ValuesIn(::garam::testing::test_profiles()), \
        [](const auto& test) { return ::garam::testing::profile_name(test.param); })
