// The longest sample that a card of a given memory trains on, by plan: no card and no weights are needed.
// `context_bench --help` lists the options.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "garam/core/error.h"
#include "garam/train/engine.h"
#include "random_model.h"

namespace garam::bench {
namespace {

struct Options {
    std::string shape = "llama-8b";
    std::vector<std::int64_t> lengths;
    std::vector<double> memory;  // GB
    double beside = 0;           // GB that the plan counts and the card would not have
    std::int64_t rank = 32;
    double dropout = 0;
    std::string recompute = "offload";
    std::int64_t tile = 0;
    std::string folder = (std::filesystem::temp_directory_path() / "garam-context-bench").string();
};

// As an H100's.
DeviceProfile card() {
    DeviceProfile profile;
    profile.name = "a card";
    profile.kind = DeviceKind::cuda;
    profile.fast_bf16 = true;
    profile.compute_capability = 90;
    profile.multiprocessors = 132;
    profile.shared_bytes = 227 << 10;
    profile.memory_bytes = profile.free_bytes = std::int64_t{1} << 40;
    return profile;
}

EngineOptions engine_of(const Options& o) {
    EngineOptions engine;
    engine.model.compute = DType::bf16;
    engine.model.trained = Decoder::Trained::adapter;
    engine.model.lora = LoraSettings{.r = o.rank,
                                     .lora_alpha = static_cast<double>(o.rank),
                                     .lora_dropout = o.dropout,
                                     .target_modules = {"all-linear"}};
    for (const Recompute r : {Recompute::nothing, Recompute::norms_and_activation,
                              Recompute::gate_up, Recompute::block, Recompute::offload})
        if (o.recompute == name_of(r)) engine.recompute = r;
    engine.tile = o.tile;
    return engine;
}

MemoryPlan plan_of(const Options& o, const ModelFiles& files, std::int64_t tokens) {
    EngineOptions engine = engine_of(o);
    engine.model.max_positions = tokens;
    const BatchBounds bounds{tokens, tokens, tokens - 1, 1};
    return plan_memory(card(), files, engine, bounds, 1, {});
}

void print(const MemoryPlan& plan, std::int64_t tokens) {
    std::printf("%ld tokens: %.2f GB, step %.2f GB (%.0f B a token), pinned %.2f GB\n",
                static_cast<long>(tokens), static_cast<double>(plan.total_bytes) / 1e9,
                static_cast<double>(plan.arena_bytes) / 1e9,
                static_cast<double>(plan.arena_bytes) / static_cast<double>(tokens),
                static_cast<double>(plan.pinned_bytes) / 1e9);
    for (int p = 0; p < kPurposes; ++p)
        if (const std::int64_t bytes = plan.by_purpose[static_cast<std::size_t>(p)]; bytes > 0)
            std::printf("  %-14s %14ld\n", name_of(static_cast<Purpose>(p)),
                        static_cast<long>(bytes));
}

void run(const Options& o) {
    make_empty_model(model_shape(o.shape), o.folder + "/" + o.shape);
    const ModelFiles files = ModelFiles::open(o.folder + "/" + o.shape);
    for (const std::int64_t tokens : o.lengths)
        print(plan_of(o, files, tokens), tokens);
    for (const double gigabytes : o.memory) {
        const double room = (gigabytes + o.beside) * 1e9;
        std::int64_t fitting = 0;
        for (std::int64_t step = std::int64_t{1} << 22; step >= 64; step /= 2)
            if (static_cast<double>(plan_of(o, files, fitting + step).total_bytes) <= room)
                fitting += step;
        std::printf("within %.2f GB: %ld tokens\n", gigabytes, static_cast<long>(fitting));
        if (fitting > 0) print(plan_of(o, files, fitting), fitting);
    }
}

}  // namespace
}  // namespace garam::bench

int main(int argc, char** argv) {
    garam::bench::Options o;
    CLI::App app{"The longest sample that fits, by plan"};
    app.add_option("--shape", o.shape, "exaone-2.4b, llama-8b, smollm2-135m, tiny");
    app.add_option("--lengths", o.lengths, "tokens of a sample, whose plans are printed")
        ->delimiter(',');
    app.add_option("--memory", o.memory, "GB of a card, for which the longest sample is printed")
        ->delimiter(',');
    app.add_option("--beside", o.beside,
                   "GB of this plan that the run in question would not have on the card");
    app.add_option("--rank", o.rank, "LoRA's r, on all linears");
    app.add_option("--dropout", o.dropout, "lora_dropout");
    app.add_option("--recompute", o.recompute, "none, norms+activation, gate_up, block, offload");
    app.add_option("--tile", o.tile, "tokens of a tile; 0: none");
    app.add_option("--folder", o.folder, "where the model's header is written");
    CLI11_PARSE(app, argc, argv);
    try {
        garam::bench::run(o);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "context_bench: %s\n", error.what());
        return 2;
    }
    return 0;
}
