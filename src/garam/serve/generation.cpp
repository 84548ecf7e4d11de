#include "garam/serve/generation.h"

#include <algorithm>
#include <chrono>

#include "garam/core/error.h"
#include "garam/serve/stop_strings.h"

namespace garam {
namespace {

using Clock = std::chrono::steady_clock;

// Tokens of the prompt that the decoder of the answer hears first: more than one character has bytes.
constexpr std::size_t kSeenByDecoder = 8;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

double per_second(double count, double seconds) {
    return seconds > 0 ? count / seconds : 0;
}

}  // namespace

void GenerationOptions::check() const {
    if (max_new_tokens < 1)
        throw Error("max-new-tokens must be at least 1, not " + std::to_string(max_new_tokens));
    sampling.check();
    const StopStrings checked(stop);
}

const char* name_of(FinishReason reason) {
    switch (reason) {
        case FinishReason::stop:
            return "stop";
        case FinishReason::length:
            return "length";
        case FinishReason::context:
            return "context";
    }
    return "?";
}

double Generation::prefill_tokens_per_second() const {
    return per_second(static_cast<double>(prompt_tokens - reused_tokens), prefill_seconds);
}

double Generation::decode_tokens_per_second() const {
    // The first id comes from the prompt's own logits.
    return per_second(static_cast<double>(ids.size()) - 1, decode_seconds);
}

Generation generate(Sequence& sequence, std::span<const std::int32_t> prompt,
                    const GenerationOptions& options,
                    const std::function<void(std::string_view)>& on_text) {
    options.check();
    ServedModel& model = sequence.model();
    Generation result;
    result.prompt_tokens = static_cast<std::int64_t>(prompt.size());
    if (prompt.empty()) throw Error("the prompt is empty");
    if (result.prompt_tokens >= model.context())
        throw Error("the prompt has " + std::to_string(result.prompt_tokens) +
                    " tokens; the model's context of " + std::to_string(model.context()) +
                    " leaves no room for an answer");

    Clock::time_point start = Clock::now();
    result.reused_tokens = sequence.move_to(prompt);
    result.prefill_seconds = seconds_since(start);

    Sampler sampler(options.sampling);
    sampler.see(prompt);
    StreamDecoder decoder(model.tokenizer(), options.skip_special_tokens);
    if (options.continues_prompt) {
        for (const std::int32_t id : prompt.last(std::min(prompt.size(), kSeenByDecoder)))
            decoder.push(id);
    }
    StopStrings stops(options.stop);
    const auto emit = [&](const std::string& text) {
        if (text.empty()) return;
        result.text += text;
        if (on_text) on_text(text);
    };

    start = Clock::now();
    for (;;) {
        const std::int32_t id = sampler.next(sequence.logits());
        result.ids.push_back(id);
        if (std::find(options.eos_ids.begin(), options.eos_ids.end(), id) !=
            options.eos_ids.end()) {
            if (!options.skip_special_tokens) emit(stops.push(decoder.push(id)));
            result.finish_reason = FinishReason::stop;
            break;
        }
        emit(stops.push(decoder.push(id)));
        if (stops.stopped()) {
            result.finish_reason = FinishReason::stop;
            break;
        }
        const auto count = static_cast<std::int64_t>(result.ids.size());
        if (count == options.max_new_tokens) {
            result.finish_reason = FinishReason::length;
            break;
        }
        if (result.prompt_tokens + count == model.context()) {
            result.finish_reason = FinishReason::context;
            break;
        }
        sequence.extend({&id, 1});
    }
    emit(stops.push(decoder.flush()));
    emit(stops.flush());
    if (stops.stopped()) result.finish_reason = FinishReason::stop;
    result.decode_seconds = seconds_since(start);
    return result;
}

}  // namespace garam
