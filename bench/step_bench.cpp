// Times training steps, their ops and decoding of a model of a named shape with random weights, beside
// the roofs of the same device measured in the same process. `step_bench --help` lists the options.
// --per_core: one thread of the processor, in its own time, which other work on the machine distorts less.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <numeric>

#include "garam/core/error.h"
#include "garam/core/parallel.h"
#include "garam/core/philox.h"
#include "garam/io/atomic_write.h"
#include "garam/ops/elementwise.h"
#include "garam/ops/matmul.h"
#include "garam/runtime/transfer.h"
#include "garam/train/memory_choice.h"
#include "garam/train/tuned_products.h"
#include "random_model.h"

namespace garam::bench {
namespace {

// Wall time, or with --per_core the time that this process was computing.
struct Clock {
    using TimePoint = double;  // seconds
    static inline bool per_core = false;
    static double now() {
        if (per_core) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
        return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }
};
double seconds_since(Clock::TimePoint begin) {
    return Clock::now() - begin;
}

struct Options {
    std::string shape = "tiny", device = "auto", recompute = "none", folder, tune, products, isa,
                base;
    double limit = 0;            // GiB
    double host_limit = 0;       // GiB
    std::int64_t resident = -1;  // projections kept decoded; -1: all, or as many as fit
    std::string optim = "adamw_torch";
    std::int64_t batch = 16, length = 512, accumulation = 1, merge = 1, rank = 16;
    std::int64_t steps = 8, warmup = 4, decode = 0, tile = 0;
    std::vector<std::int64_t> lengths;  // of samples, one after the other; empty: all `length`
    double dropout = 0.05;
    bool ops = false, phases = false, no_roofs = false, f32 = false, per_core = false, once = false;
};

struct Spread {
    double median = 0, least = 0, most = 0;
};
Spread spread_of(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return {values[values.size() / 2], values.front(), values.back()};
}

struct Roofs {
    double flops = 0;  // a second, bf16 product of 8192^3
    double bytes = 0;  // a second, device copy, read plus written
    double read = 0;   // … or reading alone, which decoding does, where that is faster
};

double seconds_of(Stream& stream, const std::function<void()>& work) {
    const auto begin_event = stream.device().make_event();
    const auto end_event = stream.device().make_event();
    const Clock::TimePoint begin = Clock::now();
    if (begin_event) begin_event->record(stream.queue());
    work();
    if (end_event) {
        end_event->record(stream.queue());
        return end_event->seconds_since(*begin_event);
    }
    return seconds_since(begin);
}

void fill_random(Stream& stream, const Tensor& tensor) {
    std::vector<bfloat16> values(static_cast<std::size_t>(tensor.elements()));
    Random random(3);
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = bfloat16(static_cast<float>(random.uniform(-1, 1)));
    copy_to_device(stream, values.data(), tensor);
    stream.synchronize();
}

Roofs measure_roofs(Device& device) {
    const bool card = device.profile().is_cuda();
    const std::int64_t n = card ? 8192 : 1024;
    // Elements, beyond every cache: processors have some of hundreds of MiB.
    const std::int64_t copied = std::int64_t{card ? 2048 : 512} << 20;
    Arena arena(device, std::max(3 * n * n * 2 + (64 << 20), 2 * copied * 2) + (512 << 20));
    Meter meter;
    Stream stream(device, arena, meter);
    const auto best_of = [&](const std::function<void()>& work) {
        for (int i = 0; i < 3; ++i)
            work();
        std::vector<double> times;
        for (int i = 0; i < 12; ++i)
            times.push_back(seconds_of(stream, work));
        return spread_of(times).median;
    };
    Roofs roofs;
    {
        const ScratchScope scope(arena);
        const Tensor a = arena.scratch(DType::bf16, {n, n});
        const Tensor b = arena.scratch(DType::bf16, {n, n});
        const Tensor c = arena.scratch(DType::bf16, {n, n});
        fill_random(stream, a);
        fill_random(stream, b);
        const double seconds = best_of([&] { matmul(stream, a, b, c, {.transpose_b = true}); });
        roofs.flops = 2.0 * static_cast<double>(n * n * n) / seconds;
    }
    const ScratchScope scope(arena);
    const Tensor from = arena.scratch(DType::bf16, {copied / 1024, 1024});
    const Tensor to = arena.scratch(DType::bf16, {copied / 1024, 1024});
    fill(stream, 1, from);
    const double seconds = best_of([&] { cast(stream, from, to); });
    roofs.bytes = roofs.read = 4.0 * static_cast<double>(copied) / seconds;
    if (!card) {
        const Tensor floats(from.raw(), DType::f32, {copied / 2048, 1024}, device.kind());
        const Tensor sum = arena.scratch(DType::f32, {1});
        clear(stream, floats);
        const double reading = best_of([&] { add_sum_of_squares(stream, floats, sum); });
        roofs.read = std::max(roofs.bytes, 2.0 * static_cast<double>(copied) / reading);
    }
    std::printf(
        "roofs (measured here): %.3g TFLOP/s bf16 product %ld^3, %.1f GB/s copy, %.1f GB/s read\n",
        roofs.flops * 1e-12, static_cast<long>(n), roofs.bytes * 1e-9, roofs.read * 1e-9);
    return roofs;
}

// Lengths of real samples, as the peers' scripts read them.
std::vector<std::int64_t> read_lengths(const std::string& path) {
    std::ifstream file(path);
    std::vector<std::int64_t> lengths;
    for (std::int64_t length = 0; file >> length;)
        lengths.push_back(length);
    if (lengths.empty()) throw Error("--lengths: no numbers in " + path);
    return lengths;
}

std::vector<TokenBatch> random_step(const Options& options, std::int64_t vocab, std::int64_t step) {
    Random random(static_cast<std::uint64_t>(step));
    std::vector<TokenBatch> batches;
    std::int64_t sample = step * options.accumulation * options.batch;
    for (std::int64_t m = 0; m < options.accumulation; ++m) {
        TokenBatch batch;
        for (std::int64_t s = 0; s < options.batch; ++s, ++sample) {
            std::int64_t length = options.length;
            if (!options.lengths.empty()) {
                const auto place = static_cast<std::size_t>(sample) % options.lengths.size();
                length = std::min(length, options.lengths[place]);
            }
            std::vector<std::int32_t> ids(static_cast<std::size_t>(length));
            for (std::int32_t& id : ids)
                id = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocab)));
            batch.append(ids, ids, sample);
        }
        batches.push_back(std::move(batch));
    }
    return merge_micro_batches(std::move(batches), options.merge);
}

