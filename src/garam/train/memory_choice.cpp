#include "garam/train/memory_choice.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace garam {
namespace {

// Tokens beyond which a larger micro-batch no longer makes a card faster.
constexpr std::int64_t kEnoughTokens = 16384;
// Fewer leave a card idle: rather recompute than run these.
constexpr std::int64_t kFewTokens = 2048;

// What the plan may use: kernels, recorded work and the driver need some of what is free.
std::int64_t budget(const DeviceProfile& profile) {
    constexpr std::int64_t kForTheDriver = std::int64_t{512} << 20;
    if (profile.is_cuda())
        return (profile.free_bytes > 0 ? profile.free_bytes : profile.memory_bytes) - kForTheDriver;
    return profile.memory_bytes / 10 * 8;
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
            add(kinds.back(), tile);
    // A named policy without tiles goes on where a run in tiles stopped.
    if (policies.empty()) add(kinds.back(), 0);
    return policies;
}

}  // namespace

BatchBounds merged_bounds(const BatchBounds& bounds, std::int64_t merged) {
    BatchBounds all = bounds;
    all.tokens *= merged;
    all.targets *= merged;
    all.samples *= merged;
    return all;
}

MemoryChoice choose_memory(const MemoryQuestion& question) {
    const std::int64_t room = budget(question.profile);
    // Page-locked memory is lost to all other programs: not more than half of the host's.
    const std::int64_t pinned_room =
        question.profile.host_bytes > 0 ? question.profile.host_bytes / 2 : INT64_MAX;
    const std::vector<Policy> policies = policies_of(question);
    const auto answer = [&](std::int64_t merged, const Policy& policy) {
        EngineOptions engine = question.engine;
        engine.recompute = policy.recompute;
        engine.tile = policy.tile;
        const std::int64_t passes = (question.accumulation + merged - 1) / merged;
        MemoryChoice choice{
            policy.recompute, policy.tile, merged,
            plan_memory(question.profile, question.files, engine,
                        merged_bounds(question.training, merged), passes, question.evaluation)};
        choice.fits = choice.plan.total_bytes <= room && choice.plan.pinned_bytes <= pinned_room;
        return choice;
    };
    const std::vector<std::int64_t> all = merges(question);
    MemoryChoice choice;
    // Without recomputing, down to micro-batches that still fill a card; then with it.
    for (const Policy& policy : policies) {
        for (const std::int64_t merged : all) {
            const bool few = merged * question.training.tokens < kFewTokens;
            if (few && merged != all.front() && policy.recompute < policies.back().recompute)
                continue;
            choice = answer(merged, policy);
            if (choice.fits) return choice;
        }
    }
    // The last is the smallest; on a card it may ask more of the host than there is.
    if (question.chooses_recompute && choice.plan.pinned_bytes > pinned_room)
        return answer(choice.merged, {Recompute::block, choice.tile});
    return choice;
}

std::int64_t longest_sample(MemoryQuestion question) {
    constexpr std::int64_t kStep = 64;
    constexpr std::int64_t kMost = std::int64_t{1} << 26;  // tokens are numbered in 32 bits
    question.evaluation = {};
    question.accumulation = question.merged = 1;
    const auto fits = [&](std::int64_t tokens) {
        question.training = {tokens, tokens, tokens, 1};
        question.engine.model.max_positions = tokens;
        return choose_memory(question).fits;
    };
    if (!fits(kStep)) return 0;
    std::int64_t fitting = kStep;
    std::int64_t beyond = 2 * fitting;
    while (beyond < kMost && fits(beyond)) {
        fitting = beyond;
        beyond *= 2;
    }
    while (beyond - fitting > std::max(kStep, fitting / 4096)) {
        const std::int64_t middle = (fitting + (beyond - fitting) / 2) / kStep * kStep;
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
