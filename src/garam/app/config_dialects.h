// The configs of other trainers, as far as their keys have a meaning here: one table of names for each.
// What they say about data is carried by data_import.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "garam/app/yaml_config.h"

namespace garam {

enum class Dialect : std::uint8_t { trl, axolotl, llama_factory, unsloth };
const char* name_of(Dialect dialect);

// What becomes of a key.
enum class Carry : std::uint8_t {
    copy,                 // the same meaning under another name
    copy_first,           // the same, where nothing else sets our key
    targets,              // names of linears, in a list or with commas; all
    all_linear,           // true: every linear
    optimizer,            // names of Transformers
    schedule,             // the same
    warmup,               // steps, or below 1 a part of them
    dtype,                // bfloat16, float32, float16
    fp16,                 // true: there is none
    checkpointing,        // true, false, or a name
    eval_strategy,        // no, steps, epoch
    save_strategy,        // the same
    all_targets,          // true: prompts are trained on too
    peft,                 // true: LoRA
    adapter_kind,         // lora, qlora; none: all weights
    finetuning_type,      // lora, full
    stage,                // sft, pt
    report,               // where metrics go
    min_lr_ratio,         // axolotl: of its cosine
    quantization_bit,     // 4; 8
    quantization_method,  // bitsandbytes
};

struct CarryRule {
    const char* name;  // theirs
    Carry carry;
    const char* ours;
};

struct DialectTable {
    Dialect dialect;
    std::span<const char* const> signs;  // keys that tell it from the others
    std::span<const CarryRule> rules;    // before those that all share
    // What it does where a file says nothing, and we would do otherwise: our key and its value.
    struct Default {
        const char* ours;
        const char* value;
        bool of_lora;  // only with method=lora
    };
    std::span<const Default> defaults;
    bool alpha_is_twice_rank;  // of LoRA, where nothing is said
    bool sections;             // keys may lie in sections of any name
    bool
        double_quantization;  // with load_in_4bit, where nothing is said; the type is nf4 in all of them
};
const DialectTable& table_of(Dialect dialect);
// Keys of Transformers' TrainingArguments.
std::span<const CarryRule> shared_rules();

// Why a key of one of them, by its last part or its first, is left out; nullptr: not known.
const char* reason_against(const std::string& key);

// By the keys of a file. Throws Error where they are nobody's, or our own.
Dialect recognise(const std::vector<ConfigLine>& lines, const std::string& file);

}  // namespace garam
