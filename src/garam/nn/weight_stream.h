// Matrices of a card's projections that are decoded when a pass needs them, because their decoded form would not
// fit: codes stay on the card, and few slots of memory hold what is in use and what comes next.
//
// Each place in a block (q/k/v, o, gate/up, down) has a slot of its own, so that together they hold one block:
// a block that is run again before its backward finds its matrices there, and while one is in use the others
// are filled ahead by a second queue. What comes next is learned: passes of one kind use the matrices in the
// order of the first pass of that kind, which decodes each when it comes. A pass that does otherwise than
// its first one takes longer; what it computes is the same. Events order the two queues, so that a pass
// can be recorded: all that the second queue is given in a pass, the first one waits for within it.
//
// A matrix is decoded in the first queue where its slot was in use until then (q/k/v of the block before one that was
// run again: a small one), where there is no second one, on a dry device (whose meter then
// counts it), and while the meter times single ops.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "garam/ops/elementwise.h"
#include "garam/quant/quantized_matrix.h"
#include "garam/runtime/stream.h"

namespace garam {

class WeightStream {
  public:
    // One projection's matrix (nn/projection.h) and what it is made of.
    struct Source {
        std::vector<QuantizedMatrix> parts;  // rows end to end
        std::vector<CastItem> adapters;      // masters of A and B, and their places in the matrix
        Tensor matrix;                       // [out + tail, in + tail], in the memory of its slot
        std::int64_t tail = 0;
        std::size_t slot = 0;
        // Other sources of the slot write where this one has zeros: its tail is cleared each time. Else
        // whoever made the slot cleared it.
        bool clears_tail = false;
    };

    explicit WeightStream(Device& device);
    ~WeightStream();
    WeightStream(const WeightStream&) = delete;
    WeightStream& operator=(const WeightStream&) = delete;

    // The source's number.
    int add(Source source);
    Source& source(int number) { return sources_[static_cast<std::size_t>(number)]; }
    bool empty() const { return sources_.empty(); }

    // A pass of one kind on the stream. Before it slots hold nothing, since parameters may have changed.
    void begin(Stream& stream, int kind);
    // The matrix is decoded when the stream gets here, and stays so until the next call for another source
    // of its slot.
    void acquire(Stream& stream, int number);
    void end(Stream& stream);

  private:
    static constexpr int kNothing = -1;
    struct Slot {
        int content = kNothing;
        std::unique_ptr<DeviceEvent> filled;
        bool awaited = true;  // the first queue has waited for `filled`
    };

    static void decode(Stream& stream, const Source& source);
    void fill_ahead(Stream& stream, std::size_t busy);
    void await(Stream& stream, Slot& slot);

    Device& device_;
    Arena no_memory_;
    Meter unread_;
    std::optional<Stream> ahead_;  // the second queue
    std::unique_ptr<DeviceEvent> computed_;
    std::vector<Source> sources_;
    std::vector<Slot> slots_;

    // By kind of pass: its uses in order.
    std::map<int, std::vector<int>> orders_;
    const std::vector<int>* order_ = nullptr;  // of this pass; nullptr: nothing is filled ahead
    std::size_t next_ = 0;                     // use of the order
    std::vector<int> uses_;                    // of this pass
    int kind_ = 0;
    bool filled_ahead_ = false;  // in this pass
};

}  // namespace garam
