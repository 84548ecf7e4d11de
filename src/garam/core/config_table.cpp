#include "garam/core/config_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "garam/core/error.h"
#include "garam/core/json.h"

namespace garam {

namespace {

template <typename T>
struct OptionalValue {
    static constexpr bool kIsOptional = false;
    using Type = T;
};
template <typename T>
struct OptionalValue<std::optional<T>> {
    static constexpr bool kIsOptional = true;
    using Type = T;
};

std::string_view trim(std::string_view text) {
    const auto begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// Beyond this nobody typed it: it is not compared with the known ones.
constexpr std::size_t kLongestKey = 200;

std::string_view last_part(std::string_view key) {
    return key.substr(key.rfind('.') + 1);
}

std::string_view section_of(std::string_view key) {
    const auto dot = key.rfind('.');
    return dot == std::string_view::npos ? std::string_view{} : key.substr(0, dot);
}

std::string join(const std::vector<std::string>& items) {
    std::string text;
    for (const std::string& item : items)
        text += (text.empty() ? "" : ", ") + item;
    return text;
}

// Shortest text that reads back bit-equal, always with a fraction ("2.0e-05"): YAML 1.1 readers
// take "2e-05" for a string.
std::string number_text(double value) {
    char buffer[64];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
    std::string text(buffer, end);
    if (text.find('.') == std::string::npos) {
        const auto exponent = text.find('e');
        text.insert(exponent == std::string::npos ? text.size() : exponent, ".0");
    }
    return text;
}

// A limit of a range, as short as a person would write it.
std::string limit_text(double value) {
    char buffer[64];
    return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}

bool reads_as_number(const std::string& text) {
    double value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    return result.ec != std::errc::invalid_argument;
}

// YAML text of a string: plain where no reader could take it for anything else.
std::string string_text(const std::string& text) {
    const bool safe_characters =
        !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
            return std::isalnum(c) != 0 || c >= 0x80 || c == '_' || c == '/' || c == '.' ||
                   c == '-';
        });
    static const std::vector<std::string> words = {"true", "false", "null", "yes", "no",
                                                   "on",   "off",   "y",    "n"};
    std::string lower = text;
    for (char& c : lower)
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const bool is_word = std::find(words.begin(), words.end(), lower) != words.end();
    const bool starts_plain = !text.empty() && text[0] != '-' && text[0] != '.';
    const bool dotted_path = text.rfind("./", 0) == 0 || text.rfind("../", 0) == 0;
    if (safe_characters && !is_word && (starts_plain || dotted_path) && !reads_as_number(text))
        return text;
    return Json(text).dump();
}

// As YAML and Python write them: true, True, TRUE.
std::optional<bool> truth_of(std::string_view text) {
    for (const std::string_view name : {"true", "True", "TRUE"})
        if (text == name) return true;
    for (const std::string_view name : {"false", "False", "FALSE"})
        if (text == name) return false;
    return std::nullopt;
}

bool parse(const std::string& text, bool& value) {
    const std::optional<bool> truth = truth_of(text);
    value = truth.value_or(false);
    return truth.has_value();
}

template <typename Number>
bool parse_number(const std::string& text, Number& value) {
    const char* begin = text.data();
    const char* end = begin + text.size();
    if (text.size() > 1 && *begin == '+' && begin[1] != '-') ++begin;
    const auto result = std::from_chars(begin, end, value);
    return result.ec == std::errc{} && result.ptr == end &&
           std::isfinite(static_cast<double>(value));
}
bool parse(const std::string& text, int& value) {
    return parse_number(text, value);
}
bool parse(const std::string& text, std::int64_t& value) {
    return parse_number(text, value);
}
bool parse(const std::string& text, double& value) {
    return parse_number(text, value);
}

std::string unquote(std::string_view text) {
    if (text.size() >= 2 && (text[0] == '"' || text[0] == '\'') && text.back() == text[0])
        text = text.substr(1, text.size() - 2);
    return std::string(text);
}

// "[a, b]" or "a, b". Throws Error on an empty item.
std::vector<std::string> split_list(std::string_view text, const std::string& where) {
    text = trim(text);
    const bool opened = !text.empty() && text.front() == '[';
    const bool closed = !text.empty() && text.back() == ']';
    if (opened != closed)
        throw Error(where + "'" + std::string(text) + "' has an unmatched bracket");
    if (opened) text = trim(text.substr(1, text.size() - 2));
    std::vector<std::string> items;
    if (text.empty()) return items;
    // One quoted text, commas and all.
    if ((text[0] == '"' || text[0] == '\'') && text.find(text[0], 1) == text.size() - 1)
        return {unquote(text)};
    for (;;) {
        const auto comma = text.find(',');
        const std::string_view item = trim(text.substr(0, comma));
        if (item.empty()) throw Error(where + "the list has an empty item");
        items.push_back(unquote(item));
        if (comma == std::string_view::npos) return items;
        text.remove_prefix(comma + 1);
    }
}

template <typename T>
constexpr const char* type_name() {
    if constexpr (std::is_same_v<T, bool>) return "bool";
    if constexpr (std::is_same_v<T, int> || std::is_same_v<T, std::int64_t>) return "int";
    if constexpr (std::is_same_v<T, double>) return "float";
    if constexpr (std::is_same_v<T, std::string>) return "string";
    if constexpr (std::is_same_v<T, NumberMap>) return "map of names to floats";
    if constexpr (std::is_same_v<T, TextMap>) return "map of names to texts";
    if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) return "list of ints";
    if constexpr (std::is_same_v<T, std::vector<double>>) return "list of floats";
    return "list of strings";
}

