// Adds up what ops cost and how long they took, by op name and by phase of the step.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace garam {

// The least that an op must do: arithmetic (a multiply-add counts two) and bytes moved between
// memory and the processor when each input is read once and each output written once.
struct Cost {
    double flops = 0;
    double bytes_read = 0;
    double bytes_written = 0;

    Cost& operator+=(const Cost& other) {
        flops += other.flops;
        bytes_read += other.bytes_read;
        bytes_written += other.bytes_written;
        return *this;
    }
};

class Meter {
  public:
    using Clock = std::chrono::steady_clock;
    struct Entry {
        Cost cost;
        double seconds = 0;
        std::int64_t calls = 0;
    };
    // (phase, op)
    using Table = std::map<std::pair<std::string, std::string>, Entry>;

    bool enabled() const { return enabled_; }
    void enable(bool on) { enabled_ = on; }

    void record(const char* op, const Cost& cost, double seconds) {
        Entry& entry = table_[{phase_, op}];
        entry.cost += cost;
        entry.seconds += seconds;
        ++entry.calls;
    }
    const Table& table() const { return table_; }
    Entry total() const {
        Entry sum;
        for (const auto& [key, entry] : table_) {
            sum.cost += entry.cost;
            sum.seconds += entry.seconds;
            sum.calls += entry.calls;
        }
        return sum;
    }
    void clear() { table_.clear(); }

    const std::string& phase() const { return phase_; }
    void set_phase(std::string phase) { phase_ = std::move(phase); }

  private:
    bool enabled_ = false;
    std::string phase_;
    Table table_;
};

// Names the phase of the ops within a scope ("forward", "backward", "head", "optimizer").
class PhaseScope {
  public:
    PhaseScope(Meter& meter, const char* phase) : meter_(meter), outer_(meter.phase()) {
        meter_.set_phase(phase);
    }
    ~PhaseScope() { meter_.set_phase(outer_); }
    PhaseScope(const PhaseScope&) = delete;
    PhaseScope& operator=(const PhaseScope&) = delete;

  private:
    Meter& meter_;
    std::string outer_;
};

}  // namespace garam