// What steps have to do.
struct Work {
    double tokens = 0, targets = 0, pairs = 0;  // pairs of tokens that attend
    void add(const std::vector<TokenBatch>& step) {
        for (const TokenBatch& batch : step) {
            for (std::size_t s = 1; s < batch.cu_seqlens.size(); ++s) {
                const double length = batch.cu_seqlens[s] - batch.cu_seqlens[s - 1];
                tokens += length;
                targets += length - 1;
                pairs += length * (length + 1) / 2;
            }
        }
    }
};

// Arithmetic that serves the result: a frozen weight takes 2 flops forward and 2 for its input's
// gradient, an adapter's weight 2 more, attention what its allowed pairs take; nothing recomputed.
double useful_flops(const ModelShape& s, const Work& work, std::int64_t adapter_weights) {
    return 4 * static_cast<double>(s.linear_weights()) * work.tokens +
           4 * static_cast<double>(s.head_weights()) * work.targets +
           6 * static_cast<double>(adapter_weights) * work.tokens +
           12 * work.pairs * static_cast<double>(s.heads * s.head_dim * s.layers);
}

Recompute recompute_of(const std::string& name) {
    for (const Recompute r : {Recompute::nothing, Recompute::norms_and_activation,
                              Recompute::gate_up, Recompute::block, Recompute::offload})
        if (name == name_of(r)) return r;
    throw Error("--recompute: none, norms+activation, gate_up, block or offload");
}