template <typename T>
const char* wanted() {
    if constexpr (std::is_same_v<T, bool>) return "true or false";
    if constexpr (std::is_same_v<T, int> || std::is_same_v<T, std::int64_t>)
        return "a whole number";
    if constexpr (std::is_same_v<T, double>) return "a number";
    return "text";
}

template <typename T>
std::string text_of(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
        return value ? "true" : "false";
    } else if constexpr (std::is_same_v<T, double>) {
        return number_text(value);
    } else if constexpr (std::is_arithmetic_v<T>) {
        return std::to_string(value);
    } else if constexpr (std::is_same_v<T, std::string>) {
        return string_text(value);
    } else if constexpr (std::is_same_v<T, NumberMap> || std::is_same_v<T, TextMap>) {
        std::vector<std::string> items;
        for (const auto& [name, item] : value)
            items.push_back(string_text(name) + ": " + text_of(item));
        return "{" + join(items) + "}";
    } else {
        std::vector<std::string> items;
        for (const auto& item : value)
            items.push_back(text_of(item));
        return "[" + join(items) + "]";
    }
}

bool is_choice(std::string_view choice, std::string_view text) {
    if (!choice.ends_with("_N")) return choice == text;
    const std::string_view stem = choice.substr(0, choice.size() - 1);
    if (!text.starts_with(stem)) return false;
    const std::string_view number = text.substr(stem.size());
    return !number.empty() && number.size() <= 9 &&
           number.find_first_not_of("0123456789") == std::string_view::npos;
}

void check_choice(const ConfigTable::Entry& entry, const std::string& text,
                  const std::string& where) {
    for (const auto& [value, advice] : entry.refused)
        if (value == text) throw Error(where + text + " is not supported: " + advice);
    if (entry.choices.empty()) return;
    for (const std::string& choice : entry.choices)
        if (is_choice(choice, text)) return;
    const std::string near = nearest(text, entry.choices);
    throw Error(where + "'" + text + "' is none of: " + join(entry.choices) +
                (near.empty() ? "" : "; did you mean " + near + "?"));
}

template <typename T>
T read(const ConfigTable::Entry& entry, const ConfigText& written, const std::string& where);

