// Matrices that are decoded when a pass needs them: their values, and the order of the two queues, on a device
// that works at once but keeps book of which event followed which.
#include "garam/nn/weight_stream.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>

#include "garam/core/philox.h"
#include "garam/quant/four_bit.h"

namespace garam {
namespace {

// What a queue knows to be done of each queue.
using Clock = std::map<QueueHandle, int>;

// The processor with queues whose work is done at once. Time of a queue goes on with each event.
class BookkeepingDevice final : public Device {
  public:
    BookkeepingDevice() : Device(DeviceKind::cpu, detect_cpu_profile()) {}
    QueueHandle open_queue() override {
        queues_.push_back(0);
        const auto queue = reinterpret_cast<QueueHandle>(&queues_.back());
        clocks_[queue][queue] = 0;
        return queue;
    }
    std::unique_ptr<DeviceEvent> make_event() override {
        return std::make_unique<Event>(*this, events_++);
    }
    int now(QueueHandle queue) { return ++clocks_[queue][queue]; }
    bool knows(QueueHandle queue, QueueHandle other, int time) {
        return clocks_[queue][other] >= time;
    }
    // Called where an event is recorded: which event, and where.
    std::function<void(int, QueueHandle)> recorded;

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
        Event(BookkeepingDevice& device, int number) : device_(device), number_(number) {}
        void record(QueueHandle queue) override {
            if (device_.recorded) device_.recorded(number_, queue);
            device_.now(queue);
            reached_ = device_.clocks_[queue];
        }
        void wait_in(QueueHandle queue) override {
            for (const auto& [other, time] : reached_)
                device_.clocks_[queue][other] = std::max(device_.clocks_[queue][other], time);
        }
        double seconds_since(const DeviceEvent& /*earlier*/) const override { return 0; }
        void synchronize() const override {}

      private:
        BookkeepingDevice& device_;
        int number_;
        Clock reached_;
    };

    std::deque<int> queues_;
    std::map<QueueHandle, Clock> clocks_;
    int events_ = 0;
};

// Blocks of two projections, each with a slot of its own.
struct Blocks {
    static constexpr std::int64_t kIn = 20;
    static constexpr std::int64_t kOut = 12;
    static constexpr std::int64_t kTail = 16;
    static constexpr std::int64_t kRank = 4;

    explicit Blocks(Device& device, int blocks, bool zeros_differ = false)
        : memory(device, DType::f32, {2, kOut + kTail, kIn + kTail}, Purpose::weight_slots),
          weights(device) {
        std::fill_n(memory.tensor.data<float>(), memory.tensor.elements(), 0.0f);
        Random random(3);
        for (int number = 0; number < 2 * blocks; ++number) {
            std::vector<float> values(kOut * kIn);
            for (float& value : values)
                value = static_cast<float>(random.normal());
            FourBitWeight& weight =
                codes.emplace_back(QuantFormat::nf4, kOut, kIn, 64, number % 2 == 0);
            quantize_four_bit(values.data(), weight.matrix(), "w");
            const std::size_t slot = static_cast<std::size_t>(number) % 2;
            WeightStream::Source source;
            source.parts = {weight.matrix()};
            source.slot = slot;
            source.tail = kTail;
            source.clears_tail = zeros_differ;
            const std::int64_t rows = kOut + kTail;
            source.matrix = memory.tensor.reshape({2 * rows, kIn + kTail})
                                .slice_rows(slot * rows, (slot + 1) * rows);
            // The last block's adapter is narrower.
            const std::int64_t rank = zeros_differ && number / 2 == blocks - 1 ? 1 : kRank;
            OwnedTensor& a =
                masters.emplace_back(device, DType::f32, Shape{rank, kIn}, Purpose::adapter);
            std::fill_n(a.tensor.data<float>(), a.tensor.elements(),
                        static_cast<float>(number + 1));
            source.adapters.push_back(
                {a.tensor, source.matrix.slice_rows(kOut, kOut + rank).slice_columns(0, kIn),
                 0.5f});
            weights.add(std::move(source));
        }
    }
    // What the slot holds is this source's.
    void expect_there(int number) {
        const WeightStream::Source& source = weights.source(number);
        const Tensor& m = source.matrix;
        std::vector<float> want(kOut * kIn);
        dequantize_four_bit(codes[static_cast<std::size_t>(number)].matrix(), 0, kOut * kIn,
                            want.data());
        const std::int64_t rank = source.adapters[0].from.rows();
        for (std::int64_t row = 0; row < kOut + kTail; ++row) {
            for (std::int64_t column = 0; column < kIn; ++column) {
                const float got = m.data<float>()[row * m.pitch() + column];
                const float expected = row < kOut
                                           ? want[static_cast<std::size_t>(row * kIn + column)]
                                       : row < kOut + rank ? 0.5f * static_cast<float>(number + 1)
                                                           : 0.0f;
                ASSERT_EQ(got, expected) << number << ": " << row << ", " << column;
            }
        }
    }