// What the meter has heard over `repeats`, by op, the longest first.
void print_table(const Meter& meter, const Roofs& roofs, int repeats, bool phases,
                 const std::string& title, double recorded) {
    std::map<std::string, Meter::Entry> rows;
    Meter::Entry all;
    for (const auto& [key, entry] : meter.table()) {
        Meter::Entry& row = rows[phases ? key.first + " " + key.second : key.second];
        for (Meter::Entry* sum : {&row, &all}) {
            sum->cost += entry.cost;
            sum->seconds += entry.seconds;
            sum->calls += entry.calls;
        }
    }
    const auto floor_of = [&](const Cost& c) {
        return std::max(c.flops / roofs.flops, (c.bytes_read + c.bytes_written) / roofs.bytes);
    };
    std::vector<std::pair<std::string, Meter::Entry>> sorted(rows.begin(), rows.end());
    std::sort(sorted.begin(), sorted.end(),
              [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    std::printf("%-34s %7s %9s %9s %6s\n", title.c_str(), "calls", "ms", "floor ms", "x");
    for (const auto& [name, entry] : sorted) {
        const double ms = entry.seconds / repeats * 1e3;
        const double floor = floor_of(entry.cost) / repeats * 1e3;
        std::printf("%-34s %7ld %9.3f %9.3f %6.2f\n", name.c_str(),
                    static_cast<long>(entry.calls / repeats), ms, floor, ms / floor);
    }
    std::printf("%-34s %7ld %9.3f; recorded: %.3f ms\n", "all ops",
                static_cast<long>(all.calls / repeats), all.seconds / repeats * 1e3,
                recorded * 1e3);
}

void print_ops(TrainingEngine& engine, const std::vector<TokenBatch>& step, const Roofs& roofs,
               double recorded, bool phases) {
    engine.micro_steps().record_work(false);
    engine.step(step, 100, 1e-4);
    engine.meter().clear();
    engine.meter().time_device(true);
    constexpr int kSteps = 2;
    for (int i = 0; i < kSteps; ++i)
        engine.step(step, 101 + i, 1e-4);
    engine.meter().settle();
    engine.meter().time_device(false);
    engine.micro_steps().record_work(true);
    print_table(engine.meter(), roofs, kSteps, phases, "op (one step, not recorded)", recorded);
}

// The base as bitsandbytes would hold it: blocks of 64, double quantisation.
std::optional<BaseQuantization> quantization_of(const std::string& base) {
    if (base.empty()) return std::nullopt;
    if (base != "nf4" && base != "fp4") throw Error("--base: nf4 or fp4");
    BaseQuantization quantize;
    quantize.format = base == "nf4" ? QuantFormat::nf4 : QuantFormat::fp4;
    quantize.double_quantization = true;
    return quantize;
}

EngineOptions engine_options_of(const Options& o, const DeviceProfile& profile) {
    EngineOptions engine_options;
    if (o.recompute != "auto") engine_options.recompute = recompute_of(o.recompute);
    engine_options.optimizer = optimizer_from_name(o.optim);
    engine_options.tile = o.tile;
    Decoder::Options& model = engine_options.model;
    model.compute = profile.fast_bf16 && !o.f32 ? DType::bf16 : DType::f32;
    model.trained = Decoder::Trained::adapter;
    model.max_positions = o.length;
    model.quantize = quantization_of(o.base);
    if (o.resident >= 0) model.resident_projections = o.resident;
    model.lora.emplace();
    model.lora->r = o.rank;
    model.lora->lora_alpha = static_cast<double>(2 * o.rank);
    model.lora->lora_dropout = o.dropout;
    model.lora->target_modules = {"all-linear"};
    return engine_options;
}

// Tunes the products of a step and writes the table to o.tune.
void tune(const Options& o, const DeviceProfile& profile, const ModelFiles& files) {
    const Clock::TimePoint begin = Clock::now();
    const ProductCounts counts = count_products(profile, files, engine_options_of(o, profile),
                                                {random_step(o, model_shape(o.shape).vocab, 0)});
    const auto device = make_device(profile);
    const ProductTable table = tune_products(*device, counts);
    write_file_atomically(o.tune, table.to_text());
    double heuristic = 0;
    double best = 0;
    for (const auto& [product, tuned] : table.products) {
        if (tuned.calls == 0 && !tuned.is_a_choice()) continue;
        std::printf("%-46s %7.1f calls, %9.1f us by the heuristic, %9.1f tuned%s\n",
                    product.to_string().c_str(), tuned.calls, tuned.heuristic_us, tuned.tuned_us,
                    tuned.two_products ? ", as two products" : "");
        heuristic += tuned.calls * tuned.heuristic_us;
        best += tuned.calls * tuned.tuned_us;
    }
    std::printf("products of a step: %.3f ms by the heuristic, %.3f ms tuned; found in %.1f s\n",
                heuristic * 1e-3, best * 1e-3, seconds_since(begin));
}

void bench_steps(Options o, Device& device, const ModelFiles& files, const Roofs& roofs) {
    const ModelShape& shape = model_shape(o.shape);
    EngineOptions engine_options = engine_options_of(o, device.profile());
    const BatchBounds bounds{o.batch * o.length, o.length, o.batch * (o.length - 1), o.batch};
    MemoryPlan plan;
    if (o.limit > 0 || o.host_limit > 0 || o.merge == 0 || o.recompute == "auto") {
        const MemoryChoice choice = choose_memory(
            {.profile = device.profile(),
             .files = files,
             .engine = engine_options,
             .training = bounds,
             .evaluation = {},
             .accumulation = o.accumulation,
             .chooses_recompute = o.recompute == "auto",
             .merged = o.merge,
             .limit = static_cast<std::int64_t>(o.limit * static_cast<double>(1 << 30)),
             .host_limit = static_cast<std::int64_t>(o.host_limit * static_cast<double>(1 << 30))});
        if (!choice.fits) std::printf("does not fit: ");
        plan = choice.plan;
        o.merge = choice.merged;
        o.recompute = name_of(choice.recompute);
        choice.apply_to(engine_options);
        std::printf("planned: step of %.4f s%s%s%s\n", plan.step_time.seconds(),
                    choice.tile > 0 ? ", in tiles" : "",
                    choice.paged_states ? ", paged states" : "",
                    choice.masters_on_host ? ", masters on the host" : "");
    } else {
        plan = plan_memory(device.profile(), files, engine_options, merged_bounds(bounds, o.merge),
                           o.accumulation / o.merge, {});
    }
    const Clock::TimePoint loading = Clock::now();
    TrainingEngine engine(device, files, engine_options, plan);
    if (plan.streamable_projections > 0)
        std::printf("base %s: %ld of %ld projections stay decoded\n", o.base.c_str(),
                    static_cast<long>(plan.resident_projections),
                    static_cast<long>(plan.streamable_projections));
    std::printf(
        "%s, %ld x %ld x %ld%s, recompute %s, r=%ld, dropout %.2f: planned %.2f GiB, %.2f pinned, "
        "loaded in %.2f s\n",
        o.shape.c_str(), static_cast<long>(o.batch), static_cast<long>(o.accumulation),
        static_cast<long>(o.length), o.merge > 1 ? " merged" : "", o.recompute.c_str(),
        static_cast<long>(o.rank), o.dropout, static_cast<double>(plan.total_bytes) / (1 << 30),
        static_cast<double>(plan.pinned_bytes) / (1 << 30), seconds_since(loading));

    std::vector<double> host, card;
    double loss = 0;
    Work work;
    std::vector<TokenBatch> step;
    for (std::int64_t i = 0; i < o.warmup + o.steps; ++i) {
        step = random_step(o, shape.vocab, i);
        const Clock::TimePoint begin = Clock::now();
        double device_seconds = 0;
        TrainingEngine::StepResult result;
        device_seconds = seconds_of(engine.stream(), [&] { result = engine.step(step, i, 1e-4); });
        engine.stream().synchronize();
        const double seconds = seconds_since(begin);
        loss = result.loss();
        if (i < o.warmup) continue;
        host.push_back(seconds);
        card.push_back(device_seconds);
        work.add(step);
    }
    const Spread s = spread_of(host);
    const Spread d = spread_of(card);
    const double tokens = work.tokens / static_cast<double>(o.steps);
    const double flops =
        useful_flops(shape, work, plan.trainable_elements) / static_cast<double>(o.steps);
    std::printf(
        "step %.4f s (%.4f-%.4f of %zu), device %.4f, wall/device %.3f, %.0f tokens, %.0f tok/s, "
        "%.3g "
        "useful TFLOP/s = %.1f %% of the roof, loss %.3f, garam peak %.2f GiB\n",
        s.median, s.least, s.most, host.size(), d.median, s.median / d.median, tokens,
        tokens / s.median, flops / s.median * 1e-12, 100 * flops / s.median / roofs.flops, loss,
        static_cast<double>(device.memory().peak) / (1 << 30));
    if (!o.once) {
        // As training runs them: the host waits for the last one only.
        const Clock::TimePoint begin = Clock::now();
        for (std::int64_t i = 0; i < o.steps; ++i)
            engine.enqueue_step(step, o.warmup + o.steps + i, 1e-4);
        engine.results(true);
        std::printf("back to back: %.4f s a step; %d shapes recorded\n",
                    seconds_since(begin) / static_cast<double>(o.steps),
                    engine.micro_steps().recorded_shapes());
    }
    std::fflush(stdout);
    if (device.profile().is_cuda() &&
        std::system("nvidia-smi --query-gpu=name,driver_version,memory.used,clocks.sm,"
                    "clocks_throttle_reasons.active --format=csv,noheader") != 0)
        std::printf("nvidia-smi did not answer\n");
    if (o.ops) print_ops(engine, step, roofs, d.median, o.phases);
}

void bench_decode(const Options& o, Device& device, const ModelFiles& files, const Roofs& roofs,
                  bool adapter) {
    const ModelShape& shape = model_shape(o.shape);
    Decoder::Options options;
    options.compute = device.profile().fast_bf16 ? DType::bf16 : DType::f32;
    options.max_positions = 4096;
    options.own_weights = true;
    options.quantize = quantization_of(o.base);
    if (options.quantize) options.resident_projections = 0;  // rows multiply codes
    if (adapter) {
        options.lora.emplace();
        options.lora->r = o.rank;
        options.lora->lora_alpha = 32;
        options.lora->target_modules = {"all-linear"};
    }
    Decoder model(device, files, options);
    Arena arena(device, std::int64_t{1} << 30);
    Meter meter;
    Stream stream(device, arena, meter);
    KvCache cache = model.make_cache(1024);
    std::vector<std::int32_t> prompt(64);
    std::iota(prompt.begin(), prompt.end(), 5);
    std::span<const float> logits = model.decode(stream, cache, prompt);
    std::vector<double> times;
    for (std::int64_t i = 0; i < o.decode; ++i) {
        const auto next = static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) -
                                                    logits.begin());
        const Clock::TimePoint begin = Clock::now();
        logits = model.decode(stream, cache, std::span(&next, 1));
        if (i >= std::min<std::int64_t>(8, o.decode - 1)) times.push_back(seconds_since(begin));
    }
    // In 4 bits a block of 64 has a byte for its scale, and 256 such bytes have four.
    const double linear = options.quantize ? 0.5 + (1 + 4.0 / 256) / 64 : 2.0;
    const double bytes = linear * static_cast<double>(shape.linear_weights()) +
                         2.0 * static_cast<double>(shape.head_weights());
    const Spread s = spread_of(times);
    const double floor = bytes / roofs.read;
    std::printf("decode %s, %s, %s: %.3f ms a token (%.3f-%.3f), weights at %.3f ms: %.1f %%\n",
                o.shape.c_str(), o.base.empty() ? "16 bits" : o.base.c_str(),
                adapter ? "unmerged adapter" : "no adapter", s.median * 1e3, s.least * 1e3,
                s.most * 1e3, floor * 1e3, 100 * floor / s.median);
    if (!o.ops) return;
    // A new cache's first token is not recorded.
    KvCache other = model.make_cache(1024);
    model.decode(stream, other, prompt);
    meter.enable(true);
    meter.time_device(true);
    model.decode(stream, other, std::span(prompt.data(), 1));
    meter.settle();
    print_table(meter, roofs, 1, false, "op (one token, not recorded)", s.median);
}

