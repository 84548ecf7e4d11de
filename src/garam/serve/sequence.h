// One growing text of a model: its ids and their keys and values. Going back is free, so texts
// with the same beginning (turns of a chat, answers to one question) compute it once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "garam/serve/served_model.h"

namespace garam {

class Sequence {
  public:
    // `room`: tokens that are expected; more make the cache grow, up to the model's context. The model
    // must outlive the sequence.
    explicit Sequence(ServedModel& model, std::int64_t room = 0);

    std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()); }
    const std::vector<std::int32_t>& ids() const { return ids_; }
    // Logits [vocab] after the last id, until the next. Only after extend() or move_to(), not after
    // rewind().
    std::span<const float> logits() const;

    // Appends ids (at least one), in chunks of kPrefillChunk. Throws Error when the context is
    // full.
    void extend(std::span<const std::int32_t> ids);
    // The same for a few ids at once, and the logits [ids, vocab] after each of them.
    std::vector<float> extend_for_logits(std::span<const std::int32_t> ids);
    // Forgets all but the first `size` ids.
    void rewind(std::int64_t size);
    // Makes `ids` (at least one) the sequence, keeping what its beginning has in common with the
    // present one. Returns how many tokens were kept. logits() is valid then.
    std::int64_t move_to(std::span<const std::int32_t> ids);

    ServedModel& model() { return model_; }

  private:
    // Makes room for so many tokens.
    void grow(std::int64_t tokens);
    // Appends in chunks.
    void feed(std::span<const std::int32_t> ids);

    ServedModel& model_;
    KvCache cache_;
    std::vector<std::int32_t> ids_;
    std::span<const float> logits_;  // in the cache
    bool logits_valid_ = false;
};

}  // namespace garam
