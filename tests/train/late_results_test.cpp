// Steps whose results are read late: the same numbers as when each is waited for, and a step that is not
// finite stops all behind it. (The processor reads each step at once; the cases hold there too.)
#include <gtest/gtest.h>

#include "garam/core/error.h"
#include "garam/core/philox.h"
#include "garam/runtime/transfer.h"
#include "garam/train/engine.h"
#include "testing/cards.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

TokenBatch random_batch(int length, std::int64_t sample) {
    Random random(static_cast<std::uint64_t>(sample));
    std::vector<std::int32_t> ids;
    for (int t = 0; t < length; ++t)
        ids.push_back(static_cast<std::int32_t>(random.below(256)));
    TokenBatch batch;
    batch.append(ids, ids, sample);
    return batch;
}

std::vector<TokenBatch> batches_of(std::int64_t step) {
    return {random_batch(20, 2 * step), random_batch(31, 2 * step + 1)};
}

class LateResults : public ::testing::TestWithParam<DeviceProfile> {
  protected:
    LateResults() {
        testing::write_tiny_model(dir_.path());
        files_ = std::make_unique<ModelFiles>(ModelFiles::open(dir_.path()));
    }
    std::unique_ptr<TrainingEngine> make_engine(OptimizerKind kind = OptimizerKind::adamw) {
        EngineOptions options;
        options.model.trained = Decoder::Trained::adapter;
        options.model.lora = LoraSettings{
            .r = 4, .lora_alpha = 8, .lora_dropout = 0.1, .target_modules = {"all-linear"}};
        options.optimizer.kind = kind;
        options.max_grad_norm = kind == OptimizerKind::adamw ? 0.5 : 0;
        return std::make_unique<TrainingEngine>(*device_, *files_, options, std::int64_t{64} << 20);
    }
    static std::vector<float> masters_of(TrainingEngine& engine) {
        std::vector<float> all;
        for (const Parameter& parameter : engine.model().parameters()) {
            const HostTensor master(engine.stream(), parameter.master);
            const float* const values = master.tensor().data<float>();
            all.insert(all.end(), values, values + parameter.master.elements());
        }
        return all;
    }

    testing::TempDir dir_;
    std::unique_ptr<ModelFiles> files_;
    std::unique_ptr<Device> device_ = make_device(GetParam());
};
GARAM_FOR_CPU_AND_CARDS(LateResults);

TEST_P(LateResults, AreThoseOfStepsThatAreWaitedFor) {
    constexpr std::int64_t kSteps = 2 * StepRing::kSteps + 5;
    const auto waited = make_engine();
    const auto late = make_engine();
    std::vector<TrainingEngine::StepResult> got;
    const auto take = [&](bool wait) {
        const auto more = late->results(wait);
        got.insert(got.end(), more.begin(), more.end());
    };
    for (std::int64_t step = 0; step < kSteps; ++step) {
        late->enqueue_step(batches_of(step), step, 1e-2);
        if (step % 3 == 0) take(false);
        // What was enqueued is never more than the ring holds.
        EXPECT_GE(static_cast<std::int64_t>(got.size() + StepRing::kSteps) + 3, step + 1);
        if (step == 20) take(true);
    }
    take(true);
    EXPECT_TRUE(late->results(true).empty());
    ASSERT_EQ(static_cast<std::int64_t>(got.size()), kSteps);
    for (std::int64_t step = 0; step < kSteps; ++step) {
        const auto want = waited->step(batches_of(step), step, 1e-2);
        const auto& have = got[static_cast<std::size_t>(step)];
        EXPECT_EQ(have.loss_sum, want.loss_sum) << step;
        EXPECT_EQ(have.grad_norm, want.grad_norm) << step;
        EXPECT_EQ(have.targets, want.targets) << step;
    }
    EXPECT_TRUE(masters_of(*late) == masters_of(*waited));
}

// CASES 9. The first step makes weights of which the second one's loss is not finite.
TEST_P(LateResults, AStepThatIsNotFiniteIsNamedAndNothingBehindItApplied) {
    const auto good = make_engine(OptimizerKind::sgd);
    good->step(batches_of(0), 0, 1e30);
    const auto engine = make_engine(OptimizerKind::sgd);
    std::string error;
    try {
        engine->enqueue_step(batches_of(0), 0, 1e30);
        for (std::int64_t step = 1; step < 5; ++step)
            engine->enqueue_step(batches_of(step), step, 1e-2);
        engine->results(true);
    } catch (const Error& thrown) {
        error = thrown.what();
    }
    EXPECT_NE(error.find("of step 2 is not finite"), std::string::npos) << error;
    EXPECT_NE(error.find("row 3 of the training data alone"), std::string::npos) << error;
    EXPECT_TRUE(masters_of(*engine) == masters_of(*good));
}

}  // namespace
}  // namespace garam
