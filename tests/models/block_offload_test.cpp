// Inputs of blocks in pinned host memory: on a device whose copies are as late as its events allow, so that
// a missing wait shows, and on cards.
#include "garam/models/block_offload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>

#include "garam/core/error.h"
#include "models/decoder_harness.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

// The processor with queues. The first queue is that of ops, which are done at once; copies of the others
// are put off until the first one waits for them.
class LateDevice final : public Device {
  public:
    LateDevice() : Device(DeviceKind::cpu, detect_cpu_profile()) {}
    ~LateDevice() override {
        for (const auto& [queue, work] : later_)
            EXPECT_TRUE(work.empty()) << "copies that nothing waited for";
    }
    QueueHandle open_queue() override {
        queues_.push_back(0);
        return reinterpret_cast<QueueHandle>(&queues_.back());
    }
    void synchronize(QueueHandle queue) override { run(queue, later_[queue].size()); }
    void copy_in(QueueHandle queue, void* device, const void* host, std::int64_t bytes) override {
        enqueue(queue,
                [=] { std::copy_n(static_cast<const char*>(host), bytes, bytes_of(device)); });
    }
    void copy_out(QueueHandle queue, void* host, const void* device, std::int64_t bytes) override {
        enqueue(queue,
                [=] { std::copy_n(static_cast<const char*>(device), bytes, bytes_of(host)); });
    }
    std::unique_ptr<DeviceEvent> make_event() override { return std::make_unique<Event>(*this); }

    int copies = 0;

  protected:
    static constexpr std::align_val_t kAlignment{256};
    void* take(std::int64_t bytes) override {
        return ::operator new(static_cast<std::size_t>(bytes), kAlignment);
    }
    void give_back(void* pointer, std::int64_t /*bytes*/) noexcept override {
        ::operator delete(pointer, kAlignment);
    }

  private:
    class Event final : public DeviceEvent {
      public:
        explicit Event(LateDevice& device) : device_(device) {}
        void record(QueueHandle queue) override {
            queue_ = queue;
            reached_ = device_.passed_[queue] + device_.later_[queue].size();
        }
        void wait_in(QueueHandle queue) override {
            ASSERT_NE(queue_, nullptr) << "an event that was never recorded";
            if (queue == queue_) return;
            if (!device_.is_first(queue)) {
                device_.followed_ = true;
                return;
            }
            const std::size_t passed = device_.passed_[queue_];
            if (reached_ > passed) device_.run(queue_, reached_ - passed);
        }
        double seconds_since(const DeviceEvent& /*earlier*/) const override { return 0; }
        void synchronize() const override {}

      private:
        LateDevice& device_;
        QueueHandle queue_ = nullptr;
        std::size_t reached_ = 0;
    };

    static char* bytes_of(void* memory) { return static_cast<char*>(memory); }
    bool is_first(QueueHandle queue) const {
        return reinterpret_cast<const int*>(queue) == &queues_.front();
    }
    void enqueue(QueueHandle queue, std::function<void()> work) {
        if (queue == nullptr || is_first(queue)) return work();
        EXPECT_TRUE(followed_) << "a copy that does not follow what was computed";
        followed_ = false;
        ++copies;
        later_[queue].push_back(std::move(work));
    }
    void run(QueueHandle queue, std::size_t count) {
        for (; count > 0; --count) {
            later_[queue].front()();
            later_[queue].pop_front();
            ++passed_[queue];
        }
    }

    std::deque<int> queues_;
    std::map<QueueHandle, std::deque<std::function<void()>>> later_;
    std::map<QueueHandle, std::size_t> passed_;
    bool followed_ = false;
};

// What stands for block l's input in pass `pass`.
float value_of(std::int64_t pass, std::int64_t block) {
    return static_cast<float>(100 * pass + block);
}

