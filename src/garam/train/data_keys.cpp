#include "garam/train/data_keys.h"

#include <algorithm>

#include "garam/core/error.h"

namespace garam {
namespace {

void describe_sources(DataConfig& c, ConfigTable& table) {
    table.add(
        "data.train", &c.train,
        "What to train on, one or a list: files (JSON Lines, JSON, CSV, TSV, text, Parquet, "
        "Arrow, also .gz and .zst), folders (as datasets' save_to_disk writes them, or of data "
        "files in the Hub's layout), patterns (data/*.parquet), or org/name as it lies in "
        "the local Hugging Face cache. Required.");
    table.add(
        "data.validation", &c.validation,
        "The same to evaluate on; empty: data.validation_split, data.validation_fraction, or no "
        "evaluation. Transformers' eval_dataset.");
    table.add(
        "data.weights", &c.weights,
        "Passes over each source of data.train in an epoch, one a source; 0.5 takes half of its "
        "rows, drawn from train.seed. Empty: one each.",
        Range{.low = 0, .high = 1e6, .low_open = true});
    table.add("data.train_split", &c.train_split,
              "Which split to train on where a source holds several, also with a slice as datasets "
              "writes it: train, train[:90%], train[1000:2000], [:500].");
    table.add(
        "data.validation_split", &c.validation_split,
        "The same of data.validation; without data.validation, of the sources of data.train.");
    table.add("data.validation_fraction", &c.validation_fraction,
              "Part of the training rows that is held out, drawn from train.seed, to evaluate on.",
              from_to_below(0, 1));
    table.add_choice("data.format", c.format,
                     {"auto", "arrow", "parquet", "jsonl", "json", "csv", "tsv", "text"},
                     "Format of the files; auto: told by their names and contents.");
    table.add("data.max_rows", &c.max_rows, "Rows of each source, from its start; 0: all.",
              at_least(0));
    table.add("data.csv_delimiter", &c.csv_delimiter,
              "CSV: the character between fields, or tab; null: found out.");
    table.add("data.csv_header", &c.csv_header,
              "CSV: whether the first line names the columns; null: true, unless data.csv_columns "
              "names them.");
    table.add("data.csv_columns", &c.csv_columns,
              "CSV: names of the columns, where the file has no head.");
    table.add(
        "data.csv_quote", &c.csv_quote,
        "CSV: the character around fields that hold delimiters; empty: none is; null: a double "
        "quote.");
    table.add_choice("data.text_unit", c.text_unit, {"line", "paragraph", "document"},
                     "Plain text: what a row is; a paragraph ends at a blank line, a document is a "
                     "file.");
    table.add(
        "data.zip", &c.zip,
        "Names of columns: the text files of data.train are these columns of the same rows, line "
        "by line, such as [source, target] of a translation.");
    table.add("data.shuffle", &c.shuffle, "Another order in each epoch, drawn from train.seed.");
    table.add_choice("data.on_error", c.on_error, {"fail", "skip"},
                     "A row that cannot be read stops the run, or is counted and left out.");
    table.add("data.cache", &c.cache,
              "Keep the tokenised rows, so that a run with the same data, tokenizer and settings "
              "starts at once.");
    table.add(
        "data.cache_dir", &c.cache_dir,
        "Folder of what data.cache keeps; empty: garam/data in XDG_CACHE_HOME, or in ~/.cache.");
}

void describe_rows(DataConfig& c, ConfigTable& table) {
    table.add(
        "data.columns", &c.columns,
        "Names of the columns, where they are not found out or others are wanted, as "
        "{prompt: question, completion: answer}; a column within one is named with a dot "
        "(data.turns). Ours are messages (with role and content within them), prompt, completion, "
        "text, label, instruction, input, output, input_ids, labels, attention_mask, "
        "completion_mask, assistant_masks, tools, system, chat_template_kwargs.");
    table.add("data.text_column", &c.text_column, "The column of a row's text.");
    table.add("data.label_column", &c.label_column,
              "The column of a row's label; empty: labels are ignored.");
    table.add("data.label_names", &c.label_names,
              "Names of the labels: a list, of the labels 0, 1, ..., or a map {0: ham, 1: spam}. "
              "Empty: those that the data declares, else the labels as they are.");
    table.add(
        "data.roles", &c.roles,
        "Roles of messages under other names, as {customer: user, agent: assistant}. human, gpt "
        "and those of ShareGPT are known.");
    table.add("data.instruction", &c.instruction,
              "Rows of text and label: what is asked about the text; {text} stands for it, else it "
              "follows on a new line.");
    table.add("data.answer", &c.answer,
              "Rows of text and label: what is answered, such as '{\"verdict\": \"{label}\"}'; "
              "{label} stands for the label's name. Empty: the name alone.");
    table.add(
        "data.system", &c.system,
        "Rows of text and label, or of instruction and output: the system message; empty: what "
        "the chat template adds by itself.");
    table.add("data.chat_template", &c.chat_template,
              "Chat template instead of the model's own: a Jinja file, or the name of one that is "
              "built in (chatml, llama3, ...).");
    table.add(
        "data.chat_template_kwargs", &c.chat_template_kwargs,
        "Variables that the chat template gets, as {enable_thinking: false}; a row's own column "
        "chat_template_kwargs counts before it.");
    table.add_choice(
        "data.train_on_turns", c.train_on_turns, {"all", "last"},
        "Which of the assistant's turns are trained on: all but those with train: false or "
        "weight: 0, or the last one.");
    table.add(
        "data.add_special_tokens", &c.add_special_tokens,
        "Special tokens that the tokenizer gets, such as [<|think|>, <|call|>], and the model "
        "rows for, beginning as the mean of all; those that it has stay as they are. With "
        "LoRA these rows are trained and kept as lora.trainable_token_indices, unless "
        "embed_tokens is among lora.modules_to_save. As in PEFT, an untied head's are "
        "not, unless lm_head is among these.");
}

bool is_one_character(const std::string& text) {
    return text.size() == 1 && static_cast<unsigned char>(text[0]) < 0x80;
}

}  // namespace

void describe(DataConfig& config, ConfigTable& table) {
    describe_sources(config, table);
    describe_rows(config, table);
}

void validate(const DataConfig& config) {
    if (config.train.empty() || config.train[0].empty())
        throw Error("data.train is not set: name a file or folder of rows (data.train=PATH)");
    for (const auto* paths : {&config.train, &config.validation})
        for (const std::string& path : *paths)
            if (path.empty())
                throw Error(std::string(paths == &config.train ? "data.train" : "data.validation") +
                            ": a name is empty");
    const std::size_t sources = config.zip.empty() ? config.train.size() : 1;
    if (!config.weights.empty() && config.weights.size() != sources)
        throw Error("data.weights has " + std::to_string(config.weights.size()) + " numbers for " +
                    std::to_string(sources) +
                    (sources == 1 ? " source of rows" : " sources of rows (data.train)") +
                    ": give one for each");
    if (config.validation_fraction > 0 &&
        (!config.validation.empty() || !config.validation_split.empty()))
        throw Error(
            "data.validation_fraction and data.validation (or data.validation_split) are both set: "
            "keep one");
    for (const auto* paths : {&config.train, &config.validation})
        if (!config.zip.empty() && !paths->empty() && paths->size() != config.zip.size())
            throw Error("data.zip names " + std::to_string(config.zip.size()) + " columns, but " +
                        (paths == &config.train ? "data.train" : "data.validation") + " has " +
                        std::to_string(paths->size()) + " files: one for each");
    if (!config.answer.empty() && config.instruction.empty())
        throw Error(
            "data.answer is for rows of text and label: set data.instruction to what is asked "
            "about "
            "the text");
    if (!config.answer.empty() && config.answer.find("{label}") == std::string::npos)
        throw Error("data.answer would give every label the same answer: write {label} in it");
    for (const auto& [ours, theirs] : config.columns) {
        const auto* const end = std::end(kColumnNames);
        if (std::find(std::begin(kColumnNames), end, ours) == end) {
            const std::string near =
                nearest(ours, {std::begin(kColumnNames), std::end(kColumnNames)});
            throw Error("data.columns." + ours + ": no such name" +
                        (near.empty() ? "; `garam config` lists them under data.columns"
                                      : ": did you mean data.columns." + near + "?") +
                        " (our name stands before the one in the data)");
        }
        if (theirs.empty()) throw Error("data.columns." + ours + " must name a column");
    }
    if (config.csv_delimiter && *config.csv_delimiter != "tab" && *config.csv_delimiter != "\\t" &&
        !is_one_character(*config.csv_delimiter))
        throw Error("data.csv_delimiter: '" + *config.csv_delimiter +
                    "' is neither one character nor tab");
    if (config.csv_quote && !config.csv_quote->empty() && !is_one_character(*config.csv_quote))
        throw Error("data.csv_quote: '" + *config.csv_quote + "' is not one character");
    if (!config.cache && !config.cache_dir.empty())
        throw Error("data.cache_dir is set, but data.cache=false: nothing is kept");
}

}  // namespace garam
