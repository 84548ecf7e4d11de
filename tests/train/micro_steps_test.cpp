// Micro-steps as recorded work: the same bits as op by op, and again in a second run. Every shape of batch
// comes often enough to be run, recorded and replayed, each time with other tokens, other lengths and
// another step of dropout. (On the processor nothing is recorded; the cases hold there too.)
#include "garam/train/micro_steps.h"

#include <gtest/gtest.h>

#include "garam/core/philox.h"
#include "garam/runtime/transfer.h"
#include "garam/train/engine.h"
#include "testing/cards.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

constexpr int kSteps = 4;

TokenBatch random_batch(const std::vector<int>& lengths, std::uint64_t seed) {
    Random random(seed);
    TokenBatch batch;
    for (std::size_t row = 0; row < lengths.size(); ++row) {
        std::vector<std::int32_t> ids, labels;
        for (int t = 0; t < lengths[row]; ++t) {
            ids.push_back(static_cast<std::int32_t>(random.below(256)));
            labels.push_back(random.below(4) == 0 ? kIgnore : ids.back());
        }
        batch.append(ids, labels, static_cast<std::int64_t>(seed * 10 + row));
    }
    return batch;
}

// The micro-batches of a step: four shapes, the first of which comes twice in one step.
std::vector<TokenBatch> batches_of(int step) {
    const auto seed = static_cast<std::uint64_t>(10 * step + 1);
    const int more = step % 3;
    return {random_batch({17 + more, 3, 30}, seed), random_batch({100 - more, 60}, seed + 1),
            random_batch({9 + more}, seed + 2), random_batch({20, 4 + more, 25}, seed + 3),
            random_batch({1, 2, 3, 4, 5, 6, 7 + more, 8, 90}, seed + 4)};
}

struct Outcome {
    std::vector<double> numbers;  // losses and norms of gradients
    std::vector<std::vector<float>> masters;
};

struct Variant {
    DType compute = DType::f32;
    Decoder::Trained trained = Decoder::Trained::adapter;
    Recompute recompute = Recompute::nothing;
    std::int64_t tile = 0;
};

TEST(ShapesToRecord, AreNoMoreThanTheirMemoryHolds) {
    constexpr std::int64_t kEach = 10 << 20;
    const auto recorded_within = [](std::int64_t bytes) {
        ShapesToRecord shapes(bytes);
        for (int time = 0; time < 2; ++time)
            for (std::int64_t tokens = 1; tokens <= 20; ++tokens)
                if (shapes.worth_recording({tokens, 3, 16})) shapes.took(kEach);
        return shapes.recorded();
    };
    EXPECT_EQ(recorded_within(ShapesToRecord::kFirstGuess - 1), 0);
    EXPECT_EQ(recorded_within(7 * kEach - 1), 6);
    EXPECT_EQ(recorded_within(7 * kEach), 7);
    EXPECT_EQ(recorded_within(1000 * kEach), 20);
}

TEST(ShapesToRecord, AreTheFirstThatComeAgain) {
    ShapesToRecord shapes;
    const auto shape = [](std::int64_t tokens) { return BatchShape{tokens, 3, 16}; };
    EXPECT_FALSE(shapes.worth_recording(shape(64)));
    EXPECT_FALSE(shapes.worth_recording(shape(72)));
    EXPECT_TRUE(shapes.worth_recording(shape(64)));
    for (std::int64_t tokens = 1000; shapes.recorded() < ShapesToRecord::kMost; ++tokens) {
        EXPECT_FALSE(shapes.worth_recording(shape(tokens)));
        EXPECT_TRUE(shapes.worth_recording(shape(tokens)));
    }
    EXPECT_FALSE(shapes.worth_recording(shape(72)));
    EXPECT_EQ(shapes.recorded(), ShapesToRecord::kMost);
}

