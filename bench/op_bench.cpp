// Times of the ops at the sizes of SmolLM2-135M with 1024 tokens, beside their floor.
//
// Each row prints GFLOP/s and GB/s from the op's own declared cost, and `of_copy`: the share of the
// bandwidth that a plain copy of the same machine reaches in the same run (for ops bound by memory). Run with
// --benchmark_repetitions=5 for medians and spread; with --per_core (first argument) for one thread and
// processor time, which other work on the machine distorts less.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cpu_tensors.h"
#include "garam/core/parallel.h"
#include "garam/ops/adamw_8bit.h"
#include "garam/ops/attention.h"
#include "garam/ops/bias.h"
#include "garam/ops/cross_entropy.h"
#include "garam/ops/dora.h"
#include "garam/ops/dropout.h"
#include "garam/ops/elementwise.h"
#include "garam/ops/embedding.h"
#include "garam/ops/gated_activation.h"
#include "garam/ops/matmul.h"
#include "garam/ops/optimizer_step.h"
#include "garam/ops/rms_norm.h"
#include "garam/ops/rotary.h"

namespace garam {
namespace {

constexpr std::int64_t kTokens = 1024;
constexpr std::int64_t kHidden = 576;
constexpr std::int64_t kFfn = 1536;
constexpr std::int64_t kVocab = 49152;
constexpr std::int64_t kHeads = 9;
constexpr std::int64_t kKvHeads = 3;
constexpr std::int64_t kHeadDim = 64;

// One thread, and rates by processor time: comparable even while the machine does other work.
bool per_core = false;

class Bench : public bench::CpuTensors {
  public:
    Bench() : CpuTensors(std::int64_t{1} << 30) {}

    template <typename T>
    Tensor integers(std::int64_t count, const std::function<T(std::int64_t)>& value) {
        const Tensor x = allocate(dtype_of<T>::value, {count});
        for (std::int64_t i = 0; i < count; ++i)
            x.data<T>()[i] = value(i);
        return x;
    }

    void time(benchmark::State& state, const std::function<void(Stream&)>& op) {
        meter().enable(true);
        op(stream());
        const Cost cost = meter().total().cost;
        meter().enable(false);
        for (auto _ : state)
            op(stream());
        const double runs = static_cast<double>(state.iterations());
        using benchmark::Counter;
        state.counters["GFLOP/s"] = Counter(cost.flops * runs * 1e-9, Counter::kIsRate);
        const double bytes = (cost.bytes_read + cost.bytes_written) * runs * 1e-9;
        state.counters["GB/s"] = Counter(bytes, Counter::kIsRate);
        state.counters["of_copy"] = Counter(bytes / copy_bandwidth(), Counter::kIsRate);
    }

    static double seconds_now() {
        if (per_core) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
        return std::chrono::duration<double>(Meter::Clock::now().time_since_epoch()).count();
    }