// The processor as if it had no more than the instructions named.
void limit(DeviceProfile& profile, const std::string& isa) {
    if (isa.empty()) return;
    if (profile.is_cuda()) throw Error("--isa is for the processor");
    profile.bf16_tiles = false;
    if (isa == "avx512_bf16" && profile.fast_bf16) return;
    profile.fast_bf16 = false;
    for (const CpuIsa known : {CpuIsa::generic, CpuIsa::avx2, CpuIsa::avx512}) {
        if (isa != name_of(known) || known > profile.isa) continue;
        profile.isa = known;
        return;
    }
    throw Error("--isa " + isa + ": not of this processor");
}

int run(int argc, char** argv) {
    Options o;
    CLI::App app{"Times training steps and decoding of a model with random weights"};
    app.add_option("--shape", o.shape, "exaone-2.4b, llama-8b, smollm2-135m, tiny");
    app.add_option("--device", o.device, "auto, cpu, cuda, cuda:N");
    app.add_option("--batch", o.batch, "samples of a micro-batch");
    app.add_option("--length", o.length, "tokens of a sample");
    std::string lengths;
    app.add_option("--lengths", lengths, "file of real samples' lengths, cut to --length");
    app.add_option("--accumulation", o.accumulation, "micro-batches of a step");
    app.add_option("--merge", o.merge, "micro-batches run as one; 0: as many as are best");
    app.add_option("--recompute", o.recompute,
                   "none, norms+activation, gate_up, block, offload, auto");
    app.add_option("--base", o.base, "quantise it while loading: nf4 or fp4, double quantisation");
    app.add_option("--resident", o.resident,
                   "projections that stay decoded (default: all that fit)");
    app.add_option("--limit", o.limit, "GiB that may be reserved on the device");
    app.add_option("--host-limit", o.host_limit,
                   "GiB that may be page-locked (default: half of the host's)");
    app.add_option("--optim", o.optim, "a name of train.optim");
    app.add_option("--tile", o.tile, "with block or offload: run over so many tokens at a time");
    app.add_option("--rank", o.rank, "LoRA's r, on all linears");
    app.add_option("--dropout", o.dropout, "lora_dropout");
    app.add_option("--steps", o.steps, "timed");
    app.add_option("--warmup", o.warmup, "before");
    app.add_flag("--once", o.once, "one step, not warmed up");
    app.add_option("--decode", o.decode, "time this many generated tokens instead of steps");
    app.add_option("--tune", o.tune, "find the fastest products of the step, write them to a file");
    app.add_option("--products", o.products, "multiply as that file says (after --tune)");
    app.add_option("--folder", o.folder, "where the model is written; reused");
    app.add_flag("--no-roofs", o.no_roofs, "do not measure them (shares mean nothing then)");
    app.add_flag("--f32", o.f32, "compute in fp32 (default: bf16 where the device is fast at it)");
    app.add_flag("--ops", o.ops, "also the step op by op");
    app.add_flag("--phases", o.phases, "with --ops: by phase too");
    app.add_option("--isa", o.isa,
                   "no more of the processor than generic, avx2, avx512 or avx512_bf16");
    app.add_flag("--per_core", o.per_core, "one thread, in processor time");
    CLI11_PARSE(app, argc, argv);
    if (!lengths.empty()) o.lengths = read_lengths(lengths);
    if (o.per_core) set_num_threads(1);
    Clock::per_core = o.per_core;
    if (o.once) {
        o.steps = 1;
        o.warmup = 0;
    }
    const ModelShape& shape = model_shape(o.shape);
    const std::filesystem::path folder =
        o.folder.empty() ? std::filesystem::temp_directory_path() / ("garam-bench-" + shape.name)
                         : std::filesystem::path(o.folder) / shape.name;
    make_random_model(shape, folder);
    const ModelFiles files = ModelFiles::open(folder);
    DeviceProfile profile = profile_of_device(o.device);
    limit(profile, o.isa);
    std::printf("%s%s\n", profile.name.c_str(), o.isa.empty() ? "" : (", " + o.isa).c_str());
    if (!profile.is_cuda() && !(o.tune.empty() && o.products.empty()))
        throw Error("--tune and --products need a card");
    if (!o.tune.empty()) tune(o, profile, files);
    if (!o.products.empty()) profile.products = load_products(o.products, profile);
    const auto roof_device = make_device(profile);
    const Roofs roofs = o.no_roofs ? Roofs{1e12, 1e12, 1e12} : measure_roofs(*roof_device);
    const auto device = make_device(profile);  // whose ledger begins at nothing
    if (o.decode > 0) {
        for (const bool adapter : {false, true})
            bench_decode(o, *device, files, roofs, adapter);
    } else {
        bench_steps(o, *device, files, roofs);
    }
    return 0;
}

}  // namespace
}  // namespace garam::bench

int main(int argc, char** argv) {
    try {
        return garam::bench::run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "step_bench: %s\n", error.what());
        return 2;
    }
}