// "{name: 1, other: 2}".
NumberMap read_map(const ConfigTable::Entry& entry, std::string_view text,
                   const std::string& where) {
    text = trim(text);
    if (text.size() < 2 || text.front() != '{' || text.back() != '}')
        throw Error(where + "'" + std::string(text) + "' is no map ({name: number, ...})");
    NumberMap map;
    for (const std::string& item : split_list(text.substr(1, text.size() - 2), where)) {
        const auto colon = item.rfind(':');
        const std::string name =
            unquote(trim(std::string_view(item).substr(0, std::min(colon, item.size()))));
        if (colon == std::string::npos || name.empty())
            throw Error(where + "'" + item + "' is not of the form name: number");
        map.emplace_back(name,
                         read<double>(entry, {.text = std::string(trim(item.substr(colon + 1)))},
                                      where + name + ": "));
    }
    return map;
}

// "{name: text, other: text}"; a text that holds commas or colons is quoted.
TextMap read_text_map(std::string_view text, const std::string& where) {
    text = trim(text);
    if (text.size() < 2 || text.front() != '{' || text.back() != '}')
        throw Error(where + "'" + std::string(text) + "' is no map ({name: text, ...})");
    text = trim(text.substr(1, text.size() - 2));
    TextMap map;
    // Up to one of `ends` outside of quotes.
    const auto take = [&text](std::string_view ends) {
        std::size_t at = 0;
        char quote = 0;
        for (; at < text.size(); ++at) {
            const char c = text[at];
            if (quote != 0) {
                if (c == '\\' && quote == '"') ++at;
                if (c == quote) quote = 0;
            } else if ((c == '"' || c == '\'') && trim(text.substr(0, at)).empty()) {
                quote = c;
            } else if (ends.find(c) != std::string_view::npos) {
                break;
            }
        }
        const std::string_view part = trim(text.substr(0, std::min(at, text.size())));
        const bool ended = at < text.size();
        text.remove_prefix(ended ? at : text.size());
        return part;
    };
    const auto plain = [&where](std::string_view part) {
        if (part.size() >= 2 && part.front() == '"' && part.back() == '"')
            return Json::parse(part, where + "a quoted text").string();
        return unquote(part);
    };
    while (!text.empty()) {
        const std::string name = plain(take(":,"));
        if (name.empty() || text.empty() || text.front() != ':')
            throw Error(where + "'" + name + "' is not of the form name: text");
        text.remove_prefix(1);
        map.emplace_back(name, plain(take(",")));
        if (!text.empty()) text = trim(text.substr(1));
    }
    return map;
}

// Text of a key that has names beside true and false.
std::string plain_text(const ConfigTable::Entry& entry, const ConfigText& written) {
    const std::optional<bool> truth =
        written.kind == ConfigText::Kind::plain ? truth_of(written.text) : std::nullopt;
    const auto is_truth = [](std::string_view name) { return name == "true" || name == "false"; };
    const bool takes_truth = is_truth(unquote(entry.default_text)) ||
                             std::any_of(entry.choices.begin(), entry.choices.end(), is_truth);
    if (truth && takes_truth) return *truth ? "true" : "false";
    return written.text;
}

template <typename T>
T read(const ConfigTable::Entry& entry, const ConfigText& written, const std::string& where) {
    using Kind = ConfigText::Kind;
    T value{};
    if constexpr (std::is_same_v<T, std::vector<std::string>>) {
        if (written.kind == Kind::list) return written.items;
        if (written.kind == Kind::quoted) return {written.text};
        return split_list(written.text, where);
    } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>> ||
                         std::is_same_v<T, std::vector<double>>) {
        for (const std::string& item :
             written.kind == Kind::list ? written.items : split_list(written.text, where))
            value.push_back(read<typename T::value_type>(entry, {.text = item}, where));
        return value;
    } else if constexpr (std::is_same_v<T, TextMap>) {
        const std::string_view text = trim(written.text);
        if (written.kind != Kind::list && (text.empty() || text.front() != '['))
            return read_text_map(text, where);
        const std::vector<std::string> items =
            written.kind == Kind::list ? written.items : split_list(text, where);
        for (std::size_t i = 0; i < items.size(); ++i)
            value.emplace_back(std::to_string(i), items[i]);
        return value;
    } else if constexpr (std::is_same_v<T, NumberMap>) {
        if (written.kind == Kind::list) throw Error(where + "a list is no map of names to numbers");
        return read_map(entry, written.text, where);
    } else {
        if (written.kind == Kind::list)
            throw Error(where + "a list is not allowed, give one value (" + wanted<T>() + ")");
        if constexpr (std::is_same_v<T, std::string>) {
            const std::string text = plain_text(entry, written);
            check_choice(entry, text, where);
            return text;
        } else {
            if (!parse(written.text, value)) {
                throw Error(where + "'" + written.text + "' is not " + wanted<T>() +
                            (entry.null_name == "null" ? "" : " or " + entry.null_name));
            }
            if constexpr (!std::is_same_v<T, bool>) {
                if (!entry.range.contains(static_cast<double>(value)))
                    throw Error(where + written.text + " is out of range, it must be " +
                                entry.range.to_string());
            }
            return value;
        }
    }
}