    // GB/s read plus written by a threaded copy between buffers that outgrow the caches.
    static double copy_bandwidth() {
        static const double kBandwidth = [] {
            constexpr std::size_t kBytes = std::size_t{256} << 20;
            std::vector<char> from(kBytes, 1), to(kBytes, 2);
            double best = 0;
            for (int repeat = 0; repeat < 7; ++repeat) {
                const double start = seconds_now();
                parallel_for(kBytes, std::int64_t{1} << 20, [&](std::int64_t b, std::int64_t e) {
                    std::memcpy(to.data() + b, from.data() + b, static_cast<std::size_t>(e - b));
                });
                best = std::max(best, 2e-9 * kBytes / (seconds_now() - start));
            }
            return best;
        }();
        return kBandwidth;
    }
};

void add_benchmark(const std::string& name, DType dtype,
                   const std::function<void(benchmark::State&, Bench&, DType)>& body) {
    const auto run = [body, dtype](benchmark::State& state) {
        Bench bench;
        body(state, bench, dtype);
    };
    auto* const entry =
        benchmark::RegisterBenchmark((name + "/" + std::string(name_of(dtype))).c_str(), run)
            ->Unit(benchmark::kMicrosecond);
    if (!per_core) entry->UseRealTime();
}

void add_matmul(DType dtype, std::int64_t in, std::int64_t out) {
    const std::string size =
        std::to_string(kTokens) + "x" + std::to_string(in) + "x" + std::to_string(out);
    // y = x W', W [out, in]
    add_benchmark("matmul/y " + size, dtype, [=](auto& state, Bench& b, DType t) {
        const Tensor x = b.floats(t, kTokens, in), w = b.floats(t, out, in),
                     y = b.floats(t, kTokens, out);
        b.time(state, [&](Stream& s) { matmul(s, x, w, y, {.transpose_b = true}); });
    });
    add_benchmark("matmul/dx " + size, dtype, [=](auto& state, Bench& b, DType t) {
        const Tensor dy = b.floats(t, kTokens, out), w = b.floats(t, out, in),
                     dx = b.floats(t, kTokens, in);
        b.time(state, [&](Stream& s) { matmul(s, dy, w, dx); });
    });
    add_benchmark("matmul/dw " + size, dtype, [=](auto& state, Bench& b, DType t) {
        const Tensor dy = b.floats(t, kTokens, out), x = b.floats(t, kTokens, in),
                     dw = b.floats(DType::f32, out, in);
        b.time(state,
               [&](Stream& s) { matmul(s, dy, x, dw, {.transpose_a = true, .accumulate = true}); });
    });
}

void add_attention(DType dtype) {
    const AttentionShape shape{kHeads, kKvHeads, kHeadDim, 0.125f};
    const AttentionSegments segments{{0, 256, 512, 768, 1024}, {0, 256, 512, 768, 1024}};
    add_benchmark("attention_forward/4x256", dtype, [=](auto& state, Bench& b, DType t) {
        const Tensor q = b.floats(t, kTokens, kHeads * kHeadDim),
                     k = b.floats(t, kTokens, kKvHeads * kHeadDim),
                     v = b.floats(t, kTokens, kKvHeads * kHeadDim),
                     out = b.floats(t, kTokens, kHeads * kHeadDim),
                     lse = b.floats(DType::f32, kTokens, kHeads);
        b.time(state, [&](Stream& s) { attention_forward(s, shape, segments, q, k, v, out, lse); });
    });
    add_benchmark("attention_backward/4x256", dtype, [=](auto& state, Bench& b, DType t) {
        const Tensor q = b.floats(t, kTokens, kHeads * kHeadDim),
                     k = b.floats(t, kTokens, kKvHeads * kHeadDim),
                     v = b.floats(t, kTokens, kKvHeads * kHeadDim),
                     out = b.floats(t, kTokens, kHeads * kHeadDim),
                     dout = b.floats(t, kTokens, kHeads * kHeadDim),
                     dq = b.floats(t, kTokens, kHeads * kHeadDim),
                     dk = b.floats(t, kTokens, kKvHeads * kHeadDim),
                     dv = b.floats(t, kTokens, kKvHeads * kHeadDim),
                     lse = b.floats(DType::f32, kTokens, kHeads);
        b.time(state, [&](Stream& s) {
            attention_forward(s, shape, segments, q, k, v, out, lse);
            attention_backward(s, shape, segments, dout, q, k, v, out, lse, dq, dk, dv);
        });
    });
}

void add_memory_bound(DType dtype) {
    add_benchmark("rms_norm_forward", dtype, [](auto& state, Bench& b, DType t) {
        const Tensor x = b.floats(t, 8 * kTokens, kHidden), w = b.floats(t, 1, kHidden),
                     y = b.floats(t, 8 * kTokens, kHidden),
                     rstd = b.floats(DType::f32, 1, 8 * kTokens);
        b.time(state, [&](Stream& s) { rms_norm_forward(s, x, w, 1e-5f, y, rstd); });
    });
    for (const bool learns : {false, true}) {
        add_benchmark(
            learns ? "rms_norm_backward/weight" : "rms_norm_backward", dtype,
            [learns](auto& state, Bench& b, DType t) {
                const Tensor x = b.floats(t, 8 * kTokens, kHidden), w = b.floats(t, 1, kHidden),
                             dy = b.floats(t, 8 * kTokens, kHidden),
                             dx = b.floats(t, 8 * kTokens, kHidden),
                             rstd = b.floats(DType::f32, 1, 8 * kTokens),
                             dw = b.floats(DType::f32, 1, kHidden);
                b.time(state, [&](Stream& s) {
                    rms_norm_backward(s, dy, x, w, rstd, dx, false, learns ? dw : Tensor());
                });
            });
    }
    add_benchmark("gated_activation_forward", dtype, [](auto& state, Bench& b, DType t) {
        const Tensor g = b.floats(t, 8 * kTokens, kFfn), u = b.floats(t, 8 * kTokens, kFfn),
                     y = b.floats(t, 8 * kTokens, kFfn);
        b.time(state, [&](Stream& s) { gated_activation_forward(s, Activation::silu, g, u, y); });
    });
    add_benchmark("gated_activation_backward", dtype, [](auto& state, Bench& b, DType t) {
        const Tensor g = b.floats(t, 8 * kTokens, kFfn), u = b.floats(t, 8 * kTokens, kFfn),
                     y = b.floats(t, 8 * kTokens, kFfn), dg = b.floats(t, 8 * kTokens, kFfn),
                     du = b.floats(t, 8 * kTokens, kFfn);
        b.time(state,
               [&](Stream& s) { gated_activation_backward(s, Activation::silu, y, g, u, dg, du); });
    });
    add_benchmark("rotary", dtype, [](auto& state, Bench& b, DType t) {
        const Tensor x = b.floats(t, 8 * kTokens, kHeads * kHeadDim),
                     c = b.floats(DType::f32, 2048, kHeadDim / 2),
                     sn = b.floats(DType::f32, 2048, kHeadDim / 2);
        const Tensor p = b.integers<std::int32_t>(
            8 * kTokens, [](std::int64_t i) { return static_cast<std::int32_t>(i % 2048); });
        b.time(state, [&](Stream& s) { rotary(s, x, kHeadDim, c, sn, p, false); });
    });
    for (const bool gradient : {false, true})
        add_benchmark(gradient ? "cross_entropy/gradient" : "cross_entropy", dtype,
                      [gradient](auto& state, Bench& b, DType t) {
                          const Tensor x = b.floats(t, 256, kVocab),
                                       losses = b.floats(DType::f32, 1, 256);
                          const Tensor targets = b.integers<std::int32_t>(256, [](std::int64_t i) {
                              return static_cast<std::int32_t>(i * 100);
                          });
                          b.time(state, [&](Stream& s) {
                              cross_entropy(s, x, targets, losses, gradient ? x : Tensor());
                          });
                      });
    add_benchmark("dropout", dtype, [](auto& state, Bench& b, DType t) {
        const Tensor x = b.floats(t, 8 * kTokens, kHidden), y = b.floats(t, 8 * kTokens, kHidden);
        DropoutKey key{1, {}, 3, {}, {}};
        key.step = b.integers<std::int32_t>(1, [](std::int64_t) { return 2; });
        key.positions = b.integers<std::int32_t>(
            8 * kTokens, [](std::int64_t i) { return static_cast<std::int32_t>(i % 256); });
        key.samples = b.integers<std::int64_t>(8 * kTokens, [](std::int64_t i) { return i / 256; });
        b.time(state, [&](Stream& s) { dropout(s, x, 0.05f, key, y, false); });
    });
    add_benchmark("add", dtype, [](auto& state, Bench& b, DType t) {
        const Tensor x = b.floats(t, 16 * kTokens, kHidden), y = b.floats(t, 16 * kTokens, kHidden),
                     z = b.floats(t, 16 * kTokens, kHidden);
        b.time(state, [&](Stream& s) { add(s, x, y, z); });
    });
    add_benchmark("cast/from f32", dtype, [](auto& state, Bench& b, DType t) {
        const Tensor x = b.floats(DType::f32, 16 * kTokens, kHidden),
                     y = b.floats(t, 16 * kTokens, kHidden);
        b.time(state, [&](Stream& s) { cast(s, x, y); });
    });
    add_benchmark("embedding_forward", dtype, [](auto& state, Bench& b, DType t) {
        const Tensor table = b.floats(t, kVocab, kHidden), y = b.floats(t, 8 * kTokens, kHidden);
        const Tensor ids = b.integers<std::int32_t>(8 * kTokens, [](std::int64_t i) {
            return static_cast<std::int32_t>(i * 7919 % kVocab);
        });
        b.time(state, [&](Stream& s) { embedding_forward(s, ids, table, y); });
    });
    add_benchmark("bias_backward", dtype, [](auto& state, Bench& b, DType t) {
        const Tensor dy = b.floats(t, 8 * kTokens, kFfn), db = b.floats(DType::f32, 1, kFfn);
        b.time(state, [&](Stream& s) { bias_backward(s, dy, db); });
    });
    add_benchmark("dora_scale/r16", dtype, [](auto& state, Bench& b, DType t) {
        constexpr DType f32 = DType::f32;
        const DoraScale dora{
            b.floats(t, kFfn, kHidden), b.floats(f32, 16, kHidden), b.floats(f32, kFfn, 16), 2.0f,
            b.floats(f32, 1, kFfn),     b.floats(f32, 1, kFfn),     b.floats(f32, 1, kFfn)};
        b.time(state, [&](Stream& s) { dora_scale(s, dora); });
    });
    add_benchmark("scale_columns", dtype, [](auto& state, Bench& b, DType t) {
        const Tensor x = b.floats(t, 8 * kTokens, kHidden), y = b.floats(t, 8 * kTokens, kHidden),
                     c = b.floats(DType::f32, 1, kHidden);
        b.time(state, [&](Stream& s) { scale_columns(s, x, c, 0, {}, y, y); });
    });
    add_benchmark("dora_backward", dtype, [](auto& state, Bench& b, DType t) {
        const Tensor dy = b.floats(t, 8 * kTokens, kFfn), z = b.floats(t, 8 * kTokens, kFfn),
                     dz = b.floats(t, 8 * kTokens, kFfn), c = b.floats(DType::f32, 1, kFfn),
                     n = b.floats(DType::f32, 1, kFfn), dm = b.floats(DType::f32, 1, kFfn);
        b.time(state, [&](Stream& s) { dora_backward(s, dy, z, c, n, dz, dm); });
    });
}

void add_f32_only() {
    constexpr DType f32 = DType::f32;
    add_benchmark("add_sum_of_squares", f32, [](auto& state, Bench& b, DType t) {
        const Tensor x = b.floats(t, 32 * kTokens, kHidden), sum = b.floats(t, 1, 1);
        b.time(state, [&](Stream& s) { add_sum_of_squares(s, x, sum); });
    });
    add_benchmark("adamw_step", f32, [](auto& state, Bench& b, DType t) {
        const Tensor w = b.floats(t, 8 * kTokens, kHidden), g = b.floats(t, 8 * kTokens, kHidden),
                     m = b.floats(t, 8 * kTokens, kHidden), v = b.floats(t, 8 * kTokens, kHidden),
                     scale = b.floats(t, 1, 1);
        scale.data<float>()[0] = 1.0f;
        for (std::int64_t i = 0; i < v.elements(); ++i)
            v.data<float>()[i] = 1e-3f;
        AdamWOptions options;
        options.learning_rate = 1e-4;
        b.time(state, [&](Stream& s) { adamw_step(s, options, w, g, scale, m, v); });
    });
    add_benchmark("adamw_8bit_step", f32, [](auto& state, Bench& b, DType t) {
        const std::int64_t n = 8 * kTokens * kHidden;
        const std::int64_t blocks = adamw_8bit_blocks(n);
        const Tensor w = b.floats(t, 1, n).reshape({n}), g = b.floats(t, 1, n).reshape({n}),
                     scale = b.floats(t, 1, 1), m_absmax = b.floats(t, 1, blocks).reshape({blocks}),
                     v_absmax = b.floats(t, 1, blocks).reshape({blocks});
        const auto codes = [&b](std::int64_t count) {
            return b.integers<std::uint8_t>(
                count, [](std::int64_t i) { return static_cast<std::uint8_t>(i * 37); });
        };
        const AdamW8bitStates states{codes(blocks * kAdamW8bitBlock),
                                     codes(blocks * kAdamW8bitBlock), m_absmax, v_absmax};
        for (std::int64_t i = 0; i < blocks; ++i)
            m_absmax.data<float>()[i] = v_absmax.data<float>()[i] = 1e-3f;
        scale.data<float>()[0] = 1.0f;
        AdamWOptions options;
        options.learning_rate = 1e-4;
        const std::vector<AdamW8bitItem> items = {{w, g, 0}};
        b.time(state, [&](Stream& s) { adamw_8bit_step(s, options, items, states, 0, scale); });
    });
}

}  // namespace
}  // namespace garam

int main(int argc, char** argv) {
    using garam::DType;
    if (argc > 1 && std::strcmp(argv[1], "--per_core") == 0) {
        garam::per_core = true;
        garam::set_num_threads(1);
        argv[1] = argv[0];
        ++argv;
        --argc;
    }
    for (const DType dtype : {DType::f32, DType::bf16}) {
        garam::add_matmul(dtype, 576, 576);
        garam::add_matmul(dtype, 576, 192);
        garam::add_matmul(dtype, 576, 1536);
        garam::add_matmul(dtype, 1536, 576);
        garam::add_matmul(dtype, 576, 49152);
        garam::add_matmul(dtype, 576, 16);
        garam::add_attention(dtype);
        garam::add_memory_bound(dtype);
    }
    garam::add_f32_only();
    benchmark::AddCustomContext("copy_GB/s", std::to_string(garam::Bench::copy_bandwidth()));
    benchmark::AddCustomContext("processor", garam::detect_cpu_profile().name);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
