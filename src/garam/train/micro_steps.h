// Runs the micro-batches of a training step on a device. On a card each shape of batch
// (models/device_batch.h) is run once as it is and recorded the second time it comes, loss, backward and
// all; from then on a micro-step is one copy of the batch and one launch. docs/architecture.md tells why
// not before the first step.
//
// The host may be several micro-steps ahead of the card: batches wait in a ring of pinned memory.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "garam/core/token_batch.h"
#include "garam/models/decoder.h"

namespace garam {

// Which shapes are recorded: the first kMost that come a second time, as long as they leave the driver within
// `bytes`. Recorded work takes memory of the card's driver, some 10 kB an op, which no plan knows: what one took is
// what the next may take. Other shapes run op by op.
class ShapesToRecord {
  public:
    static constexpr int kMost = 256;
    static constexpr std::int64_t kFirstGuess = std::int64_t{32} << 20;

    explicit ShapesToRecord(std::int64_t bytes = std::numeric_limits<std::int64_t>::max())
        : bytes_left_(bytes) {}
    // A micro-step of that shape comes, and there is no recorded work for it: record it now?
    bool worth_recording(const BatchShape& shape);
    // What the driver took for the last one.
    void took(std::int64_t bytes);
    int recorded() const { return recorded_; }

  private:
    std::set<BatchShape> seen_;
    int recorded_ = 0;
    std::int64_t bytes_left_;
    std::int64_t largest_ = kFirstGuess;
};

class MicroSteps {
  public:
    // All must outlive this; the arena's low end must stand where it stands now at every run().
    // `batch_bytes` of pinned memory are reserved for each batch that waits; larger ones reserve theirs
    // when they come. Recorded work takes at most `recorded_bytes` of the card.
    MicroSteps(Device& device, Stream& stream, Decoder& model, std::int64_t batch_bytes,
               std::int64_t recorded_bytes);

    // Forward and backward of one micro-batch, as Decoder::train_step.
    void run(const TokenBatch& batch, const TrainingPass& pass, const Tensor& loss_sum);

    // Off: every micro-step is enqueued op by op, for timing of the single ops.
    void record_work(bool on) { records_ = on; }

    int recorded_shapes() const { return to_record_.recorded(); }
    // Pinned memory held for each batch that waits.
    std::int64_t batch_bytes() const { return ring_[0].bytes.bytes(); }

  private:
    struct Slot {
        PinnedBuffer bytes;
        std::unique_ptr<DeviceEvent> copied;
    };
    void reserve(Slot& slot, std::int64_t bytes);
    void copy(const TokenBatch& batch, std::uint32_t steps_done, DeviceBatch& device);

    Device& device_;
    Stream& stream_;
    Decoder& model_;
    std::int64_t base_;
    bool records_ = true;
    std::array<Slot, 4> ring_;
    std::size_t next_ = 0;
    ShapesToRecord to_record_;
    std::map<BatchShape, std::unique_ptr<RecordedWork>> recorded_;
};

}  // namespace garam
