// Products with a quantised weight on the CPU beside those with the same weight in bf16, in turns, at the shapes of
// EXAONE-3.5-2.4B: 2 x 512 tokens and one, forward and backward; and decoding alone.
//
//   quantized_cpu_bench [format …]     formats of quantized_matrix.h; nf4 and nf4_double by default
//   GARAM_BENCH_THREADS=1          one thread and its processor time, which other work on the machine distorts less
//
// Prints medians of so many turns, with the first and third quartile of the ratio.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "cpu_tensors.h"
#include "garam/core/parallel.h"
#include "garam/ops/dequantize.h"
#include "garam/ops/quantized_matmul.h"
#include "garam/quant/four_bit.h"
#include "garam/quant/gguf_blocks.h"

namespace garam {
namespace {

constexpr int kTurns = 9;
bool one_thread = false;

double now() {
    timespec time{};
    clock_gettime(one_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_of(const std::function<void()>& work) {
    const double start = now();
    work();
    return now() - start;
}

double quantile(std::vector<double> values, std::size_t quarter) {
    std::sort(values.begin(), values.end());
    return values[(values.size() - 1) * quarter / 4];
}

class Bench : public bench::CpuTensors {
  public:
    Bench() : CpuTensors(256 << 20) {}

    // Speed does not depend on the codes: any bytes, with GGUF's scales zero where they are f16.
    Tensor bytes(std::int64_t count, std::uint32_t seed) {
        const Tensor tensor = allocate(DType::u8, {count});
        auto* const x = tensor.data<std::uint8_t>();
        for (std::int64_t i = 0; i < count; ++i) {
            seed = seed * 1664525u + 1013904223u;
            x[i] = static_cast<std::uint8_t>(seed >> 24 & 0x3f);  // no f16 of these is infinite
        }
        return tensor;
    }
};

QuantizedMatrix matrix_of(Bench& bench, const std::string& format, std::int64_t rows,
                          std::int64_t columns) {
    QuantizedMatrix matrix;
    const bool is_double = format == "nf4_double";
    while (!is_double && name_of(matrix.format) != format) {
        if (matrix.format == QuantFormat::iq4_xs) {
            std::fprintf(stderr, "no format %s\n", format.c_str());
            std::exit(2);
        }
        matrix.format = static_cast<QuantFormat>(static_cast<int>(matrix.format) + 1);
    }
    matrix.rows = rows;
    matrix.columns = columns;
    if (!is_four_bit(matrix.format)) {
        const GgufFormat gguf = gguf_format(matrix.format);
        matrix.codes = bench.bytes(rows * columns / gguf.elements * gguf.bytes, 1);
        return matrix;
    }
    matrix.codes = bench.bytes(rows * columns / 2, 1);
    const std::int64_t blocks = matrix.blocks();
    if (!is_double) {
        matrix.absmax = bench.floats(DType::f32, 1, blocks);
        return matrix;
    }
    matrix.absmax = bench.bytes(blocks, 2);
    matrix.nested_absmax = bench.floats(DType::f32, 1, (blocks + 255) / 256);
    matrix.offset = bench.floats(DType::f32, 1, 1);
    return matrix;
}

void compare(const std::string& format, std::int64_t rows, std::int64_t out, std::int64_t in,
             bool forward) {
    Bench bench;
    const QuantizedMatrix matrix = matrix_of(bench, format, out, in);
    const Tensor weight = bench.floats(DType::bf16, out, in);
    const Tensor a = bench.floats(DType::bf16, rows, forward ? in : out);
    const Tensor c = bench.floats(DType::bf16, rows, forward ? out : in);
    const MatmulOptions options{.transpose_b = forward};
    const int repeats = rows == 1 ? 20 : 1;
    std::vector<double> plain, coded, ratio;
    for (int turn = -1; turn < kTurns; ++turn) {
        const double with_bf16 = seconds_of([&] {
            for (int i = 0; i < repeats; ++i)
                matmul(bench.stream(), a, weight, c, options);
        });
        const double with_codes = seconds_of([&] {
            for (int i = 0; i < repeats; ++i)
                quantized_matmul(bench.stream(), a, matrix, c, options);
        });
        if (turn < 0) continue;  // pages and caches
        plain.push_back(1e3 * with_bf16 / repeats);
        coded.push_back(1e3 * with_codes / repeats);
        ratio.push_back(with_codes / with_bf16);
    }
    std::printf(
        "%-10s %5lld rows, W %lld x %lld, %-8s  bf16 %8.3f ms  coded %8.3f ms  ratio %.3f "
        "(%.3f - %.3f)\n",
        format.c_str(), static_cast<long long>(rows), static_cast<long long>(out),
        static_cast<long long>(in), forward ? "forward" : "backward", quantile(plain, 2),
        quantile(coded, 2), quantile(ratio, 2), quantile(ratio, 1), quantile(ratio, 3));
    std::fflush(stdout);
}

void decode(const std::string& format, DType dtype) {
    Bench bench;
    const QuantizedMatrix matrix = matrix_of(bench, format, 2560, 2560);
    const Tensor out = bench.floats(dtype, 2560, 2560);
    std::vector<double> rates;
    for (int turn = -1; turn < kTurns; ++turn) {
        const double seconds = seconds_of([&] { dequantize(bench.stream(), matrix, 0, out); });
        if (turn >= 0) rates.push_back(1e-9 * static_cast<double>(out.bytes()) / seconds);
    }
    std::printf("%-10s decoded to %s: %.2f GB/s\n", format.c_str(),
                std::string(name_of(dtype)).c_str(), quantile(rates, 2));
    std::fflush(stdout);
}

void run(std::vector<std::string> formats) {
    const char* const threads = std::getenv("GARAM_BENCH_THREADS");
    one_thread = threads != nullptr && std::string(threads) == "1";
    if (one_thread) set_num_threads(1);
    if (formats.empty()) formats = {"nf4", "nf4_double"};
    for (const std::string& format : formats) {
        decode(format, DType::bf16);
        decode(format, DType::f32);
        for (const std::int64_t rows : {1024, 1})
            for (const auto& [out, in] : {std::pair{2560, 2560}, {7168, 2560}, {2560, 7168}})
                for (const bool forward : {true, false})
                    if (forward || rows > 1) compare(format, rows, out, in, forward);
    }
}

}  // namespace
}  // namespace garam

int main(int count, char** arguments) {
    garam::run({arguments + 1, arguments + count});
    return 0;
}
