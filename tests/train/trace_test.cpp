// Twenty optimiser steps against Transformers + PEFT: loss, gradient norm, learning rate and the adapter
// that comes out. Noise of the reference itself: 3e-7 in loss, 6e-7 of a tensor's norm in the adapter.
#include <gtest/gtest.h>

#include "garam/core/json.h"
#include "garam/io/peft_adapter.h"
#include "garam/optim/schedule.h"
#include "garam/runtime/transfer.h"
#include "garam/train/engine.h"
#include "testing/cards.h"
#include "testing/golden_batch.h"
#include "testing/test_data.h"

namespace garam {
namespace {

class Trace : public ::testing::TestWithParam<DeviceProfile> {};
GARAM_FOR_CPU_AND_CARDS(Trace);

TEST_P(Trace, TwentyStepsOfTheReference) {
    GARAM_REQUIRE_DATA("golden/peft/trace_case1/trace.json");
    const auto golden = testing::data_dir() / "golden";
    const auto folder = golden / "peft" / "trace_case1";
    const Json trace = Json::parse_file(folder / "trace.json");
    const Json& settings = trace.at("settings");
    const PeftAdapter start = read_peft_adapter(golden / "peft" / "case1_lora_r8_all");
    const ModelFiles files = ModelFiles::open(golden / "stories260K-hf");
    const testing::GoldenFile batches(folder / "batches.safetensors");

    EngineOptions options;
    options.model.trained = Decoder::Trained::adapter;
    options.model.lora = start.settings;
    options.optimizer.weight_decay = settings.at("weight_decay").number();
    options.max_grad_norm = settings.at("max_grad_norm").number();
    const auto device = make_device(GetParam());
    TrainingEngine engine(*device, files, options, std::int64_t{64} << 20);
    engine.model().load_adapter(start, "case1");
    const ScheduleOptions schedule{.type = ScheduleType::cosine,
                                   .learning_rate = settings.at("lr").number(),
                                   .warmup_steps = settings.at("warmup_steps").integer(),
                                   .total_steps = settings.at("steps").integer()};

    std::int64_t step = 0;
    for (const Json& want : trace.at("token_mean").array()) {
        const std::vector<TokenBatch> micro{batches.batch(2 * step), batches.batch(2 * step + 1)};
        const double rate = learning_rate(schedule, step);
        const auto got = engine.step(micro, step, rate);
        ++step;
        EXPECT_NEAR(rate, want.at("lr").number(), 1e-12);
        EXPECT_EQ(got.targets, want.at("num_valid_tokens").integer());
        EXPECT_NEAR(got.loss(), want.at("loss").number(), 1e-5 * got.loss()) << step;
        EXPECT_NEAR(got.grad_norm, want.at("grad_norm").number(), 1e-5 * got.grad_norm) << step;
    }
    ASSERT_EQ(step, schedule.total_steps);

    const PeftAdapter final = read_peft_adapter(folder / "final");
    ASSERT_EQ(final.tensors.size(), engine.model().parameters().size());
    double worst = 0;
    for (const AdapterTensor& want : final.tensors) {
        for (const Parameter& parameter : engine.model().parameters()) {
            if (parameter.name != want.name) continue;
            const HostTensor got(engine.stream(), parameter.master);
            worst =
                std::max(worst, testing::relative_error(got.tensor().data<float>(), want.values));
        }
    }
    EXPECT_LE(worst, 1e-5);
    std::printf("    final adapter within %.2g of each tensor's norm\n", worst);
}

}  // namespace
}  // namespace garam
