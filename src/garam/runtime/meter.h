// Adds up what ops cost and how long they took, by op name and by phase of the step.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "garam/core/product_table.h"
#include "garam/runtime/device.h"

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
    // On a card: time each op with events around it (which keeps ops from overlapping), and name it to
    // the vendor's profiler. Off: seconds of ops on a card are 0.
    bool times_device() const { return times_device_; }
    void time_device(bool on) { times_device_ = on; }
    bool names_ranges() const { return names_ranges_; }
    void name_ranges(bool on) { names_ranges_ = on; }

    // Which products a card is asked for, and how often: what `garam tune` measures.
    using Products = std::map<ProductShape, std::int64_t>;
    bool counts_products() const { return counts_products_; }
    void count_products(bool on) { counts_products_ = on; }
    void record_product(const ProductShape& shape) { ++products_[shape]; }
    const Products& products() const { return products_; }

    // Of ops that call others only the outermost is recorded: enter() says whether this is it.
    bool enter() { return depth_++ == 0; }
    void leave() { --depth_; }

    void record(const char* op, const Cost& cost, double seconds) {
        Entry& entry = table_[{phase_, op}];
        entry.cost += cost;
        entry.seconds += seconds;
        ++entry.calls;
    }
    // An op whose time is known once the device has passed both events.
    void record_later(const char* op, const Cost& cost, std::unique_ptr<DeviceEvent> begin,
                      std::unique_ptr<DeviceEvent> end) {
        pending_.push_back({phase_, op, cost, std::move(begin), std::move(end)});
    }
    // Waits for the ops that were timed on a device, and adds them to the table.
    void settle() {
        for (const Pending& op : pending_) {
            Entry& entry = table_[{op.phase, op.op}];
            entry.cost += op.cost;
            entry.seconds += op.end->seconds_since(*op.begin);
            ++entry.calls;
        }
        pending_.clear();
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
    struct Pending {
        std::string phase;
        const char* op;
        Cost cost;
        std::unique_ptr<DeviceEvent> begin, end;
    };

    bool enabled_ = false;
    int depth_ = 0;
    bool times_device_ = false;
    bool names_ranges_ = false;
    bool counts_products_ = false;
    std::vector<Pending> pending_;
    std::string phase_;
    Table table_;
    Products products_;
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