bool means_null(const ConfigTable::Entry& entry, const ConfigText& written) {
    if (written.kind == ConfigText::Kind::null) return true;
    return written.kind == ConfigText::Kind::plain &&
           (written.text == entry.null_name || written.text == "null" || written.text == "~");
}

}  // namespace

bool Range::contains(double value) const {
    const bool above_low = low_open ? value > low : value >= low;
    const bool below_high = high_open ? value < high : value <= high;
    return above_low && below_high;
}

std::string Range::to_string() const {
    const bool has_low = std::isfinite(low);
    const bool has_high = std::isfinite(high);
    if (!has_low && !has_high) return "";
    if (!has_high) return (low_open ? "> " : ">= ") + limit_text(low);
    if (!has_low) return (high_open ? "< " : "<= ") + limit_text(high);
    return std::string("in ") + (low_open ? "(" : "[") + limit_text(low) + ", " + limit_text(high) +
           (high_open ? ")" : "]");
}

std::string ConfigTable::Entry::type() const {
    if (!choices.empty()) return "one of: " + join(choices);
    std::string name = std::visit(
        [](const auto* field) -> std::string {
            using Field = std::remove_cv_t<std::remove_pointer_t<decltype(field)>>;
            return type_name<typename OptionalValue<Field>::Type>();
        },
        target);
    if (const std::string allowed = range.to_string(); !allowed.empty()) name += " " + allowed;
    const bool optional = std::visit(
        [](const auto* field) {
            using Field = std::remove_cv_t<std::remove_pointer_t<decltype(field)>>;
            return OptionalValue<Field>::kIsOptional;
        },
        target);
    return optional ? name + " or " + null_name : name;
}

std::string ConfigTable::Entry::value_text() const {
    return std::visit(
        [this](const auto* field) -> std::string {
            using Field = std::remove_cv_t<std::remove_pointer_t<decltype(field)>>;
            if constexpr (OptionalValue<Field>::kIsOptional) {
                return field->has_value() ? text_of(**field) : null_name;
            } else if constexpr (std::is_same_v<Field, std::string>) {
                // A choice such as "true" is written as the word that a file would hold.
                return choices.empty() || field->empty() ? text_of(*field) : *field;
            } else {
                return text_of(*field);
            }
        },
        target);
}

void ConfigTable::Entry::call_null(std::string name) {
    null_name = std::move(name);
    default_text = value_text();
}

ConfigTable::Entry& ConfigTable::add(std::string key, Target target, std::string meaning,
                                     Range range) {
    GARAM_CHECK(find(key) == nullptr, "the key " + key + " is added twice");
    if (entries_.empty() || section_of(entries_.back().key) != section_of(key)) {
        for (const Entry& entry : entries_)
            GARAM_CHECK(section_of(entry.key) != section_of(key),
                        "the keys of one section are not together at " + key);
    }
    Entry entry;
    entry.key = std::move(key);
    entry.target = target;
    entry.meaning = std::move(meaning);
    entry.range = range;
    entry.default_text = entry.value_text();
    return entries_.emplace_back(std::move(entry));
}

