#include "garam/train/memory_choice.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "garam/runtime/plan_too_large.h"

namespace garam {
namespace {

// Tokens beyond which a larger micro-batch no longer makes a card faster.
constexpr std::int64_t kEnoughTokens = 16384;

// What kernels, recorded work and the driver need of what is free; kernels alone.
constexpr std::int64_t kForTheDriver = std::int64_t{512} << 20;
constexpr std::int64_t kForKernels = std::int64_t{192} << 20;

// What the plan may use.
std::int64_t room_of(const MemoryQuestion& question) {
    const DeviceProfile& profile = question.profile;
    const std::int64_t free =
        profile.is_cuda()
            ? (profile.free_bytes > 0 ? profile.free_bytes : profile.memory_bytes) - kForTheDriver
            : profile.memory_bytes / 10 * 8;
    return question.limit > 0 ? std::min(question.limit, free) : free;
}

// From all to one, by halves.
std::vector<std::int64_t> merges(const MemoryQuestion& question) {
    if (question.merged > 0) return {question.merged};
    std::vector<std::int64_t> merges;
    for (std::int64_t merge = question.accumulation; merge > 1; merge = (merge + 1) / 2)
        if (merge * question.training.tokens <= kEnoughTokens) merges.push_back(merge);
    merges.push_back(1);
    return merges;
}

// Tokens of a tile: enough for a card's products, and with the last one for the least memory.
constexpr std::int64_t kTiles[] = {2048, 512, 128};

struct Policy {
    Recompute recompute;
    std::int64_t tile;
};

// In the order in which they are tried.
std::vector<Policy> policies_of(const MemoryQuestion& question) {
    std::vector<Recompute> kinds = {question.engine.recompute};
    if (question.chooses_recompute) {
        kinds = {Recompute::nothing, Recompute::norms_and_activation, Recompute::gate_up,
                 Recompute::block};
        if (question.profile.is_cuda()) kinds.push_back(Recompute::offload);
    }
    std::vector<Policy> policies;
    const auto add = [&](Recompute kind, std::int64_t tile) {
        if (tile == 0 || kind >= Recompute::block) policies.push_back({kind, tile});
    };
    if (question.tile || !question.in_tiles)
        for (const Recompute kind : kinds)
            add(kind, question.tile.value_or(0));
    if (!question.tile && (question.in_tiles || question.chooses_recompute))
        for (const std::int64_t tile : kTiles)
            for (const Recompute kind : kinds)
                add(kind, tile);
    // A named policy without tiles goes on where a run in tiles stopped.
    if (policies.empty()) add(kinds.back(), 0);
    return policies;
}

bool suits_host(const MemoryChoice& choice) {
    return choice.plan.pinned_bytes <= choice.pinned_room;
}

class Planner {
  public:
    explicit Planner(const MemoryQuestion& question)
        : question_(question),
          room_(room_of(question)),
          // Page-locked memory is lost to all other programs: not more than half of the host's, unless told.
          pinned_room_(question.host_limit > 0           ? question.host_limit
                       : question.profile.host_bytes > 0 ? question.profile.host_bytes / 2
                                                         : INT64_MAX) {}

