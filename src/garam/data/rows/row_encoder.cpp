#include "garam/data/rows/row_encoder.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "garam/core/error.h"
#include "garam/core/error_source.h"
#include "garam/core/token_batch.h"
#include "garam/data/rows/chat_rows.h"
#include "garam/data/rows/token_rows.h"
#include "garam/text/chat_spans.h"
#include "garam/text/chat_template_source.h"

namespace garam {
namespace {

constexpr std::string_view kTextMark = "{text}";
constexpr std::string_view kLabelMark = "{label}";

// Each mark by the text. What was put in is not looked at again: it may hold the mark itself.
std::string filled(std::string text, std::string_view mark, const std::string& by) {
    for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += by.size())
        text.replace(at, mark.size(), by);
    return text;
}

std::string named(const std::string& where, const std::string& column) {
    return where + ": " + column;
}

const Json& value_of(const Json& row, const std::string& column, const std::string& where) {
    const Json* const value = find_column(row, column);
    if (value == nullptr) throw Error(where + ": " + Json(column).dump() + " has no value");
    return *value;
}

const std::string& text_of(const Json& row, const std::string& column, const std::string& where) {
    return value_of(row, column, where).string(named(where, column));
}

// Empty where the row has none.
std::string text_if_any(const Json& row, const std::string& column, const std::string& where) {
    const Json* const value = find_column(row, column);
    return value == nullptr ? std::string() : value->string(named(where, column));
}

// As YAML would read it: a variable's value comes as text.
Json typed(const std::string& text) {
    if (text == "true" || text == "false") return text == "true";
    if (text == "null") return {};
    std::int64_t whole = 0;
    double number = 0;
    const char* const end = text.data() + text.size();
    if (const auto read = std::from_chars(text.data(), end, whole);
        read.ec == std::errc{} && read.ptr == end)
        return whole;
    if (const auto read = std::from_chars(text.data(), end, number);
        read.ec == std::errc{} && read.ptr == end)
        return number;
    if (text.starts_with('[') || text.starts_with('{'))
        return Json::parse(text, "data.chat_template_kwargs");
    return text;
}

void set_variable(Json::Object& variables, const std::string& name, Json value) {
    for (auto& [known, old] : variables) {
        if (known != name) continue;
        old = std::move(value);
        return;
    }
    variables.emplace_back(name, std::move(value));
}

// The text that Alpaca's models were trained with.
std::string alpaca_prompt(const RowEncoder::Chat& chat, const std::string& instruction,
                          const std::string& input) {
    std::string text;
    if (!chat.messages.empty())
        text = chat.messages.front().content + "\n\n";
    else if (input.empty())
        text =
            "Below is an instruction that describes a task. Write a response that appropriately "
            "completes the request.\n\n";
    else
        text =
            "Below is an instruction that describes a task, paired with an input that provides "
            "further context. Write a response that appropriately completes the request.\n\n";
    text += "### Instruction:\n" + instruction + "\n\n";
    if (!input.empty()) text += "### Input:\n" + input + "\n\n";
    return text + "### Response:\n";
}

}  // namespace

std::string quoted_beginning(std::string_view text) {
    constexpr std::size_t kBytes = 60;
    if (text.size() <= kBytes) return Json(text).dump();
    std::size_t end = kBytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u)
        --end;
    return Json(std::string(text.substr(0, end)) + "…").dump();
}

std::size_t common_prefix(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
    const std::size_t shorter = std::min(a.size(), b.size());
    std::size_t length = 0;
    while (length < shorter && a[length] == b[length])
        ++length;
    return length;
}

RowEncoder::RowEncoder(const DataConfig& config, const EncodingSettings& settings,
                       const Tokenizer& tokenizer)
    : config_(config), settings_(settings), tokenizer_(tokenizer) {
    if (settings_.max_length < 2)
        throw Error("max_length must be at least 2: a target and a token before it");
    if (config_.on_error != "fail" && config_.on_error != "skip")
        throw Error("data.on_error must be fail or skip, not \"" + config_.on_error + "\"");
    if (config_.text_column.empty()) throw Error("data.text_column must name a column");
    if (config_.train_on_turns != "all" && config_.train_on_turns != "last")
        throw Error("data.train_on_turns must be all or last, not \"" + config_.train_on_turns +
                    "\"");
    for (const auto& [name, value] : config_.chat_template_kwargs)
        set_variable(variables_, name, typed(value));
    if (tokenizer_.bos_id()) bos_ = tokenizer_.token_of(*tokenizer_.bos_id());
    if (tokenizer_.eos_id()) eos_ = tokenizer_.token_of(*tokenizer_.eos_id());
    const bool own = !settings_.chat_template.empty();
    const std::string& source = own ? settings_.chat_template : tokenizer_.chat_template();
    if (source.empty()) return;
    const std::string& tools = own ? settings_.tool_chat_template : tokenizer_.tool_chat_template();
    try {
        template_.emplace(ChatTemplateSource{source, tools},
                          own ? "the chat template given" : "the tokenizer's chat template");
    } catch (const Error& error) {
        template_error_ = error.what();
    }
}

