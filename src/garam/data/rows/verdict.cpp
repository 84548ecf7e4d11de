#include "garam/data/rows/verdict.h"

#include <algorithm>

#include "garam/core/error.h"
#include "garam/core/json.h"

namespace garam {
namespace {

constexpr std::string_view kAround = " \t\r\n\"'`*.";

std::string_view without_frame(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(kAround);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(kAround) + 1 - begin);
}

// Where the object that begins at `begin` ends; npos: nowhere. Braces within texts do not count.
std::size_t end_of_object(std::string_view text, std::size_t begin) {
    std::int64_t depth = 0;
    bool in_text = false;
    for (std::size_t i = begin; i < text.size(); ++i) {
        const char c = text[i];
        if (in_text) {
            if (c == '\\')
                ++i;
            else if (c == '"')
                in_text = false;
        } else if (c == '"') {
            in_text = true;
        } else if (c == '{') {
            ++depth;
        } else if (c == '}' && --depth == 0) {
            return i + 1;
        }
    }
    return std::string_view::npos;
}

std::optional<Json> object_at(std::string_view text, std::size_t begin) {
    const std::size_t end = end_of_object(text, begin);
    if (end == std::string_view::npos) return std::nullopt;
    try {
        return Json::parse(text.substr(begin, end - begin), "answer");
    } catch (const Error&) {
        return std::nullopt;
    }
}

std::optional<std::string> as_text(const Json& value) {
    if (value.is_string()) return std::string(without_frame(value.string()));
    if (value.is_number() || value.is_bool()) return value.dump();
    return std::nullopt;
}

std::string lower(std::string_view text) {
    std::string result(text);
    for (char& c : result)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return result;
}

}  // namespace

VerdictReader::VerdictReader(std::string_view reference, const std::string& key) : key_(key) {
    is_json_ = true;
    if (read(reference)) return;
    is_json_ = false;
    const std::size_t begin = reference.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos || reference[begin] != '{') return;
    const std::optional<Json> object = object_at(reference, begin);
    if (!object) return;
    const std::string shown = Json(std::string(reference.substr(0, 200))).dump();
    const Json* const value = object->find(key_);
    if (value == nullptr) {
        std::string keys;
        for (const auto& [name, unused] : object->object())
            keys += (keys.empty() ? "" : ", ") + name;
        throw Error("eval.verdict_key: an answer is " + shown + ", which has no \"" + key_ +
                    "\" (there are: " + keys + ")");
    }
    throw Error("eval.verdict_key: the value of \"" + key_ + "\" in " + shown + " is " +
                value->kind() + ", which is no verdict");
}

std::optional<std::string> VerdictReader::read(std::string_view answer) const {
    if (!is_json_) {
        const std::string_view text = without_frame(answer);
        return text.empty() ? std::nullopt : std::optional<std::string>(text);
    }
    for (std::size_t begin = answer.find('{'); begin != std::string_view::npos;
         begin = answer.find('{', begin + 1)) {
        const std::optional<Json> object = object_at(answer, begin);
        if (!object) continue;
        const Json* const value = object->find(key_);
        if (value == nullptr) continue;
        return as_text(*value);
    }
    return std::nullopt;
}

std::optional<std::int64_t> VerdictReader::label_of(std::string_view answer,
                                                    const std::vector<std::string>& labels) const {
    const std::optional<std::string> verdict = read(answer);
    if (!verdict) return std::nullopt;
    const auto equal = std::find(labels.begin(), labels.end(), *verdict);
    if (equal != labels.end()) return equal - labels.begin();
    const std::string wanted = lower(without_frame(*verdict));
    const auto is_alike = [&](const std::string& label) {
        return lower(without_frame(label)) == wanted;
    };
    const auto alike = std::find_if(labels.begin(), labels.end(), is_alike);
    if (alike == labels.end() || std::any_of(alike + 1, labels.end(), is_alike))
        return std::nullopt;
    return alike - labels.begin();
}

}  // namespace garam