    // As many projections decoded as fit; where not even none fits, none.
    MemoryChoice choose(std::int64_t merged, const Policy& policy) {
        MemoryChoice all = planned(merged, policy, Decoder::kAllProjections);
        const std::int64_t most = all.plan.streamable_projections;
        if (all.fits || most == 0 || !suits_host(all)) return all;
        // Only the model's own memory depends on it.
        const ModelBytes& whole = model_bytes(most);
        const std::int64_t step_bytes = all.plan.total_bytes - whole.total;
        const auto fits = [&](std::int64_t resident) {
            const ModelBytes& model = model_bytes(resident);
            return step_bytes + model.total <= room_ && model.load_peak <= room_;
        };
        std::int64_t low = 0;
        for (std::int64_t high = most - 1; low < high;) {
            const std::int64_t middle = (low + high + 1) / 2;
            if (fits(middle)) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        return planned(merged, policy, low);
    }

  private:
    struct ModelBytes {
        std::int64_t total = 0;
        std::int64_t load_peak = 0;
    };

    MemoryChoice planned(std::int64_t merged, const Policy& policy, std::int64_t resident) const {
        EngineOptions engine = question_.engine;
        engine.recompute = policy.recompute;
        engine.tile = policy.tile;
        engine.model.resident_projections = resident;
        const std::int64_t passes = (question_.accumulation + merged - 1) / merged;
        MemoryChoice choice;
        choice.recompute = policy.recompute;
        choice.tile = policy.tile;
        choice.merged = merged;
        choice.resident_projections = resident;
        choice.room = room_;
        choice.pinned_room = pinned_room_;
        choice.fits = false;
        choice.paged_states = engine.optimizer.paged;
        choice.masters_on_host = engine.model.masters_on_host;
        try {
            choice.plan = plan_memory(question_.profile, question_.files, engine,
                                      merged_bounds(question_.training, merged), passes,
                                      question_.evaluation);
        } catch (const PlanTooLarge&) {
            choice.plan.total_bytes = dry_address_space();
            return choice;
        }
        choice.fits = choice.plan.peak_bytes() <= room_ && suits_host(choice);
        if (question_.profile.is_cuda())
            choice.plan.recorded_bytes =
                std::max<std::int64_t>(room_ - choice.plan.peak_bytes() +
                                           (question_.limit > 0 ? 0 : kForTheDriver - kForKernels),
                                       0);
        return choice;
    }

    const ModelBytes& model_bytes(std::int64_t resident) {
        const auto known = model_bytes_.find(resident);
        if (known != model_bytes_.end()) return known->second;
        Decoder::Options options = question_.engine.model;
        options.resident_projections = resident;
        const auto device = make_dry_device(question_.profile);
        const Decoder model(*device, question_.files, options);
        return model_bytes_[resident] = {device->memory().current, model.load_peak_bytes()};
    }

    const MemoryQuestion& question_;
    std::int64_t room_;
    std::int64_t pinned_room_;
    std::map<std::int64_t, ModelBytes> model_bytes_;
};

// Of plans that do not fit: what the host has no room for is larger than all else, and the larger the more it pins.
bool is_smaller(const MemoryChoice& a, const MemoryChoice& b) {
    const bool suits = suits_host(a);
    if (suits != suits_host(b)) return suits;
    if (!suits && a.plan.pinned_bytes != b.plan.pinned_bytes)
        return a.plan.pinned_bytes < b.plan.pinned_bytes;
    return a.plan.peak_bytes() < b.plan.peak_bytes();
}

MemoryChoice best_or_smallest(const MemoryQuestion& question) {
    Planner planner(question);
    const std::vector<std::int64_t> all = merges(question);
    std::optional<MemoryChoice> best, smallest;
    for (const Policy& policy : policies_of(question)) {
        // Tiles are the last resort: their products are small.
        if (best && policy.tile > best->tile) break;
        for (const std::int64_t merged : all) {
            MemoryChoice choice = planner.choose(merged, policy);
            if (choice.fits) {
                // What recomputes more, or merges less, is not faster but by decoding less.
                const bool decodes =
                    choice.plan.resident_projections < choice.plan.streamable_projections;
                const bool is_first = merged == all.front();
                // The estimate is not so good that less than a percent would say which is faster.
                if (!best ||
                    choice.plan.step_time.seconds() < 0.99 * best->plan.step_time.seconds())
                    best = choice;
                if (is_first && !decodes) return *best;
                if (!decodes) break;
            } else if (!smallest || is_smaller(choice, *smallest)) {
                smallest = choice;
            }
        }
    }
    return best ? *best : *smallest;
}

// The one that fits; the faster one where both do, the smaller one where neither does; else the first.
const MemoryChoice& better_of(const MemoryChoice& first, const MemoryChoice& second) {
    if (first.fits != second.fits) return first.fits ? first : second;
    if (!first.fits) return is_smaller(second, first) ? second : first;
    const auto seconds = [](const MemoryChoice& choice) { return choice.plan.step_time.seconds(); };
    return seconds(second) < 0.99 * seconds(first) ? second : first;
}

// The states, and masters, of what is trained.
bool may_page(const MemoryQuestion& question) {
    return question.profile.is_cuda() && question.engine.optimizer.kind == OptimizerKind::adamw;
}

}  // namespace

BatchBounds merged_bounds(const BatchBounds& bounds, std::int64_t merged) {
    BatchBounds all = bounds;
    all.tokens *= merged;
    all.targets *= merged;
    all.samples *= merged;
    return all;
}

void MemoryChoice::apply_to(EngineOptions& engine) const {
    engine.recompute = recompute;
    engine.tile = tile;
    engine.model.resident_projections = resident_projections;
    engine.optimizer.paged = paged_states;
    engine.model.masters_on_host = masters_on_host;
}

MemoryChoice choose_memory(const MemoryQuestion& question) {
    MemoryQuestion way = question;
    MemoryChoice choice = best_or_smallest(way);
    // What the host has no room for is not mended by sending more there.
    if (!may_page(question) || !suits_host(choice)) return choice;
    const bool tiled_by_choice = !question.tile && !question.in_tiles && choice.tile > 0;
    if (!way.engine.optimizer.paged && (!choice.fits || tiled_by_choice)) {
        way.engine.optimizer.paged = true;
        choice = better_of(choice, best_or_smallest(way));
    }
    if (choice.fits || way.engine.model.masters_on_host) return choice;
    way.engine.model.masters_on_host = true;
    return better_of(choice, best_or_smallest(way));
}

std::int64_t longest_sample(MemoryQuestion question) {
    constexpr std::int64_t kStep = 64;
    constexpr std::int64_t kMost = std::int64_t{1} << 26;  // tokens are numbered in 32 bits
    // A plan takes the longer the more tiles there are: few large ones are made.
    constexpr std::int64_t kSmallPlan = std::int64_t{1} << 15;
    question.evaluation = {};
    question.accumulation = question.merged = 1;
    // What needs the least memory decides.
    if (question.chooses_recompute || question.in_tiles)
        question.tile = question.tile.value_or(*std::rbegin(kTiles));

    struct Plan {
        std::int64_t tokens = 0;
        double bytes = 0;
        std::tuple<Recompute, bool, bool> kind;
    };
    Plan before, last;
    double room = 0;
    const auto fits = [&](std::int64_t tokens) {
        question.training = {tokens, tokens, tokens, 1};
        question.engine.model.max_positions = tokens;
        const MemoryChoice choice = choose_memory(question);
        // Projections stay decoded in what samples leave.
        const std::int64_t decoded =
            choice.plan.by_purpose[static_cast<std::size_t>(Purpose::decoded_weights)];
        before =
            std::exchange(last, {tokens,
                                 static_cast<double>(choice.plan.total_bytes - decoded),
                                 {choice.recompute, choice.paged_states, choice.masters_on_host}});
        room = static_cast<double>(choice.room);
        // What a sample needs on the host a longer one needs, too.
        if (choice.fits) {
            question.engine.optimizer.paged = choice.paged_states;
            question.engine.model.masters_on_host = choice.masters_on_host;
        }
        return choice.fits;
    };
    // Memory grows all but linearly: where it fills the room by the last two plans, if these are of a kind.
    const auto expected = [&](std::int64_t low, std::int64_t high, std::int64_t otherwise) {
        const double each =
            (last.bytes - before.bytes) / static_cast<double>(last.tokens - before.tokens);
        if (each <= 0 || last.kind != before.kind) return otherwise;
        const double tokens = static_cast<double>(last.tokens) + (room - last.bytes) / each;
        return static_cast<std::int64_t>(
                   std::clamp(tokens, static_cast<double>(low), static_cast<double>(high))) /
               kStep * kStep;
    };

    // All on the host is the least of a card, and one plan instead of three; where the host has no room for even a short
    // sample's, as little is there as there must be.
    OptimizerOptions& optimizer = question.engine.optimizer;
    bool& masters_on_host = question.engine.model.masters_on_host;
    const std::pair<bool, bool> asked = {optimizer.paged, masters_on_host};
    if (may_page(question)) optimizer.paged = masters_on_host = true;
    if (!fits(kStep)) {
        std::tie(optimizer.paged, masters_on_host) = asked;
        if (!may_page(question) || !fits(kStep)) return 0;
    }
    std::int64_t fitting = kStep;
    std::int64_t beyond = 2 * fitting;
    while (beyond < kMost && fits(beyond)) {
        fitting = beyond;
        const std::int64_t twice = 2 * fitting;
        beyond = fitting < kSmallPlan ? twice : expected(twice, 8 * twice, twice);
    }
    const auto near = [&] { return std::max(kStep, fitting / 1024 / kStep * kStep); };
    for (bool halve = false; beyond - fitting > near(); halve = !halve) {
        const std::int64_t half = (fitting + (beyond - fitting) / 2) / kStep * kStep;
        const std::int64_t low = fitting + near();
        const std::int64_t middle =
            halve ? half : expected(low, std::max(beyond - near(), low), half);
        (fits(middle) ? fitting : beyond) = middle;
    }
    return fitting;
}

std::vector<TokenBatch> merge_micro_batches(std::vector<TokenBatch> batches, std::int64_t merged) {
    if (merged <= 1) return batches;
    std::vector<TokenBatch> result;
    for (std::size_t i = 0; i < batches.size(); ++i) {
        TokenBatch& from = batches[i];
        if (i % static_cast<std::size_t>(merged) == 0) {
            result.push_back(std::move(from));
            continue;
        }
        TokenBatch& to = result.back();
        const auto offset = static_cast<std::int32_t>(to.tokens());
        const auto add = [](auto& values, const auto& more) {
            values.insert(values.end(), more.begin(), more.end());
        };
        add(to.ids, from.ids);
        add(to.targets, from.targets);
        add(to.positions, from.positions);
        add(to.sample_ids, from.sample_ids);
        for (std::size_t s = 1; s < from.cu_seqlens.size(); ++s)
            to.cu_seqlens.push_back(from.cu_seqlens[s] + offset);
    }
    return result;
}

}  // namespace garam
