// Decoding, quantising and multiplying with 4-bit weights on a card, beside the rate of a copy in the same run: the
// matrices of the 2.4B and of an 8B shape, as many of each as outgrow the card's cache, in recorded runs.
//
//   quantized_bench [device [matrix [part]]]      cuda and all of them unless named; lines with this part of their name
//
// A line has the median of the runs and half the distance of their quartiles, the bytes that the work must move a
// second, and these as a part of the copy's. bf16 products of the same shapes stand beside those of codes.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "garam/core/philox.h"
#include "garam/ops/dequantize.h"
#include "garam/ops/elementwise.h"
#include "garam/ops/quantized_matmul.h"
#include "garam/ops/quantized_row_matmul.h"
#include "garam/runtime/transfer.h"

namespace garam::bench {
namespace {

constexpr std::int64_t kCached = std::int64_t{160} << 20;  // bytes that no cache holds
constexpr std::int64_t kCopied = std::int64_t{1} << 30;
constexpr int kRepeats = 15;
constexpr std::int64_t kRuns = 32;  // at least, of a recording
constexpr float kEps = 1e-5f;

struct Matrix {
    const char* name;
    std::int64_t rows, columns;
};

struct Timing {
    double median = 0, spread = 0;  // seconds
};

class Bench {
  public:
    Bench(const DeviceProfile& profile, std::string part)
        : part_(std::move(part)),
          device_(make_device(profile)),
          arena_(*device_, std::int64_t{3} << 30),
          stream_(*device_, arena_, meter_) {}

    void measure_copy() {
        const ScratchScope scope(arena_);
        const Tensor from = random(1024, kCopied / 2048);
        const Tensor to = arena_.scratch(DType::bf16, {1024, kCopied / 2048});
        const Timing t = time(1, [&](std::int64_t) { cast(stream_, from, to); });
        copy_ = 2.0 * static_cast<double>(kCopied) / t.median;
        std::printf("copy of 1 GiB: %.1f GB/s, spread %.1f %%\n", copy_ * 1e-9,
                    100 * t.spread / t.median);
    }

    void run(const Matrix& shape) {
        std::printf("%s [%ld, %ld]\n", shape.name, static_cast<long>(shape.rows),
                    static_cast<long>(shape.columns));
        products_of_bf16(shape);
        for (const bool is_double : {false, true})
            run(shape, QuantFormat::nf4, is_double);
        run(shape, QuantFormat::fp4, true);
    }

  private:
    // Whether the part asked for begins with the name of other weights, so that these need not be made.
    bool is_of_another(const std::string& name) const {
        const std::size_t shared = std::min(part_.size(), name.size());
        const std::string kind = part_.substr(0, 3);
        return (kind == "nf4" || kind == "fp4" || kind == "bf1") &&
               part_.compare(0, shared, name, 0, shared) != 0;
    }
    static double bytes_of(const QuantizedMatrix& matrix) {
        double bytes = static_cast<double>(matrix.codes.bytes() + matrix.absmax.bytes());
        if (matrix.is_double()) bytes += static_cast<double>(matrix.nested_absmax.bytes() + 4);
        return bytes;
    }
    Tensor random(std::int64_t rows, std::int64_t columns) {
        const Tensor x = arena_.scratch(DType::bf16, {rows, columns});
        HostTensor host(stream_, x, false);
        auto* const values = host.tensor().data<bfloat16>();
        Random random(static_cast<std::uint64_t>(rows + columns));
        // A million normal values, repeated: making them all would take longer than the run.
        const std::int64_t own = std::min<std::int64_t>(x.elements(), 1000003);
        for (std::int64_t i = 0; i < own; ++i)
            values[i] = bfloat16(static_cast<float>(random.normal()) * 0.02f);
        for (std::int64_t i = own; i < x.elements(); ++i)
            values[i] = values[i - own];
        host.write();
        return x;
    }
    QuantizedMatrix matrix_of(const Matrix& shape, QuantFormat format, bool is_double) {
        QuantizedMatrix matrix;
        matrix.format = format;
        matrix.rows = shape.rows;
        matrix.columns = shape.columns;
        matrix.codes = arena_.scratch(DType::u8, {matrix.elements() / 2});
        matrix.absmax = arena_.scratch(is_double ? DType::u8 : DType::f32, {matrix.blocks()});
        if (is_double) {
            matrix.nested_absmax = arena_.scratch(
                DType::f32, {(matrix.blocks() + matrix.nested_block - 1) / matrix.nested_block});
            matrix.offset = arena_.scratch(DType::f32, {1});
        }
        return matrix;
    }

