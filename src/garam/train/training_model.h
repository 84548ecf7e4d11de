// The model in training as one that can be asked, within the step memory that its plan reserved.
#pragma once

#include "garam/data/judged_rows.h"
#include "garam/serve/judging.h"
#include "garam/train/engine.h"

namespace garam {

class TrainingModel : public ServedModel {
  public:
    // `context`: what the engine was planned for (EvaluationBounds::room).
    TrainingModel(TrainingEngine& engine, const Tokenizer& tokenizer, std::int64_t context)
        : engine_(engine), tokenizer_(tokenizer), context_(context) {}

    Decoder& decoder() override { return engine_.model(); }
    const Tokenizer& tokenizer() const override { return tokenizer_; }
    Stream& stream() override { return engine_.stream(); }
    std::int64_t context() const override { return context_; }
    // In step memory, which training leaves empty between steps.
    KvCache make_cache(std::int64_t capacity) override {
        return engine_.model().make_cache(engine_.stream(), capacity);
    }
    // The plan holds it.
    void reserve(const std::function<void(Decoder&, Stream&)>& /*calls*/) override {}

  private:
    TrainingEngine& engine_;
    const Tokenizer& tokenizer_;
    std::int64_t context_;
};

}  // namespace garam