ChatTemplate::Options RowEncoder::render_options(const Chat& chat,
                                                 bool add_generation_prompt) const {
    return {.add_generation_prompt = add_generation_prompt,
            .bos_token = bos_,
            .eos_token = eos_,
            .tools = chat.tools,
            .variables = chat.variables};
}

const ChatTemplate& RowEncoder::chat_template(const std::string& where) const {
    if (template_) return *template_;
    if (!template_error_.empty()) throw Error(where + ": a chat is needed, but " + template_error_);
    throw Error(where +
                ": the row is a chat, but the model's files have no chat template: set "
                "data.chat_template (a file, or chatml), or give rows of prompt and completion");
}

RowEncoder::Chat RowEncoder::context_of(const Json& row, const RowColumns& columns,
                                        const std::string& own, const std::string& where) const {
    Chat chat;
    chat.variables = variables_;
    if (const Json* const tools = find_column(row, columns.tools);
        tools != nullptr && !(tools->is_string() && tools->string().empty())) {
        const std::string what = named(where, columns.tools);
        Json list = json_of(*tools, what);
        if (!list.array(what).empty()) chat.tools = std::move(list);
    }
    if (const Json* const kwargs = find_column(row, columns.chat_template_kwargs);
        kwargs != nullptr && !(kwargs->is_string() && kwargs->string().empty())) {
        const std::string what = named(where, columns.chat_template_kwargs);
        const Json map = json_of(*kwargs, what);
        // In a table a row has the members of all rows, those of others as null.
        for (const auto& [name, value] : map.object(what))
            if (!value.is_null()) set_variable(chat.variables, name, value);
    }
    std::string system = text_if_any(row, columns.system, where);
    if (system.empty()) system = own;
    if (!system.empty()) chat.messages.push_back({"system", std::move(system)});
    return chat;
}

RowEncoder::Labelled RowEncoder::labelled(const Json& row, const RowColumns& columns,
                                          const std::string& where) const {
    if (columns.shape != RowShape::labelled) {
        throw Error(where +
                    ": a labelled row needs a text and a label (data.text_column, "
                    "data.label_column), found " +
                    columns.summary);
    }
    const Json& label = value_of(row, columns.label, where);
    std::string answer;
    if (label.is_number() || label.is_bool())
        answer = label.dump();
    else if (label.is_string())
        answer = label.string();
    else
        throw Error(named(where, columns.label) + " must be a text or a number, not " +
                    label.kind());
    if (answer.empty()) throw Error(named(where, columns.label) + " is empty");
    return {text_of(row, columns.text, where), label_name(answer, columns, where),
            context_of(row, columns, config_.system, where)};
}

std::string RowEncoder::label_name(const std::string& label, const RowColumns& columns,
                                   const std::string& where) const {
    if (config_.label_names.empty()) return label;
    // A row holds the declared name, where there is one, and the config names the number.
    const auto declared = std::find(columns.class_names.begin(), columns.class_names.end(), label);
    const std::string number = std::to_string(declared - columns.class_names.begin());
    for (const auto& [theirs, name] : config_.label_names) {
        if (theirs == label || (declared != columns.class_names.end() && theirs == number))
            return name;
    }
    throw Error(named(where, columns.label) + " is " + Json(label).dump() +
                ", which data.label_names does not name");
}