class MicroStepsTest : public ::testing::TestWithParam<DeviceProfile> {
  protected:
    // More layers than have their inputs on a card with Recompute::offload.
    MicroStepsTest() { write_model(7); }
    void write_model(std::int64_t layers) {
        testing::TinyModel model;
        model.biases = true;
        model.num_layers = layers;
        write_tiny_model(dir_.path(), model);
        files_ = std::make_unique<ModelFiles>(ModelFiles::open(dir_.path()));
    }
    Outcome run(const DeviceProfile& profile, const Variant& variant, bool record) const {
        EngineOptions options;
        options.model.compute = variant.compute;
        options.model.trained = variant.trained;
        options.model.seed = 3;
        if (variant.trained == Decoder::Trained::adapter)
            options.model.lora = LoraSettings{
                .r = 4, .lora_alpha = 8, .lora_dropout = 0.1, .target_modules = {"all-linear"}};
        options.recompute = variant.recompute;
        options.tile = variant.tile;
        const auto device = make_device(profile);
        TrainingEngine engine(*device, *files_, options,
                              {std::int64_t{64} << 20, std::int64_t{16} << 20});
        engine.micro_steps().record_work(record);
        Outcome outcome;
        for (int step = 0; step < kSteps; ++step) {
            const auto result = engine.step(batches_of(step), step, 1e-2);
            outcome.numbers.push_back(result.loss());
            outcome.numbers.push_back(result.grad_norm);
            // Between steps, in the same step memory.
            if (step == 1)
                outcome.numbers.push_back(engine.evaluate({random_batch({50, 70}, 99)}).loss());
        }
        EXPECT_EQ(engine.micro_steps().recorded_shapes() > 0, record && profile.is_cuda());
        for (const Parameter& parameter : engine.model().parameters()) {
            const HostTensor master(engine.stream(), parameter.master);
            const float* const values = master.tensor().data<float>();
            outcome.masters.emplace_back(values, values + parameter.master.elements());
        }
        return outcome;
    }

    testing::TempDir dir_;
    std::unique_ptr<ModelFiles> files_;
};
GARAM_FOR_CPU_AND_CARDS(MicroStepsTest);

TEST_P(MicroStepsTest, RecordedWorkGivesTheBitsOfUnrecorded) {
    const Variant variants[] = {
        {},
        {DType::bf16},
        {DType::bf16, Decoder::Trained::adapter, Recompute::block},
        {DType::bf16, Decoder::Trained::adapter, Recompute::norms_and_activation},
        {DType::f32, Decoder::Trained::all_weights},
        {DType::bf16, Decoder::Trained::adapter, Recompute::offload},
        {DType::f32, Decoder::Trained::all_weights, Recompute::offload},
        {DType::bf16, Decoder::Trained::all_weights, Recompute::gate_up},
        {DType::bf16, Decoder::Trained::adapter, Recompute::offload, 16},
    };
    for (const Variant& variant : variants) {
        SCOPED_TRACE(std::string(name_of(variant.compute)) + " " + name_of(variant.recompute) +
                     (variant.trained == Decoder::Trained::adapter ? " adapter" : " all weights"));
        const Outcome plain = run(GetParam(), variant, false);
        const Outcome recorded = run(GetParam(), variant, true);
        const Outcome again = run(GetParam(), variant, true);
        EXPECT_EQ(recorded.numbers, plain.numbers);
        EXPECT_TRUE(recorded.masters == plain.masters);
        EXPECT_EQ(again.numbers, recorded.numbers);
        EXPECT_TRUE(again.masters == recorded.masters);
    }
}

// What the padding of a card's batches and its recorded work could hide: the losses are those of the
// processor, where there is neither. Adam's steps have the size of the learning rate whatever the
// gradient's, so that a gradient of rounding alone moves a weight: losses part by a little more than sums.
TEST_P(MicroStepsTest, TheLossesOfTheProcessor) {
    if (!GetParam().is_cuda()) GTEST_SKIP() << "the processor is what a card is compared with";
    write_model(2);
    for (const auto trained : {Decoder::Trained::adapter, Decoder::Trained::all_weights}) {
        const Variant variant{DType::f32, trained};
        const Outcome want = run(detect_cpu_profile(), variant, false);
        const Outcome got = run(GetParam(), variant, true);
        ASSERT_EQ(got.numbers.size(), want.numbers.size());
        for (std::size_t i = 0; i < want.numbers.size(); ++i)
            EXPECT_NEAR(got.numbers[i], want.numbers[i], 1e-4 * want.numbers[i]) << i;
    }
}

}  // namespace
}  // namespace garam
