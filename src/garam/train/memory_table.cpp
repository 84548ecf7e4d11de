#include "garam/train/memory_table.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "garam/core/error.h"

namespace garam {
namespace {

std::string line(const std::string& name, std::int64_t bytes, const std::string& meaning = {}) {
    std::string text = fmt::format("  {:<18} {:>10.1f} MiB  {:>16} bytes", name,
                                   static_cast<double>(bytes) / (1 << 20), bytes);
    if (!meaning.empty()) text += "  " + meaning;
    return text + "\n";
}

std::string meaning_of(Purpose purpose, const MemoryPlan& plan) {
    switch (purpose) {
        case Purpose::weights:
            return "base weights in full, tables";
        case Purpose::quantized_weights:
            return "codes and scales of the base";
        case Purpose::decoded_weights:
            return fmt::format("{} of {} projections of the base, decoded for good",
                               plan.resident_projections, plan.streamable_projections);
        case Purpose::weight_slots:
            return "the others while a pass needs them";
        case Purpose::adapter:
            return "trained parameters";
        case Purpose::gradients:
            return "of all micro-batches of a step";
        case Purpose::optimizer:
            return "states";
        case Purpose::activations:
            return "kept for the backward";
        case Purpose::logits:
            return "a chunk of the head's";
        case Purpose::scratch:
            return "within one op or block";
        case Purpose::batch:
            return "tokens and positions";
        case Purpose::kv_cache:
            return "keys and values";
        case Purpose::count_:
            break;
    }
    return "";
}

}  // namespace

std::int64_t memory_limit_bytes(const std::string& limit, const std::string& key) {
    if (limit == "auto") return 0;
    double value = 0;
    const char* const end = limit.data() + limit.size();
    const auto [unit, error] = std::from_chars(limit.data(), end, value);
    std::string name(unit, end);
    while (!name.empty() && name.front() == ' ')
        name.erase(0, 1);
    double bytes = 0;
    if (name == "GB") bytes = 1e9;
    if (name == "MB") bytes = 1e6;
    if (name == "GiB") bytes = 1 << 30;
    if (name == "MiB") bytes = 1 << 20;
    // Between a MiB and an exbibyte: a number of bytes without its unit is no limit.
    if (error != std::errc() || bytes == 0 || std::isnan(value))
        throw Error(key + ": \"" + limit +
                    "\" is not supported; give auto or a number with GB, GiB, MB or MiB, such as "
                    "6GB");
    if (value * bytes < 1 << 20 || value * bytes > 0x1p60)
        throw Error(key + ": \"" + limit + "\" is " +
                    (value * bytes < 1 << 20 ? "less than a MiB" : "more than an EiB") +
                    "; give what the run may reserve, such as 6GB, or auto for what is free");
    return static_cast<std::int64_t>(value * bytes);
}

std::string memory_table(const MemoryPlan& plan, const std::string& device, std::int64_t limit) {
    std::string text = "peak memory on " + device + ", by purpose:\n";
    for (int i = 0; i < kPurposes; ++i) {
        const auto purpose = static_cast<Purpose>(i);
        const std::int64_t bytes = plan.by_purpose[static_cast<std::size_t>(i)];
        if (bytes > 0) text += line(name_of(purpose), bytes, meaning_of(purpose, plan));
    }
    text += line("total", plan.total_bytes);
    if (plan.load_peak_bytes > plan.total_bytes)
        text += line("while loading", plan.load_peak_bytes, "before the step's memory is taken");
    if (limit > 0) text += line("limit", limit, "memory.limit");
    if (plan.pinned_bytes > 0)
        text += line("pinned host", plan.pinned_bytes, "page-locked memory of the host");
    if (plan.mapped_bytes > 0)
        text += line("mapped files", plan.mapped_bytes,
                     "weights used in place; the system may drop and reread them");
    return text;
}

}  // namespace garam
