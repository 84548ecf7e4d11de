// A card that is lost while it computes: whichever call meets it first, the program ends with one clear
// error and status 2, and what was saved before is whole. The cards are lost in processes of their own, in
// which nothing more can be computed then.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>

#include "garam/core/error.h"
#include "garam/ops/elementwise.h"
#include "garam/ops/matmul.h"
#include "garam/runtime/transfer.h"
#include "garam/train/checkpoint.h"
#include "testing/cards.h"
#include "testing/trap.h"
#include "train/tiny_job.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::read_file;
using testing::TinyJob;

// The status with which the command line ends (app/command_line.h).
template <typename Work>
int status_of(const Work& work) {
    try {
        work();
    } catch (const Error& error) {
        std::fprintf(stderr, "garam: error: %s\n", error.what());
        return 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "garam: bug: %s\n", error.what());
        return 134;
    }
    return 0;
}

class LostCardDeathTest : public ::testing::TestWithParam<DeviceProfile> {
  protected:
    LostCardDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
    static std::string message() {
        return "garam: error: cuda:" + std::to_string(GetParam().ordinal) +
               " was lost while .*nvidia-smi.*train.resume_from_checkpoint=true";
    }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LostCardDeathTest);
INSTANTIATE_TEST_SUITE_P(Cuda, LostCardDeathTest, ::testing::ValuesIn(testing::cards()),
                         [](const auto& test) { return testing::card_name(test.param); });

// What a program asks of a card.
struct Calls {
    std::unique_ptr<Device> device;
    Arena arena;
    Meter meter;
    Stream stream;
    OwnedTensor a, b, c;
    std::vector<float> host;

    explicit Calls(const DeviceProfile& profile)
        : device(make_device(profile)),
          arena(*device, std::int64_t{64} << 20),
          stream(*device, arena, meter),
          a(*device, DType::f32, {64, 64}, Purpose::scratch),
          b(*device, DType::f32, {64, 64}, Purpose::scratch),
          c(*device, DType::f32, {64, 64}, Purpose::scratch),
          host(64 * 64) {
        fill(stream, 0, a.tensor);
        fill(stream, 0, b.tensor);
        matmul(stream, a.tensor, b.tensor, c.tensor);
        stream.synchronize();
    }
};

using Call = void (*)(Calls&);
constexpr std::pair<const char*, Call> kCalls[] = {
    {"waiting", [](Calls& x) { x.stream.synchronize(); }},
    {"a kernel", [](Calls& x) { fill(x.stream, 1, x.a.tensor); }},
    {"a product", [](Calls& x) { matmul(x.stream, x.a.tensor, x.b.tensor, x.c.tensor); }},
    {"clearing", [](Calls& x) { clear(x.stream, x.a.tensor); }},
    {"copying in", [](Calls& x) { copy_to_device(x.stream, x.host.data(), x.a.tensor); }},
    {"copying out", [](Calls& x) { copy_to_host(x.stream, x.a.tensor, x.host.data()); }},
    {"memory", [](Calls& x) { const Buffer buffer(*x.device, 1 << 20, Purpose::scratch); }},
    {"pinned memory", [](Calls& x) { const PinnedBuffer buffer(*x.device, 1 << 20); }},
    {"an event", [](Calls& x) { x.device->make_event()->record(x.stream.queue()); }},
    {"recording",
     [](Calls& x) {
         x.device->begin_recording(x.stream.queue());
         clear(x.stream, x.a.tensor);
         x.device->end_recording(x.stream.queue())->enqueue(x.stream.queue());
         x.stream.synchronize();
     }},
};

// All of them fail alike: the last one's error is thrown on.
void call_after_loss(const DeviceProfile& profile) {
    Calls calls(profile);
    testing::lose_card(calls.stream.queue());
    for (const auto& [name, call] : kCalls) {
        const bool last = name == std::rbegin(kCalls)->first;
        try {
            call(calls);
        } catch (const Error& error) {
            if (std::string(error.what()).find("was lost while") == std::string::npos || last)
                throw;
            continue;
        }
        throw Bug(std::string(name) + " went on");
    }
}

TEST_P(LostCardDeathTest, IsOneErrorThatNamesTheCardWhereverItShows) {
    EXPECT_EXIT(std::exit(status_of([] { call_after_loss(GetParam()); })),
                ::testing::ExitedWithCode(2), message());
}

void configure(TinyJob& job, const DeviceProfile& profile) {
    job.config.device = testing::device_key(profile);
    job.config.train.save_steps = 2;
    job.config.train.eval_steps = 2;
    job.config.train.max_steps = 8;
}

// A run whose card is lost after five steps.
void train_until_lost(const DeviceProfile& profile, const fs::path& output) {
    struct LoseAtFive : TrainObserver {
        void on_progress(const ProgressReport& report) override {
            if (report.step == 5) testing::lose_card();
        }
    } observer;
    TinyJob job;
    configure(job, profile);
    job.config.train.output_dir = output.string();
    job.run({&observer});
}

TEST_P(LostCardDeathTest, ATrainingLeavesItsLastCheckpointWholeAndGoesOnFromIt) {
    // The child, which begins this test again, is to write where its parent looks.
    constexpr const char* kFolder = "GARAM_TEST_LOST_CARD";
    std::optional<testing::TempDir> folder;
    if (std::getenv(kFolder) == nullptr) {
        folder.emplace();
        setenv(kFolder, folder->path().c_str(), 1);
    }
    const fs::path output = fs::path(std::getenv(kFolder)) / "run";
    EXPECT_EXIT(std::exit(status_of([&] { train_until_lost(GetParam(), output); })),
                ::testing::ExitedWithCode(2), message());
    unsetenv(kFolder);

    // Nothing half-written: the checkpoints are whole, and nothing pretends to be a result.
    ASSERT_TRUE(fs::exists(output / "checkpoint-4"));
    EXPECT_FALSE(fs::exists(output / "checkpoint-6"));
    EXPECT_FALSE(fs::exists(output / "adapter"));
    for (const auto& entry : fs::directory_iterator(output)) {
        const std::string name = entry.path().filename().string();
        EXPECT_EQ(name.find(".tmp"), std::string::npos) << name;
        if (name.starts_with("checkpoint-")) {
            EXPECT_NO_THROW(Checkpoint::open(entry.path())) << name;
        }
    }
    // As if nothing had happened, bit for bit.
    TinyJob whole;
    configure(whole, GetParam());
    whole.run();
    TinyJob resumed;
    configure(resumed, GetParam());
    resumed.config.train.output_dir = output.string();
    resumed.config.train.resume_from_checkpoint = "true";
    resumed.run();
    EXPECT_EQ(read_file(output / "adapter" / "adapter_model.safetensors"),
              read_file(whole.output() / "adapter" / "adapter_model.safetensors"));
    EXPECT_EQ(testing::timeless_metrics(output), testing::timeless_metrics(whole.output()));
}

}  // namespace
}  // namespace garam
