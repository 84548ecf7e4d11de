#include "garam/nn/weight_stream.h"

#include <algorithm>
#include <utility>

#include "garam/core/error.h"
#include "garam/ops/dequantize.h"

namespace garam {

WeightStream::WeightStream(Device& device)
    : device_(device), no_memory_(device, 0), computed_(device.make_event()) {}

WeightStream::~WeightStream() = default;

int WeightStream::add(Source source) {
    if (slots_.size() <= source.slot) slots_.resize(source.slot + 1);
    Slot& slot = slots_[source.slot];
    if (!slot.filled) slot.filled = device_.make_event();
    if (computed_ && !ahead_) ahead_.emplace(device_, no_memory_, unread_);
    sources_.push_back(std::move(source));
    return static_cast<int>(sources_.size()) - 1;
}

void WeightStream::begin(Stream& stream, int kind) {
    if (empty()) return;
    kind_ = kind;
    uses_.clear();
    next_ = 0;
    filled_ahead_ = false;
    for (Slot& slot : slots_) {
        slot.content = kNothing;
        slot.awaited = true;
    }
    const auto known = orders_.find(kind);
    const bool has_queue = ahead_.has_value() && !stream.meter().times_device();
    order_ = known != orders_.end() && has_queue ? &known->second : nullptr;
    fill_ahead(stream, slots_.size());
}

void WeightStream::acquire(Stream& stream, int number) {
    const Source& source = sources_[static_cast<std::size_t>(number)];
    Slot& slot = slots_[source.slot];
    uses_.push_back(number);
    if (order_ != nullptr) {
        if (next_ == order_->size() || (*order_)[next_] != number) order_ = nullptr;
        ++next_;
    }
    await(stream, slot);
    if (slot.content != number) {
        decode(stream, source);
        slot.content = number;
    }
    fill_ahead(stream, source.slot);
}

void WeightStream::end(Stream& stream) {
    if (empty()) return;
    if (filled_ahead_) {
        computed_->record(ahead_->queue());
        computed_->wait_in(stream.queue());
    }
    orders_.try_emplace(kind_, uses_);
}

void WeightStream::await(Stream& stream, Slot& slot) {
    if (!slot.awaited) slot.filled->wait_in(stream.queue());
    slot.awaited = true;
}

void WeightStream::decode(Stream& stream, const Source& source) {
    std::int64_t row = 0;
    for (const QuantizedMatrix& part : source.parts) {
        const Tensor rows = source.matrix.slice_rows(row, row + part.rows);
        dequantize(stream, part, 0, rows.slice_columns(0, part.columns));
        row += part.rows;
    }
    const std::int64_t in = source.matrix.columns() - source.tail;
    if (source.clears_tail) {
        fill(stream, 0, source.matrix.slice_rows(row, row + source.tail));
        fill(stream, 0, source.matrix.slice_rows(0, row).slice_columns(in, in + source.tail));
    }
    if (!source.adapters.empty()) cast_many(stream, source.adapters);
}

// For each slot but the busy one, whose product is yet to be enqueued: the first use that comes of it. What the
// slot holds is not needed before that.
void WeightStream::fill_ahead(Stream& stream, std::size_t busy) {
    if (order_ == nullptr) return;
    std::vector<bool> seen(slots_.size());
    std::size_t unseen = slots_.size();
    if (busy < slots_.size()) {
        seen[busy] = true;
        --unseen;
    }
    bool follows = false;
    // A slot that is used no more is looked for to the end of the pass, unless this stops it.
    const std::size_t end = std::min(order_->size(), next_ + 8 * slots_.size());
    for (std::size_t use = next_; use < end && unseen > 0; ++use) {
        const int number = (*order_)[use];
        const Source& source = sources_[static_cast<std::size_t>(number)];
        if (seen[source.slot]) continue;
        seen[source.slot] = true;
        --unseen;
        Slot& slot = slots_[source.slot];
        if (slot.content == number) continue;
        if (!follows) {
            computed_->record(stream.queue());
            computed_->wait_in(ahead_->queue());
            follows = true;
        }
        decode(*ahead_, source);
        slot.filled->record(ahead_->queue());
        slot.content = number;
        slot.awaited = false;
        filled_ahead_ = true;
    }
}

}  // namespace garam
