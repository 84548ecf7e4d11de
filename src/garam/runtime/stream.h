// An ordered queue of work on one device, with the step memory that its ops use and the meter that
// hears of each op. On the CPU work is done when the call returns.
#pragma once

#include "garam/runtime/arena.h"
#include "garam/runtime/device.h"
#include "garam/runtime/meter.h"

namespace garam {

class Stream {
  public:
    // All three must outlive the stream.
    Stream(Device& device, Arena& arena, Meter& meter)
        : device_(device), arena_(arena), meter_(meter) {}

    Device& device() const { return device_; }
    Arena& arena() const { return arena_; }
    Meter& meter() const { return meter_; }
    bool is_dry() const { return device_.kind() == DeviceKind::dry; }

  private:
    Device& device_;
    Arena& arena_;
    Meter& meter_;
};

// Stands in an op's entry around its work: tells the meter the op's name, cost and, on the CPU, how
// long it took.
//
//     OpScope op(stream, "rms_norm", cost);
//     if (op.dry()) return;
//     ... compute ...
class OpScope {
  public:
    OpScope(Stream& stream, const char* name, const Cost& cost)
        : meter_(stream.meter()), dry_(stream.is_dry()), name_(name), cost_(cost) {
        if (meter_.enabled() && !dry_) start_ = Meter::Clock::now();
    }
    ~OpScope() {
        if (!meter_.enabled()) return;
        const double seconds =
            dry_ ? 0.0 : std::chrono::duration<double>(Meter::Clock::now() - start_).count();
        meter_.record(name_, cost_, seconds);
    }
    OpScope(const OpScope&) = delete;
    OpScope& operator=(const OpScope&) = delete;
    bool dry() const { return dry_; }

  private:
    Meter& meter_;
    bool dry_;
    const char* name_;
    Cost cost_;
    Meter::Clock::time_point start_;
};

}  // namespace garam