TEST(BlockOffload, EveryBlockFindsItsInputAgain) {
    constexpr std::int64_t kElements = 100;
    for (std::int64_t blocks = 1; blocks <= 9; ++blocks) {
        SCOPED_TRACE(blocks);
        LateDevice device;
        Arena arena(device, 1 << 16);
        Meter meter;
        Stream stream(device, arena, meter);
        const std::int64_t leaving = std::max<std::int64_t>(blocks + 1 - BlockOffload::kSlots, 0);
        BlockOffload offload(device, leaving * align_up(kElements * 4));
        EXPECT_EQ(device.pinned().current, offload.bytes());
        const auto write = [&](std::int64_t pass, std::int64_t block) {
            const Tensor x = offload.place(stream, block);
            std::fill_n(x.data<float>(), kElements, value_of(pass, block));
            return x;
        };
        for (const std::int64_t pass : {1, 2}) {
            const Arena::Mark start = arena.mark();
            offload.begin(stream, DType::f32, {kElements}, blocks);
            EXPECT_EQ(arena.used(),
                      std::min(BlockOffload::kSlots, blocks + 1) * align_up(kElements * 4));
            std::vector<Tensor> inputs = {write(pass, 0)};
            for (std::int64_t l = 0; l < blocks; ++l) {
                offload.written(stream, l);
                inputs.push_back(write(pass, l + 1));
                EXPECT_EQ(*inputs[static_cast<std::size_t>(l)].data<float>(), value_of(pass, l));
            }
            offload.done(stream, blocks);
            for (std::int64_t l = blocks; l-- > 0;) {
                offload.await(stream, l);
                const float* const x = inputs[static_cast<std::size_t>(l)].data<float>();
                for (std::int64_t i = 0; i < kElements; ++i)
                    ASSERT_EQ(x[i], value_of(pass, l)) << l;
                offload.done(stream, l);
            }
            arena.rewind(start);
        }
        EXPECT_EQ(device.copies, 2 * 2 * leaving);
    }
}

TEST(BlockOffload, APassBeyondWhatWasPlannedIsABug) {
    const auto device = make_cpu_device();
    Arena arena(*device, 1 << 16);
    Meter meter;
    Stream stream(*device, arena, meter);
    BlockOffload offload(*device, 256);
    EXPECT_NO_THROW(offload.begin(stream, DType::f32, {64}, BlockOffload::kSlots));
    EXPECT_THROW(offload.begin(stream, DType::f32, {64}, BlockOffload::kSlots + 1), Bug);
}

class OffloadedDecoder : public ::testing::TestWithParam<DeviceProfile> {};
GARAM_FOR_CPU_AND_CARDS(OffloadedDecoder);

TEST_P(OffloadedDecoder, GradientsAreThoseOfKeptInputs) {
    const testing::TempDir dir;
    testing::TinyModel tiny;
    tiny.num_layers = 8;
    write_tiny_model(dir.path(), tiny);
    const ModelFiles files = ModelFiles::open(dir.path());
    for (const auto trained : {Decoder::Trained::adapter, Decoder::Trained::all_weights}) {
        Decoder::Options options;
        options.trained = trained;
        if (trained == Decoder::Trained::adapter)
            options.lora = LoraSettings{
                .r = 4, .lora_alpha = 8, .lora_dropout = 0.1, .target_modules = {"all-linear"}};
        testing::DecoderHarness run(files, options, GetParam());
        std::vector<TokenBatch> batches(2);
        for (std::int32_t s = 0; s < 5; ++s) {
            std::vector<std::int32_t> ids;
            for (std::int32_t t = 0; t < 40 + 7 * s; ++t)
                ids.push_back((t * t + 13 * s) % 256);
            batches[static_cast<std::size_t>(s % 2)].append(ids, ids, s);
        }
        const float loss = run.gradients(batches, {.recompute = Recompute::block});
        const std::vector<float> kept = run.all_gradients();
        BlockOffload offload(*run.device, std::int64_t{8} << 20);
        for (int again = 0; again < 3; ++again) {
            EXPECT_EQ(
                run.gradients(batches, {.recompute = Recompute::offload, .offload = &offload}),
                loss);
            EXPECT_TRUE(run.all_gradients() == kept);
        }
        const float tiled = run.gradients(batches, {.recompute = Recompute::block, .tile = 16});
        const std::vector<float> kept_in_tiles = run.all_gradients();
        EXPECT_EQ(run.gradients(batches,
                                {.recompute = Recompute::offload, .offload = &offload, .tile = 16}),
                  tiled);
        EXPECT_TRUE(run.all_gradients() == kept_in_tiles);
    }
}

}  // namespace
}  // namespace garam