    OwnedTensor memory;
    std::deque<FourBitWeight> codes;
    std::deque<OwnedTensor> masters;
    WeightStream weights;
};

// Forward, and a backward that runs each block again first.
std::vector<int> uses_of(int blocks) {
    std::vector<int> uses;
    for (int l = 0; l < blocks; ++l)
        for (const int use : {2 * l, 2 * l + 1})
            uses.push_back(use);
    for (int l = blocks; l-- > 0;)
        for (const int use : {2 * l, 2 * l + 1, 2 * l + 1, 2 * l})
            uses.push_back(use);
    return uses;
}

TEST(WeightStream, HoldsWhatAPassAsksFor) {
    for (const bool zeros_differ : {false, true}) {
        const auto device = make_cpu_device();
        Blocks blocks(*device, 3, zeros_differ);
        Arena arena(*device, 0);
        Meter meter;
        Stream stream(*device, arena, meter);
        for (int pass = 0; pass < 3; ++pass) {
            blocks.weights.begin(stream, 0);
            for (const int use : uses_of(3)) {
                blocks.weights.acquire(stream, use);
                blocks.expect_there(use);
            }
            blocks.weights.end(stream);
        }
    }
}

// A block that is run again finds its matrices; the last one's forward is its second.
TEST(WeightStream, DecodesNothingThatIsStillThere) {
    const auto device = make_cpu_device();
    Blocks blocks(*device, 3);
    Arena arena(*device, 0);
    Meter meter;
    meter.enable(true);
    Stream stream(*device, arena, meter);
    blocks.weights.begin(stream, 0);
    for (const int use : uses_of(3))
        blocks.weights.acquire(stream, use);
    blocks.weights.end(stream);
    EXPECT_EQ((meter.table().at({"", "dequantize"}).calls), 2 * (3 + 2));
}

class WeightStreamQueues : public ::testing::Test {
  protected:
    static constexpr int kBlocks = 4;
    WeightStreamQueues() {
        // Events: the first is of what was computed, then one a slot.
        device_.recorded = [this](int event, QueueHandle queue) {
            if (event == 0 || event > 2) return;
            const int slot = event - 1;
            ASSERT_NE(queue, stream_.queue());
            ++decoded_;
            decoder_ = queue;
            // The matrix that was there is used no more.
            EXPECT_TRUE(device_.knows(queue, stream_.queue(), used_[slot]));
            filled_[slot] = device_.now(queue);
        };
    }
    void pass(int kind, const std::vector<int>& uses) {
        used_[0] = used_[1] = device_.now(stream_.queue());
        blocks_.weights.begin(stream_, kind);
        for (const int use : uses) {
            blocks_.weights.acquire(stream_, use);
            const int slot = use % 2;
            EXPECT_TRUE(device_.knows(stream_.queue(), decoder_, filled_[slot])) << use;
            blocks_.expect_there(use);
            used_[slot] = device_.now(stream_.queue());
        }
        blocks_.weights.end(stream_);
        // What was given to the second queue is waited for within the pass.
        if (decoder_ != nullptr) {
            EXPECT_TRUE(device_.knows(stream_.queue(), decoder_, std::max(filled_[0], filled_[1])));
        }
    }

    BookkeepingDevice device_;
    Arena arena_{device_, 0};
    Meter meter_;
    Stream stream_{device_, arena_, meter_};
    Blocks blocks_{device_, kBlocks};
    int decoded_ = 0;
    QueueHandle decoder_ = nullptr;
    std::array<int, 2> used_{}, filled_{};
};

TEST_F(WeightStreamQueues, TheFirstPassOfAKindIsLearned) {
    meter_.enable(true);
    pass(0, uses_of(kBlocks));
    EXPECT_EQ(decoded_, 0);
    const auto on_demand = [&] { return meter_.table().at({"", "dequantize"}).calls; };
    const std::int64_t calls = on_demand();
    for (int again = 1; again <= 3; ++again) {
        pass(0, uses_of(kBlocks));
        // All is there before it is asked for, but the first matrix of the block before, whose slot was in use.
        EXPECT_EQ(on_demand() - calls, again * (kBlocks - 1));
        EXPECT_EQ(decoded_ + on_demand() - calls, again * 2 * (2 * kBlocks - 1));
    }
}

TEST_F(WeightStreamQueues, APassThatGoesAnotherWayIsRight) {
    pass(0, uses_of(kBlocks));
    pass(0, {0, 1, 6, 7, 7, 2, 3, 0});
    pass(0, {});
    pass(0, {5});
    pass(0, uses_of(kBlocks));
    pass(1, {7, 6, 5, 4});
    pass(1, {7, 6, 5, 4, 3, 2});  // longer than what was learned
    pass(1, {7});
}

// Where single ops are timed, decoding is one of them.
TEST_F(WeightStreamQueues, NothingRunsBesideOpsThatAreTimed) {
    pass(0, uses_of(kBlocks));
    meter_.time_device(true);
    pass(0, uses_of(kBlocks));
    EXPECT_EQ(decoded_, 0);
}

}  // namespace
}  // namespace garam