ConfigTable::Entry& ConfigTable::add_choice(std::string key, std::string& target,
                                            std::vector<std::string> choices, std::string meaning) {
    Entry& entry = add(std::move(key), &target, std::move(meaning));
    entry.choices = std::move(choices);
    entry.default_text = entry.value_text();
    return entry;
}

void ConfigTable::refuse(std::string name, std::string advice) {
    refused_.emplace_back(std::move(name), std::move(advice));
}

void ConfigTable::set(const std::string& key, const ConfigText& value, const std::string& source) {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.key == key; });
    if (found == entries_.end()) {
        if (set_in_map(key, value, source)) return;
        // "train:" with every key below it commented out.
        const std::string prefix = key + ".";
        const bool is_section = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& e) {
            return e.key.rfind(prefix, 0) == 0;
        });
        if (is_section && value.kind == ConfigText::Kind::null) return;
        if (is_section)
            throw Error(source + ": " + key +
                        " is a section, not a key: set one of its keys, such as " +
                        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
                            return e.key.rfind(prefix, 0) == 0;
                        })->key);
        throw_unknown(key, source);
    }
    Entry& entry = *found;
    const std::string where = source + ": " + key + ": ";
    std::visit(
        [&](auto* field) {
            using Field = std::remove_pointer_t<decltype(field)>;
            using Value = typename OptionalValue<Field>::Type;
            if (means_null(entry, value)) {
                if constexpr (OptionalValue<Field>::kIsOptional) {
                    field->reset();
                    return;
                } else if constexpr (std::is_same_v<Field, NumberMap> ||
                                     std::is_same_v<Field, TextMap>) {
                    field->clear();
                    return;
                } else {
                    throw Error(where + "no value is given, it must be " + entry.type() +
                                " (an empty text is written '')");
                }
            }
            *field = read<Value>(entry, value, where);
        },
        entry.target);
    entry.source = source;
}

bool ConfigTable::set_in_map(const std::string& key, const ConfigText& value,
                             const std::string& source) {
    const auto set_in = [&](Entry& entry, auto& map) {
        using Value = typename std::remove_reference_t<decltype(map)>::value_type::second_type;
        if (entry.source.empty()) map.clear();  // the default
        const std::string name = key.substr(entry.key.size() + 1);
        const std::string where = source + ": " + key + ": ";
        if (value.kind == ConfigText::Kind::null)
            throw Error(where + "no value is given, it must be " + wanted<Value>());
        Value item = read<Value>(entry, value, where);
        const auto known = std::find_if(map.begin(), map.end(),
                                        [&](const auto& one) { return one.first == name; });
        if (known == map.end()) {
            map.emplace_back(name, std::move(item));
        } else {
            known->second = std::move(item);
        }
        entry.source = source;
    };
    for (Entry& entry : entries_) {
        if (!key.starts_with(entry.key + ".")) continue;
        if (auto* const numbers = std::get_if<NumberMap*>(&entry.target)) {
            set_in(entry, **numbers);
            return true;
        }
        if (auto* const texts = std::get_if<TextMap*>(&entry.target)) {
            set_in(entry, **texts);
            return true;
        }
    }
    return false;
}

void ConfigTable::set_override(const std::string& argument) {
    const auto equals = argument.find('=');
    GARAM_CHECK(equals != std::string::npos, "not an override: " + argument);
    set(argument.substr(0, equals), argument.substr(equals + 1), "command line");
}

const ConfigTable::Entry* ConfigTable::find(std::string_view key) const {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.key == key; });
    return found == entries_.end() ? nullptr : &*found;
}

const std::string* ConfigTable::advice_against(std::string_view key) const {
    for (const auto& [name, advice] : refused_)
        if (name == last_part(key)) return &advice;
    return nullptr;
}