EncodedRow RowEncoder::encode(const Json& row, const RowColumns& columns,
                              const std::string& where) const {
    switch (columns.shape) {
        case RowShape::messages: {
            const std::string what = named(where, columns.messages);
            Chat chat = context_of(row, columns, {}, where);
            std::vector<ChatMessage> turns =
                messages_of(value_of(row, columns.messages, where), config_, what);
            const bool has_system = !turns.empty() && turns[0].role == "system";
            if (!chat.messages.empty() && has_system) {
                if (chat.messages[0].content != turns[0].content)
                    throw Error(what + "[0] is a system message, and " + columns.system +
                                " is another one");
                chat.messages.clear();
            }
            // Without turns it is no chat, whatever the system message says.
            if (turns.empty()) chat.messages.clear();
            std::move(turns.begin(), turns.end(), std::back_inserter(chat.messages));
            return encode_chat(chat, where);
        }
        case RowShape::completion:
            return encode_prompt_and_completion(row, columns, where);
        case RowShape::instruction:
            return encode_instruction(row, columns, where);
        case RowShape::labelled:
            return encode_labelled(labelled(row, columns, where), where);
        case RowShape::text: {
            const std::string& text = text_of(row, columns.text, where);
            return finish(encode_text(text), text, where);
        }
        case RowShape::token_ids:
            return encode_token_ids(row, columns, where);
    }
    throw Bug("no such shape of rows");
}

EncodedRow RowEncoder::encode_prompt_and_completion(const Json& row, const RowColumns& columns,
                                                    const std::string& where) const {
    const Json& prompt_value = value_of(row, columns.prompt, where);
    const Json& completion = value_of(row, columns.completion, where);
    if (prompt_value.is_array() != completion.is_array())
        throw Error(where + ": " + columns.prompt + " and " + columns.completion +
                    " must both be texts or both lists of messages");
    if (!prompt_value.is_array()) {
        const std::string& question = text_of(row, columns.prompt, where);
        const std::string& answer = text_of(row, columns.completion, where);
        return finish(encode_completion(question, answer), question + answer, where);
    }
    Chat chat = context_of(row, columns, {}, where);
    std::vector<ChatMessage> asked =
        messages_of(prompt_value, config_, named(where, columns.prompt));
    std::vector<ChatMessage> said =
        messages_of(completion, config_, named(where, columns.completion));
    if (!asked.empty() && asked[0].role == "system") chat.messages.clear();
    const std::size_t turns = said.size();
    std::move(asked.begin(), asked.end(), std::back_inserter(chat.messages));
    std::move(said.begin(), said.end(), std::back_inserter(chat.messages));
    return encode_chat_completion(std::move(chat), turns, where);
}

EncodedRow RowEncoder::encode_instruction(const Json& row, const RowColumns& columns,
                                          const std::string& where) const {
    const std::string& instruction = text_of(row, columns.instruction, where);
    const std::string input = text_if_any(row, columns.input, where);
    const std::string& output = text_of(row, columns.output, where);
    Chat chat = context_of(row, columns, config_.system, where);
    if (instruction.empty() && input.empty() && output.empty()) {
        EncodedRow empty;
        empty.dropped = DropReason::empty;
        return finish(std::move(empty), {}, where);
    }
    if (!has_chat_template()) {
        const std::string question = alpaca_prompt(chat, instruction, input);
        return finish(encode_completion(question, output), question + output, where);
    }
    std::string question = instruction;
    if (!input.empty()) question += (question.empty() ? "" : "\n") + input;
    return encode_chat(asked(std::move(chat), question, &output), where);
}

EncodedRow RowEncoder::encode_token_ids(const Json& row, const RowColumns& columns,
                                        const std::string& where) const {
    EncodedRow encoded;
    encoded.sample = sample_of_token_ids(row, columns, settings_, where);
    if (encoded.sample.ids.empty()) encoded.dropped = DropReason::empty;
    truncate(encoded);
    if (encoded.dropped)
        encoded.beginning = quoted_beginning(tokenizer_.decode(encoded.sample.ids, false));
    return encoded;
}

void RowEncoder::append_eos(std::vector<std::int32_t>& ids) const {
    const std::optional<std::int32_t> eos = tokenizer_.eos_id();
    if (eos && (ids.empty() || ids.back() != *eos)) ids.push_back(*eos);
}

EncodedRow RowEncoder::encode_text(const std::string& text) const {
    EncodedRow row;
    if (text.empty()) {
        row.dropped = DropReason::empty;
        return row;
    }
    row.sample.ids = tokenizer_.encode_ids(text, {.add_special_tokens = true});
    append_eos(row.sample.ids);
    row.sample.labels = row.sample.ids;
    return row;
}

