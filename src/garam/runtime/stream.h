// An ordered queue of work on one device, with the step memory that its ops use and the meter that
// hears of each op. On the CPU work is done when the call returns; on a card it is enqueued, and what
// the host reads of it needs synchronize() first.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "garam/runtime/arena.h"
#include "garam/runtime/device.h"
#include "garam/runtime/meter.h"

namespace garam {

class Stream {
  public:
    // All three must outlive the stream.
    Stream(Device& device, Arena& arena, Meter& meter)
        : device_(device), arena_(arena), meter_(meter), queue_(device.open_queue()) {}
    ~Stream() { device_.close_queue(queue_); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    Device& device() const { return device_; }
    Arena& arena() const { return arena_; }
    Meter& meter() const { return meter_; }
    QueueHandle queue() const { return queue_; }
    bool is_dry() const { return device_.kind() == DeviceKind::dry; }
    // This stream's ops run on a card, or are counted for one.
    bool is_for_cuda() const { return device_.profile().is_cuda(); }
    void synchronize() const { device_.synchronize(queue_); }

  private:
    Device& device_;
    Arena& arena_;
    Meter& meter_;
    QueueHandle queue_;
};

// Names a part of the work to the vendor's profiler while the meter asks for it.
class RangeScope {
  public:
    RangeScope(Stream& stream, const std::string& name) : stream_(stream) {
        open_ = stream.meter().names_ranges() && !stream.is_dry();
        if (open_) stream.device().open_range(name.c_str());
    }
    ~RangeScope() {
        if (open_) stream_.device().close_range();
    }
    RangeScope(const RangeScope&) = delete;
    RangeScope& operator=(const RangeScope&) = delete;

  private:
    Stream& stream_;
    bool open_;
};

// Stands in an op's entry around its work: tells the meter the op's name, cost and how long it took (on a
// card only if the meter asks for it).
//
//     OpScope op(stream, "rms_norm", cost);
//     if (op.dry()) return;
//     ... compute ...
class OpScope {
  public:
    OpScope(Stream& stream, const char* name, const Cost& cost)
        : stream_(stream), name_(name), cost_(cost), dry_(stream.is_dry()) {
        Meter& meter = stream.meter();
        records_ = meter.enter() && meter.enabled();
        if (!records_ || dry_) return;
        if (meter.names_ranges()) stream.device().open_range(name);
        if (meter.times_device()) begin_ = stream.device().make_event();
        if (begin_) {
            begin_->record(stream.queue());
        } else {
            start_ = Meter::Clock::now();
        }
    }
    ~OpScope() {
        Meter& meter = stream_.meter();
        meter.leave();
        if (!records_) return;
        if (dry_) {
            meter.record(name_, cost_, 0);
            return;
        }
        if (meter.names_ranges()) stream_.device().close_range();
        if (begin_) {
            std::unique_ptr<DeviceEvent> end = stream_.device().make_event();
            end->record(stream_.queue());
            meter.record_later(name_, cost_, std::move(begin_), std::move(end));
            return;
        }
        const double seconds =
            stream_.queue() != nullptr
                ? 0
                : std::chrono::duration<double>(Meter::Clock::now() - start_).count();
        meter.record(name_, cost_, seconds);
    }
    OpScope(const OpScope&) = delete;
    OpScope& operator=(const OpScope&) = delete;
    bool dry() const { return dry_; }

  private:
    Stream& stream_;
    const char* name_;
    Cost cost_;
    bool dry_;
    bool records_ = false;
    std::unique_ptr<DeviceEvent> begin_;
    Meter::Clock::time_point start_;
};

}  // namespace garam
