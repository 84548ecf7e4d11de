#include "garam/app/session_arguments.h"

#include "garam/app/command_line.h"

namespace garam {

void SessionArguments::declare(Arguments& arguments, bool model_is_positional) {
    const char* const meaning =
        "Hugging Face model folder, GGUF file, or org/name in the local cache";
    if (model_is_positional) {
        arguments.positional("MODEL", model, meaning);
    } else {
        arguments.option("--model", &model, meaning);
    }
    arguments.option("--adapter", &adapter, "PEFT LoRA folder or LoRA GGUF to apply");
    arguments.option(
        "--device", &device,
        "Where to compute: auto (a usable card, else the processor), cpu, cuda, cuda:N");
    arguments.option("--dtype", &dtype,
                     "What to compute in: f32, bf16, or auto (bf16 where the processor is fast at "
                     "it; greedy text of f32 and bf16 may differ)");
    arguments.option("--tuned-products", &tuned_products,
                     "On a card, multiply as this file of garam tune says");
}

SessionOptions SessionArguments::options() const {
    SessionOptions options;
    options.model = model;
    options.adapter = adapter;
    options.device = device;
    options.dtype = dtype;
    options.tuned_products = tuned_products;
    return options;
}

void AnswerArguments::declare(Arguments& arguments) {
    arguments.option("--max-new-tokens", &max_new_tokens, "Longest answer", at_least(1));
    arguments.option("--temperature", &sampling.temperature,
                     "0: always the likeliest token; else draw, from a flatter distribution the "
                     "higher it is",
                     at_least(0));
    arguments.option("--top-k", &sampling.top_k, "Draw from the k likeliest tokens; 0: all",
                     at_least(0));
    arguments.option("--top-p", &sampling.top_p,
                     "Draw from the fewest tokens that hold this probability; 1: all",
                     Range{.low = 0, .high = 1, .low_open = true});
    arguments.option(
        "--min-p", &sampling.min_p,
        "Leave out tokens below this share of the likeliest one's probability; 0: none",
        between(0, 1));
    arguments.option("--repetition-penalty", &sampling.repetition_penalty,
                     "Above 1: tokens of prompt and answer become less likely", above(0));
    arguments.option("--seed", &seed, "Of the draws: the same seed gives the same text");
    arguments.option("--stop", &stop, "Text that ends the answer; may be given several times");
}

GenerationOptions AnswerArguments::options(const Session& session) const {
    GenerationOptions options;
    options.max_new_tokens = max_new_tokens;
    options.sampling = sampling;
    options.sampling.seed = static_cast<std::uint64_t>(seed);
    options.stop = stop;
    options.eos_ids = session.eos_ids();
    options.check();
    return options;
}

void print_warnings(const Session& session) {
    for (const std::string& warning : session.warnings())
        warn(warning);
}

}  // namespace garam
