#include "garam/data/row_encoder.h"

#include <algorithm>
#include <utility>

#include "garam/core/error.h"
#include "garam/core/token_batch.h"
#include "garam/text/chat_spans.h"

namespace garam {
namespace {

constexpr std::string_view kTextMark = "{text}";

const std::string& text_of(const Json& value, const std::string& key, const std::string& where) {
    return value.string(where + ": " + key);
}

// "a", "b" and "c"; long lists are cut.
std::string listed_keys(const Json& row) {
    constexpr std::size_t kShown = 12;
    const Json::Object& members = row.object();
    if (members.empty()) return "no keys";
    std::string text = members.size() == 1 ? "the key " : "the keys ";
    for (std::size_t i = 0; i < members.size() && i < kShown; ++i)
        text += (i == 0 ? "" : ", ") + Json(members[i].first).dump();
    if (members.size() > kShown) text += ", …";
    return text;
}

std::vector<ChatMessage> messages_of(const Json& value, const std::string& where) {
    std::vector<ChatMessage> messages;
    const Json::Array& items = value.array(where + ": messages");
    for (std::size_t i = 0; i < items.size(); ++i) {
        const std::string what = where + ": messages[" + std::to_string(i) + "]";
        messages.push_back(ChatMessage::from_json(items[i], what));
    }
    return messages;
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
    if (tokenizer_.bos_id()) bos_ = tokenizer_.token_of(*tokenizer_.bos_id());
    if (tokenizer_.eos_id()) eos_ = tokenizer_.token_of(*tokenizer_.eos_id());
    const bool own = !settings_.chat_template.empty();
    const std::string& source = own ? settings_.chat_template : tokenizer_.chat_template();
    if (source.empty()) return;
    try {
        template_.emplace(source,
                          own ? "the chat template given" : "the tokenizer's chat template");
    } catch (const Error& error) {
        template_error_ = error.what();
    }
}

ChatTemplate::Options RowEncoder::render_options(bool add_generation_prompt) const {
    return {add_generation_prompt, bos_, eos_};
}

const ChatTemplate& RowEncoder::chat_template(const std::string& where) const {
    if (template_) return *template_;
    if (!template_error_.empty()) throw Error(where + ": a chat is needed, but " + template_error_);
    throw Error(
        where +
        ": the row is a chat, but the model's files have no chat template: write rows of prompt "
        "and completion");
}

bool RowEncoder::is_labelled(const Json& row) const {
    return !config_.label_column.empty() && row.find(config_.text_column) != nullptr &&
           row.find(config_.label_column) != nullptr;
}

RowEncoder::Labelled RowEncoder::labelled(const Json& row, const std::string& where) const {
    if (!is_labelled(row)) {
        throw Error(where + ": a labelled row needs \"" + config_.text_column + "\" and \"" +
                    config_.label_column + "\" (data.text_column, data.label_column), found " +
                    listed_keys(row));
    }
    if (config_.instruction.empty()) {
        throw Error(where +
                    ": the row has a text and a label: set data.instruction to what is asked about "
                    "the text, or data.label_column=\"\" to train on the text alone");
    }
    const Json& label = *row.find(config_.label_column);
    std::string answer;
    if (label.is_number())
        answer = label.dump();
    else if (label.is_string())
        answer = label.string();
    else
        throw Error(where + ": " + config_.label_column + " must be a text or a number, not " +
                    label.kind());
    if (answer.empty()) throw Error(where + ": " + config_.label_column + " is empty");
    const Json& text = *row.find(config_.text_column);
    return {text_of(text, config_.text_column, where), std::move(answer)};
}

EncodedRow RowEncoder::encode(const Json& row, const std::string& where) const {
    if (const Json* messages = row.find("messages"))
        return encode_chat(messages_of(*messages, where), where);
    const Json* prompt_value = row.find("prompt");
    const Json* completion = row.find("completion");
    if (prompt_value != nullptr && completion != nullptr) {
        const std::string& question = text_of(*prompt_value, "prompt", where);
        const std::string& answer = text_of(*completion, "completion", where);
        return finish(encode_completion(question, answer), question + answer, where);
    }
    if (is_labelled(row)) {
        const Labelled item = labelled(row, where);
        return encode_labelled(item.text, item.label, where);
    }
    if (const Json* plain = row.find(config_.text_column)) {
        // Else a label under another name would be a model trained on the texts, without a word.
        if (!config_.instruction.empty() && !config_.label_column.empty())
            throw Error(where + ": data.instruction is set, but the row has no \"" +
                        config_.label_column + "\" (data.label_column), only " + listed_keys(row) +
                        "; data.instruction=\"\" trains on plain text");
        const std::string& text = text_of(*plain, config_.text_column, where);
        return finish(encode_text(text), text, where);
    }
    std::string shapes = "messages; prompt and completion; " + config_.text_column;
    if (!config_.label_column.empty())
        shapes +=
            "; " + config_.text_column + " and " + config_.label_column + " with data.instruction";
    throw Error(where + ": no row that can be trained on: it has " + listed_keys(row) +
                ", supported are " + shapes);
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
        std::fill_n(sample.labels.begin(), common_prefix(alone, sample.ids), kIgnore);
    }
    return row;
}

Sample RowEncoder::chat_sample(const std::vector<ChatMessage>& messages, std::string& text,
                               std::string& why_silent, const std::string& where) const {
    const ChatTemplate& chat = chat_template(where);
    Sample sample;
    try {
        ChatTokens tokens = tokenize_chat(chat, messages, render_options(false), tokenizer_);
        why_silent = std::move(tokens.why_no_targets);
        sample.ids = std::move(tokens.ids);
        sample.labels = sample.ids;
        if (settings_.assistant_only_loss) {
            for (std::size_t t = 0; t < sample.labels.size(); ++t) {
                if (!tokens.is_target[t]) sample.labels[t] = kIgnore;
            }
        }
        text = std::move(tokens.text);
    } catch (const Error& error) {
        throw Error(where + ": " + error.what());
    }
    return sample;
}

EncodedRow RowEncoder::encode_chat(const std::vector<ChatMessage>& messages,
                                   const std::string& where) const {
    EncodedRow row;
    std::string text;
    std::string why_silent;
    if (messages.empty()) {
        row.dropped = DropReason::empty;
    } else {
        row.sample = chat_sample(messages, text, why_silent, where);
        if (settings_.assistant_only_loss && !why_silent.empty())
            row.dropped = DropReason::no_assistant_turn;
    }
    row = finish(std::move(row), text, where);
    if (row.dropped == DropReason::no_assistant_turn) row.beginning += " (" + why_silent + ")";
    return row;
}

EncodedRow RowEncoder::encode_labelled(const std::string& text, const std::string& label,
                                       const std::string& where) const {
    if (has_chat_template()) {
        std::vector<ChatMessage> messages = conversation(text);
        messages.push_back({"assistant", label});
        return encode_chat(messages, where);
    }
    const std::string question_text = plain_prompt(text);
    return finish(encode_completion(question_text, label), question_text + label, where);
}

std::string RowEncoder::prompt(const std::string& text) const {
    std::string asked = config_.instruction;
    if (asked.find(kTextMark) == std::string::npos) asked += "\n" + std::string(kTextMark);
    // The text itself may hold "{text}": what was put in is not looked at again.
    for (std::size_t at = 0; (at = asked.find(kTextMark, at)) != std::string::npos;
         at += text.size())
        asked.replace(at, kTextMark.size(), text);
    return asked;
}

std::string RowEncoder::plain_prompt(const std::string& text) const {
    std::string asked = prompt(text);
    if (!asked.ends_with(' ') && !asked.ends_with('\n')) asked += '\n';
    return asked;
}

std::vector<ChatMessage> RowEncoder::conversation(const std::string& text) const {
    std::vector<ChatMessage> messages;
    if (!config_.system.empty()) messages.push_back({"system", config_.system});
    messages.push_back({"user", prompt(text)});
    return messages;
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
    while (sample.ids.size() > 1 && sample.ids[0] == *bos && sample.ids[1] == *bos) {
        sample.ids.erase(sample.ids.begin());
        sample.labels.erase(sample.labels.begin());
    }
}

EncodedRow RowEncoder::finish(EncodedRow row, std::string_view text,
                              const std::string& where) const {
    Sample& sample = row.sample;
    check_ids(sample.ids, where);
    drop_second_bos(sample);
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
    if (row.dropped) row.beginning = quoted_beginning(text);
    return row;
}

std::vector<std::int32_t> RowEncoder::question(const std::string& text,
                                               const std::string& where) const {
    Sample sample;
    if (has_chat_template()) {
        const ChatTemplate& chat = chat_template(where);
        try {
            sample.ids = tokenizer_.encode_ids(
                chat.render(conversation(text), render_options(true)).text, {});
        } catch (const Error& error) {
            throw Error(where + ": " + error.what());
        }
    } else {
        sample.ids = tokenizer_.encode_ids(plain_prompt(text), {.add_special_tokens = true});
    }
    sample.labels = sample.ids;
    check_ids(sample.ids, where);
    drop_second_bos(sample);
    return std::move(sample.ids);
}

std::vector<std::int32_t> RowEncoder::answered(const std::string& text, const std::string& label,
                                               const std::string& where) const {
    Sample sample;
    if (has_chat_template()) {
        std::vector<ChatMessage> messages = conversation(text);
        messages.push_back({"assistant", label});
        std::string rendered;
        std::string why_silent;
        sample = chat_sample(messages, rendered, why_silent, where);
    } else {
        sample = encode_completion(plain_prompt(text), label).sample;
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
