// Samples so long that a wide activation has more elements than 31 bits count, on cards: a step whose tensors
// are whole, whose kernels then index beyond them, and the same step in tiles, whose do not.
#include <gtest/gtest.h>

#include <cmath>

#include "models/decoder_harness.h"
#include "testing/golden_batch.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

constexpr std::int64_t kTokens = 78475;
constexpr std::int64_t kWide = 14336;
static_assert(kTokens * 2 * kWide > (std::int64_t{1} << 31));

class LongContext : public ::testing::TestWithParam<DeviceProfile> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LongContext);
INSTANTIATE_TEST_SUITE_P(Cuda, LongContext, ::testing::ValuesIn(testing::cards()),
                         [](const auto& test) { return testing::card_name(test.param); });

TEST_P(LongContext, TilesAreTheWhole) {
    const testing::TempDir dir;
    testing::TinyModel tiny;
    tiny.hidden_size = 64;
    tiny.intermediate_size = kWide;
    tiny.num_layers = 4;
    tiny.num_heads = 2;
    tiny.num_kv_heads = 1;
    tiny.head_dim = 64;
    tiny.max_positions = kTokens;
    write_tiny_model(dir.path(), tiny);
    const ModelFiles files = ModelFiles::open(dir.path());
    Decoder::Options options;
    options.compute = DType::bf16;
    options.trained = Decoder::Trained::adapter;
    options.lora = LoraSettings{
        .r = 16, .lora_alpha = 16, .lora_dropout = 0.05, .target_modules = {"all-linear"}};

    const auto device = make_device(GetParam());
    const std::int64_t arena_bytes = std::int64_t{20} << 30;
    if (device->profile().memory_bytes < arena_bytes + (std::int64_t{4} << 30))
        GTEST_SKIP() << "needs a card of 24 GiB";
    Arena arena(*device, arena_bytes);
    Meter meter;
    Stream stream(*device, arena, meter);
    Decoder model(*device, files, options);
    const OwnedTensor loss_sum(*device, DType::f32, {1}, Purpose::scratch);
    std::vector<std::int32_t> ids;
    for (std::int64_t t = 0; t < kTokens; ++t)
        ids.push_back(static_cast<std::int32_t>((t * t + t / 7) % 256));
    TokenBatch batch;
    batch.append(ids, ids, 0);
    BlockOffload offload(*device, kTokens * tiny.hidden_size * 2 * tiny.num_layers);

    struct Outcome {
        double loss;
        std::vector<float> gradients;
        std::int64_t peak;
    };
    const auto run = [&](const TrainingPass& pass) {
        fill(stream, 0, model.all_gradients());
        fill(stream, 0, loss_sum.tensor);
        arena.reset_peak();
        model.train_step(stream, batch, pass, loss_sum.tensor);
        Outcome outcome{read_scalar(stream, loss_sum.tensor), {}, arena.peak()};
        outcome.gradients.resize(static_cast<std::size_t>(model.all_gradients().elements()));
        copy_to_host(stream, model.all_gradients(), outcome.gradients.data());
        return outcome;
    };
    const Outcome whole = run({.recompute = Recompute::block});
    const TrainingPass in_tiles{.recompute = Recompute::offload, .offload = &offload, .tile = 2048};
    const Outcome tiled = run(in_tiles);
    EXPECT_TRUE(std::isfinite(whole.loss));
    EXPECT_NEAR(tiled.loss, whole.loss, 2e-3 * whole.loss);
    // Activations round to 2^-9, and products of other shapes sum in other orders: as tests/models's
    // decoder_invariance_test.cpp has it.
    EXPECT_LE(testing::relative_error(tiled.gradients.data(), whole.gradients), 2e-2);
    EXPECT_LT(tiled.peak, whole.peak / 8);
    EXPECT_TRUE(run(in_tiles).gradients == tiled.gradients);
}

}  // namespace
}  // namespace garam