EncodedRow RowEncoder::encode_completion(const std::string& prompt_text,
                                         const std::string& completion) const {
    EncodedRow row;
    if (prompt_text.empty() && completion.empty()) {
        row.dropped = DropReason::empty;
        return row;
    }
    Sample& sample = row.sample;
    sample.ids = tokenizer_.encode_ids(prompt_text + completion, {.add_special_tokens = true});
    append_eos(sample.ids);
    sample.labels = sample.ids;
    if (settings_.completion_only_loss.value_or(true)) {
        const std::vector<std::int32_t> alone =
            tokenizer_.encode_ids(prompt_text, {.add_special_tokens = true});
        const std::size_t same = common_prefix(alone, sample.ids);
        std::fill_n(sample.labels.begin(), same, kIgnore);
        // Some tokenizers put EOS behind every text.
        const bool ended = !alone.empty() && alone.back() == tokenizer_.eos_id();
        row.merged_start = same + (ended ? 1 : 0) < alone.size();
    }
    return row;
}

Sample RowEncoder::chat_sample(const Chat& chat, std::string& text, std::string& why_silent,
                               bool& merged_start, const std::string& where) const {
    const ChatTemplate& source = chat_template(where);
    const ChatTargets targets{config_.train_on_turns == "last" ? TrainOnTurns::last
                                                               : TrainOnTurns::all};
    Sample sample;
    ChatTokens tokens = naming_source(where, [&] {
        return tokenize_chat(source, chat.messages, render_options(chat, false), tokenizer_,
                             targets);
    });
    why_silent = std::move(tokens.why_no_targets);
    merged_start = tokens.merged_start && settings_.assistant_only_loss;
    sample.ids = std::move(tokens.ids);
    sample.labels = sample.ids;
    if (settings_.assistant_only_loss) {
        for (std::size_t t = 0; t < sample.labels.size(); ++t) {
            if (!tokens.is_target[t]) sample.labels[t] = kIgnore;
        }
    }
    text = std::move(tokens.text);
    return sample;
}

EncodedRow RowEncoder::encode_chat(const Chat& chat, const std::string& where) const {
    EncodedRow row;
    std::string text;
    std::string why_silent;
    if (chat.messages.empty()) {
        row.dropped = DropReason::empty;
    } else {
        row.sample = chat_sample(chat, text, why_silent, row.merged_start, where);
        if (settings_.assistant_only_loss && !why_silent.empty())
            row.dropped = DropReason::no_assistant_turn;
    }
    row = finish(std::move(row), text, where);
    if (row.dropped == DropReason::no_assistant_turn) row.beginning += " (" + why_silent + ")";
    return row;
}

EncodedRow RowEncoder::encode_chat_completion(Chat chat, std::size_t completion,
                                              const std::string& where) const {
    if (!settings_.completion_only_loss.value_or(true) || chat.messages.empty())
        return encode_chat(chat, where);
    const std::size_t prompt_turns = chat.messages.size() - completion;
    if (settings_.assistant_only_loss) {
        for (std::size_t i = 0; i < prompt_turns; ++i)
            chat.messages[i].train = false;
        return encode_chat(chat, where);
    }
    // All that comes behind the prompt, whoever says it.
    Chat before = chat;
    before.messages.resize(prompt_turns);
    EncodedRow row;
    std::string text;
    std::string why_silent;
    row.sample = chat_sample(chat, text, why_silent, row.merged_start, where);
    const std::vector<std::int32_t> alone = naming_source(where, [&] {
        return tokenizer_.encode_ids(
            chat_template(where).render(before.messages, render_options(before, true)).text, {});
    });
    std::fill_n(row.sample.labels.begin(), common_prefix(alone, row.sample.ids), kIgnore);
    return finish(std::move(row), text, where);
}

EncodedRow RowEncoder::encode_labelled(const Labelled& row, const std::string& where) const {
    const std::string said = answer(row.label);
    if (has_chat_template()) return encode_chat(asked(row.before, prompt(row.text), &said), where);
    const std::string question_text = plain_prompt(row.text);
    return finish(encode_completion(question_text, said), question_text + said, where);
}

std::string RowEncoder::prompt(const std::string& text) const {
    std::string asked = config_.instruction;
    if (asked.find(kTextMark) == std::string::npos) asked += "\n" + std::string(kTextMark);
    return filled(std::move(asked), kTextMark, text);
}

std::string RowEncoder::answer(const std::string& label) const {
    return config_.answer.empty() ? label : filled(config_.answer, kLabelMark, label);
}

std::string RowEncoder::plain_prompt(const std::string& text) const {
    std::string asked = prompt(text);
    // A space there is the instruction's own, not one that a row's text happens to end with: answers to some
    // rows would begin with another token than those to the others.
    const bool own_space = config_.instruction.ends_with(' ') &&
                           config_.instruction.find(kTextMark) != std::string::npos;
    if (!own_space && !asked.ends_with('\n')) asked += '\n';
    return asked;
}