    void run(const Matrix& shape, QuantFormat format, bool is_double) {
        const ScratchScope scope(arena_);
        const std::string label = std::string(format == QuantFormat::nf4 ? "nf4" : "fp4") +
                                  (is_double ? " double" : " plain");
        if (is_of_another(label)) return;
        const Tensor values = random(shape.rows, shape.columns);
        std::vector<QuantizedMatrix> matrices;
        std::vector<Tensor> decoded;
        const std::int64_t codes = shape.rows * shape.columns / 2;
        const std::int64_t count = std::max<std::int64_t>(2, (kCached + codes - 1) / codes);
        for (std::int64_t i = 0; i < count; ++i) {
            matrices.push_back(matrix_of(shape, format, is_double));
            quantize(stream_, values, matrices.back());
        }
        const double coded = bytes_of(matrices.front());
        const double dense = 2.0 * static_cast<double>(shape.rows * shape.columns);
        const std::int64_t sets =
            std::max<std::int64_t>(2, (kCached + 4 * codes - 1) / (4 * codes));
        for (std::int64_t i = 0; i < sets; ++i)
            decoded.push_back(random(shape.rows, shape.columns));
        row(label + ", quantize", coded + dense, sets, [&](std::int64_t i) {
            quantize(stream_, decoded[static_cast<std::size_t>(i)],
                     matrices[static_cast<std::size_t>(i % count)]);
        });
        row(label + ", dequantize", coded + dense, count, [&](std::int64_t i) {
            dequantize(stream_, matrices[static_cast<std::size_t>(i)], 0,
                       decoded[static_cast<std::size_t>(i % sets)]);
        });
        for (const std::int64_t rows : {1, 4, 16}) {
            const Tensor a = random(rows, shape.columns);
            const Tensor c = arena_.scratch(DType::bf16, {rows, shape.rows});
            row(label + ", " + std::to_string(rows) + " rows", coded, count, [&](std::int64_t i) {
                quantized_matmul(stream_, a, matrices[static_cast<std::size_t>(i)], c,
                                 {.transpose_b = true, .b_is_settled = true});
            });
        }
        const Tensor x = random(1, shape.columns);
        const Tensor other = random(1, shape.columns);
        const Tensor c = arena_.scratch(DType::bf16, {1, shape.rows});
        row(label + ", norm, 1 row", coded, count, [&](std::int64_t i) {
            rms_norm_matmul(stream_, x, other, kEps, {&matrices[static_cast<std::size_t>(i)], 1},
                            c);
        });
        row(label + ", silu, 1 row", coded, count, [&](std::int64_t i) {
            gated_activation_matmul(stream_, Activation::silu, x, other,
                                    {&matrices[static_cast<std::size_t>(i)], 1}, c);
        });
    }
    void products_of_bf16(const Matrix& shape) {
        if (is_of_another("bf16")) return;
        const ScratchScope scope(arena_);
        const double dense = 2.0 * static_cast<double>(shape.rows * shape.columns);
        const std::int64_t count =
            std::max<std::int64_t>(2, kCached / (2 * shape.rows * shape.columns) + 1);
        std::vector<Tensor> weights;
        for (std::int64_t i = 0; i < count; ++i)
            weights.push_back(random(shape.rows, shape.columns));
        const Tensor a = random(1, shape.columns);
        const Tensor c = arena_.scratch(DType::bf16, {1, shape.rows});
        row("bf16, 1 row", dense, count, [&](std::int64_t i) {
            matmul(stream_, a, weights[static_cast<std::size_t>(i)], c,
                   {.transpose_b = true, .b_is_settled = true});
        });
    }

    void row(const std::string& name, double bytes, std::int64_t runs,
             const std::function<void(std::int64_t)>& work) {
        if (name.find(part_) == std::string::npos) return;
        const Timing t = time(runs, work);
        const double rate = bytes / t.median;
        std::printf("    %-28s %9.2f us, spread %4.1f %% %9.1f GB/s %7.1f %%\n", name.c_str(),
                    t.median * 1e6, 100 * t.spread / t.median, rate * 1e-9, 100 * rate / copy_);
        std::fflush(stdout);
    }
    // Of one of many in a row, as the products of a layer are: the launch of a recording counts little.
    Timing time(std::int64_t different, const std::function<void(std::int64_t)>& work) {
        const std::int64_t runs = different * ((kRuns + different - 1) / different);
        work(0);  // loads kernels, which is not for a recording
        device_->begin_recording(stream_.queue());
        for (std::int64_t i = 0; i < runs; ++i)
            work(i % different);
        const auto recorded = device_->end_recording(stream_.queue());
        std::vector<double> seconds;
        for (int repeat = 0; repeat <= kRepeats; ++repeat) {
            const auto begin = device_->make_event();
            const auto end = device_->make_event();
            begin->record(stream_.queue());
            recorded->enqueue(stream_.queue());
            end->record(stream_.queue());
            const double one = end->seconds_since(*begin) / static_cast<double>(runs);
            if (repeat > 0) seconds.push_back(one);  // the first one warms up
        }
        std::sort(seconds.begin(), seconds.end());
        const std::size_t n = seconds.size();
        return {seconds[n / 2], (seconds[n * 3 / 4] - seconds[n / 4]) / 2};
    }

    std::string part_;  // of a line's name
    std::unique_ptr<Device> device_;
    Arena arena_;
    Meter meter_;
    Stream stream_;
    double copy_ = 0;  // bytes a second
};

}  // namespace
}  // namespace garam::bench

int main(int argc, char** argv) {
    using garam::bench::Matrix;
    const garam::DeviceProfile profile = garam::profile_of_device(argc > 1 ? argv[1] : "cuda");
    if (!profile.is_cuda()) {
        std::fprintf(stderr, "quantized_bench: a card's kernels\n");
        return 1;
    }
    std::printf("%s\n", profile.name.c_str());
    garam::bench::Bench bench(profile, argc > 3 ? argv[3] : "");
    bench.measure_copy();
    for (const Matrix& shape :
         {Matrix{"2.4B qkv", 3840, 2560}, Matrix{"2.4B o", 2560, 2560},
          Matrix{"2.4B gate_up", 14336, 2560}, Matrix{"2.4B down", 2560, 7168},
          Matrix{"8B qkv", 6144, 4096}, Matrix{"8B o", 4096, 4096},
          Matrix{"8B gate_up", 28672, 4096}, Matrix{"8B down", 4096, 14336}})
        if (argc <= 2 || std::strcmp(argv[2], shape.name) == 0) bench.run(shape);
    bench.measure_copy();
    return 0;
}
