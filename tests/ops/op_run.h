// Runs one op on tensors of a case, in every way in which its promises can be broken.
//
// A case declares its tensors (random inputs; poisoned outputs; rows with a poisoned pad) and then runs
// the op once by OpRun::run. That call
// - plans the op on a dry device of the same profile, where nothing can be touched;
// - computes with one thread, and again with two and three from the same start: all bits must agree
//   (unless the op does not promise it). On a card: twice, and a third time as recorded work;
// - checks that pads were left alone, and that inputs were;
// - compares step memory and cost with the plan's, and the cost with the case's.
// Outputs, pads and step memory hold poison (NaN) before each run. A body reads and writes no tensor
// itself: it may lie on a card.
// Afterwards the tensors hold the result, read as doubles.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "garam/core/philox.h"
#include "garam/runtime/stream.h"
#include "testing/cards.h"

namespace garam::testing {

// What a tensor is to the op.
enum class Role : std::uint8_t { input, output, in_place };

// The profiles that this machine can run: each instruction set up to its own, and its own without
// native bf16 or tiles of it; then its cards (testing/cards.h).
std::vector<DeviceProfile> test_profiles();
std::vector<DeviceProfile> cpu_profiles();
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
    // A dense vector of any type.
    int input_bytes(DType dtype, const void* data, std::int64_t elements);
    void set(int tensor, const std::vector<double>& values);
    // Of a dense tensor of 16-bit elements.
    void set_bits(int tensor, const std::vector<std::uint16_t>& bits);

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

        std::int64_t bytes() const { return static_cast<std::int64_t>(8 * start.size()); }
        Tensor view(void* data, DeviceKind device) const {
            return Tensor(data, dtype, {rows, columns}, device, pitch);
        }
    };
    int add(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t pad, Role role);
    // What an op needed: of step memory, and as the meter heard.
    struct Needs {
        std::int64_t peak = 0;
        Cost cost;
    };
    Needs plan(const Body& body) const;
    Needs compute(const Body& body, int threads);
    Needs compute_on_card(const Body& body, bool recorded, std::int64_t planned_peak);
    std::vector<double> read(const Memory& memory, const std::vector<std::uint64_t>& bytes) const;
    void check_untouched(const Memory& memory, std::size_t number) const;

    DeviceProfile profile_;
    std::unique_ptr<Device> cpu_;  // none for a card
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

#define GARAM_FOR_ALL_PROFILES(suite)                                                 \
    INSTANTIATE_TEST_SUITE_P(                                                         \
        Cpu, suite, ::testing::ValuesIn(::garam::testing::cpu_profiles()),            \
        [](const auto& test) { return ::garam::testing::profile_name(test.param); }); \
    INSTANTIATE_TEST_SUITE_P(                                                         \
        Cuda, suite, ::testing::ValuesIn(::garam::testing::card_profiles()),          \
        [](const auto& test) { return ::garam::testing::card_name(test.param); })