RowEncoder::Chat RowEncoder::asked(Chat chat, const std::string& text, const std::string* answer) {
    chat.messages.push_back({"user", text});
    if (answer != nullptr) chat.messages.push_back({"assistant", *answer});
    return chat;
}

void RowEncoder::check_ids(const std::vector<std::int32_t>& ids, const std::string& where) const {
    if (settings_.vocab_size <= 0) return;
    for (const std::int32_t id : ids) {
        if (id >= 0 && id < settings_.vocab_size) continue;
        throw VocabularyError(where + ": the tokenizer gives token " +
                              Json(tokenizer_.token_of(id)).dump() + " the id " +
                              std::to_string(id) + ", but the model has embeddings for " +
                              std::to_string(settings_.vocab_size) + " tokens (the tokenizer has " +
                              std::to_string(tokenizer_.vocab_size()) +
                              "): tokenizer and model do not belong together");
    }
}

// A text that itself begins with BOS stands behind the tokenizer's own.
void RowEncoder::drop_second_bos(Sample& sample) const {
    const std::optional<std::int32_t> bos = tokenizer_.bos_id();
    if (!bos || bos == tokenizer_.eos_id()) return;
    const auto other = std::find_if(sample.ids.begin(), sample.ids.end(),
                                    [&](std::int32_t id) { return id != *bos; });
    const std::ptrdiff_t more = other - sample.ids.begin() - 1;
    if (more <= 0) return;
    sample.ids.erase(sample.ids.begin(), sample.ids.begin() + more);
    sample.labels.erase(sample.labels.begin(), sample.labels.begin() + more);
}

void RowEncoder::truncate(EncodedRow& row) const {
    Sample& sample = row.sample;
    row.full_tokens = sample.tokens();
    const bool had_targets = sample.targets() > 0;
    const auto limit = static_cast<std::size_t>(settings_.max_length);
    if (!row.dropped && sample.ids.size() > limit) {
        row.truncated = true;
        if (settings_.truncation == Truncation::keep_end) {
            const auto excess = static_cast<std::ptrdiff_t>(sample.ids.size() - limit);
            sample.ids.erase(sample.ids.begin(), sample.ids.begin() + excess);
            sample.labels.erase(sample.labels.begin(), sample.labels.begin() + excess);
        } else {
            sample.ids.resize(limit);
            sample.labels.resize(limit);
        }
        sample.ids.shrink_to_fit();
        sample.labels.shrink_to_fit();
    }
    if (!row.dropped && sample.targets() == 0)
        row.dropped = had_targets ? DropReason::beyond_max_length : DropReason::nothing_to_predict;
}

EncodedRow RowEncoder::finish(EncodedRow row, std::string_view text,
                              const std::string& where) const {
    check_ids(row.sample.ids, where);
    drop_second_bos(row.sample);
    truncate(row);
    if (row.dropped || row.merged_start) row.beginning = quoted_beginning(text);
    return row;
}

std::vector<std::int32_t> RowEncoder::question(const Labelled& row,
                                               const std::string& where) const {
    Sample sample;
    if (has_chat_template()) {
        const ChatTemplate& source = chat_template(where);
        const Chat chat = asked(row.before, prompt(row.text));
        sample.ids = naming_source(where, [&] {
            return tokenizer_.encode_ids(
                source.render(chat.messages, render_options(chat, true)).text, {});
        });
    } else {
        sample.ids = tokenizer_.encode_ids(plain_prompt(row.text), {.add_special_tokens = true});
    }
    sample.labels = sample.ids;
    check_ids(sample.ids, where);
    drop_second_bos(sample);
    return std::move(sample.ids);
}

std::vector<std::int32_t> RowEncoder::answered(const Labelled& row, const std::string& label,
                                               const std::string& where) const {
    Sample sample;
    const std::string said = answer(label);
    if (has_chat_template()) {
        std::string rendered;
        std::string why_silent;
        bool merged_start = false;
        sample = chat_sample(asked(row.before, prompt(row.text), &said), rendered, why_silent,
                             merged_start, where);
    } else {
        sample = encode_completion(plain_prompt(row.text), said).sample;
    }
    check_ids(sample.ids, where);
    drop_second_bos(sample);
    std::size_t end = sample.labels.size();
    while (end > 0 && sample.labels[end - 1] == kIgnore)
        --end;
    sample.ids.resize(end);
    return std::move(sample.ids);
}

}  // namespace garam