void ConfigTable::throw_unknown(const std::string& key, const std::string& source) const {
    if (const std::string* advice = advice_against(key))
        throw Error(source + ": " + key + " is not supported: " + *advice);
    std::vector<std::string> keys;
    for (const Entry& entry : entries_) {
        // The right name in the wrong section, or in none.
        if (last_part(entry.key) == last_part(key))
            throw Error(source + ": unknown key " + key + ": did you mean " + entry.key + "?");
        keys.push_back(entry.key);
    }
    // A key below one that is refused, such as gradient_checkpointing_kwargs.use_reentrant.
    for (std::size_t end = key.size() > kLongestKey ? std::string::npos : key.rfind('.');
         end != std::string::npos && end > 0; end = key.rfind('.', end - 1))
        if (const std::string* advice = advice_against(key.substr(0, end)))
            throw Error(source + ": " + key.substr(0, end) + " is not supported: " + *advice);
    std::string near = nearest(key, keys);
    if (near.empty() && key.find('.') == std::string::npos) {
        // A misspelt name without its section.
        std::vector<std::string> names;
        for (const Entry& entry : entries_)
            names.emplace_back(last_part(entry.key));
        if (const std::string name = nearest(key, names); !name.empty())
            near = keys[static_cast<std::size_t>(std::find(names.begin(), names.end(), name) -
                                                 names.begin())];
    }
    throw Error(source + ": unknown key " + key + ": " +
                (near.empty() ? "`garam config` lists the keys" : "did you mean " + near + "?"));
}

void ConfigTable::reset(std::string_view key) {
    const Entry* const found = find(key);
    GARAM_CHECK(found != nullptr, "no key " + std::string(key));
    const std::string& text = found->default_text;
    if (text == "\"\"")
        set(found->key, ConfigText{ConfigText::Kind::quoted, "", {}}, "");
    else
        set(found->key, text, "");
}

std::string ConfigTable::to_yaml(bool only_set) const {
    std::string text;
    std::string open;  // the section whose keys are being written, with a dot at its end
    for (const Entry& entry : entries_) {
        if (only_set && entry.source.empty()) continue;
        std::string section(section_of(entry.key));
        if (!section.empty()) section += '.';
        // Parts that are open already need no heading.
        std::size_t depth = 0;
        bool same = true;
        for (std::size_t begin = 0; begin < section.size(); ++depth) {
            const std::size_t end = section.find('.', begin) + 1;
            same = same && open.compare(0, end, section, 0, end) == 0;
            if (!same)
                text +=
                    std::string(2 * depth, ' ') + section.substr(begin, end - 1 - begin) + ":\n";
            begin = end;
        }
        open = std::move(section);
        text += std::string(2 * depth, ' ') + std::string(last_part(entry.key)) + ": " +
                entry.value_text() + "\n";
    }
    return text;
}

bool is_override(std::string_view argument) {
    const auto equals = argument.find('=');
    if (equals == 0 || equals == std::string_view::npos) return false;
    return std::all_of(
        argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(equals),
        [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
}

int edit_distance(std::string_view from, std::string_view to) {
    const std::size_t rows = from.size() + 1;
    const std::size_t columns = to.size() + 1;
    std::vector<int> table(rows * columns);
    const auto at = [&](std::size_t i, std::size_t j) -> int& { return table[i * columns + j]; };
    for (std::size_t i = 0; i < rows; ++i)
        at(i, 0) = static_cast<int>(i);
    for (std::size_t j = 0; j < columns; ++j)
        at(0, j) = static_cast<int>(j);
    for (std::size_t i = 1; i < rows; ++i) {
        for (std::size_t j = 1; j < columns; ++j) {
            const int substitution = at(i - 1, j - 1) + (from[i - 1] != to[j - 1] ? 1 : 0);
            at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, substitution});
            if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
                at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
        }
    }
    return at(rows - 1, columns - 1);
}

std::string nearest(std::string_view text, const std::vector<std::string>& candidates) {
    // Keys are typed by people: beyond a third of the letters it is another word. The length bound
    // keeps a hostile key from filling the table.
    if (text.empty() || text.size() > kLongestKey) return "";
    std::string best;
    int best_distance = std::max(1, static_cast<int>(text.size()) / 3) + 1;
    for (const std::string& candidate : candidates) {
        const int distance = edit_distance(text, candidate);
        if (distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    return best;
}

}  // namespace garam
