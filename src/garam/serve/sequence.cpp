#include "garam/serve/sequence.h"

#include <algorithm>
#include <utility>

#include "garam/core/error.h"
#include "garam/ops/elementwise.h"

namespace garam {
namespace {

constexpr std::int64_t kFirstRoom = 256;

}  // namespace

Sequence::Sequence(ServedModel& model, std::int64_t room) : model_(model) {
    cache_ = model.make_cache(model.decoder().cache_capacity(
        1, std::clamp(std::max(room, std::min(kFirstRoom, model.context())), std::int64_t{1},
                      model.context())));
}

std::span<const float> Sequence::logits() const {
    GARAM_CHECK(logits_valid_, "logits of a sequence that was only rewound");
    return logits_;
}

void Sequence::grow(std::int64_t tokens) {
    Decoder& decoder = model_.decoder();
    // A cache of a longer sequence does not serve a short one where keys are turned otherwise.
    if (tokens <= cache_.capacity &&
        decoder.cache_capacity(tokens, cache_.capacity) == cache_.capacity)
        return;
    if (tokens > model_.context())
        throw Error("the text has " + std::to_string(tokens) + " tokens, the model's context " +
                    std::to_string(model_.context()));
    // Doubling: the copies of a long conversation cost no more than its computation.
    KvCache larger = model_.make_cache(decoder.cache_capacity(
        tokens, std::min(std::max(tokens, 2 * cache_.capacity), model_.context())));
    if (!decoder.turns_alike(cache_, larger)) {
        // All keys change: they are made again.
        cache_ = std::move(larger);
        const std::vector<std::int32_t> ids = std::exchange(ids_, {});
        feed(ids);
        return;
    }
    if (cache_.length > 0) {
        for (std::size_t l = 0; l < cache_.layers.size(); ++l) {
            cast(model_.stream(), cache_.layers[l].keys_and_values.slice_rows(0, cache_.length),
                 larger.layers[l].keys_and_values.slice_rows(0, cache_.length));
        }
    }
    larger.length = cache_.length;
    cache_ = std::move(larger);
}

void Sequence::feed(std::span<const std::int32_t> ids) {
    for (std::size_t begin = 0; begin < ids.size(); begin += kPrefillChunk) {
        const auto chunk =
            ids.subspan(begin, std::min<std::size_t>(kPrefillChunk, ids.size() - begin));
        logits_ = model_.decoder().decode(model_.stream(), cache_, chunk);
        ids_.insert(ids_.end(), chunk.begin(), chunk.end());
    }
}

void Sequence::extend(std::span<const std::int32_t> ids) {
    GARAM_CHECK(!ids.empty(), "nothing to extend a sequence by");
    logits_valid_ = false;
    grow(size() + static_cast<std::int64_t>(ids.size()));
    feed(ids);
    logits_valid_ = true;
}

std::vector<float> Sequence::extend_for_logits(std::span<const std::int32_t> ids) {
    const auto count = static_cast<std::int64_t>(ids.size());
    grow(size() + count);
    std::vector<float> logits;
    model_.reserve([&](Decoder& decoder, Stream& stream) {
        KvCache cache = decoder.make_cache(size() + count);
        cache.length = size();
        decoder.decode(stream, cache, ids, logits, count);
    });
    model_.decoder().decode(model_.stream(), cache_, ids, logits, count);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    logits_valid_ = false;
    return logits;
}

void Sequence::rewind(std::int64_t size) {
    GARAM_CHECK(size >= 0 && size <= this->size(), "sequence rewound forwards");
    logits_valid_ = logits_valid_ && size == this->size();
    ids_.resize(static_cast<std::size_t>(size));
    cache_.length = size;
}

std::int64_t Sequence::move_to(std::span<const std::int32_t> ids) {
    GARAM_CHECK(!ids.empty(), "an empty sequence has no logits");
    const auto parting = std::mismatch(ids_.begin(), ids_.end(), ids.begin(), ids.end()).first;
    auto kept = static_cast<std::int64_t>(parting - ids_.begin());
    const auto wanted = static_cast<std::int64_t>(ids.size());
    if (kept == wanted && wanted == size() && logits_valid_) return kept;
    kept = std::min(kept, wanted - 1);  // the last token is fed for its logits
    rewind(kept);
    extend(ids.subspan(static_cast<std::size_t>(kept)));
    return kept;
}

}  // namespace garam
