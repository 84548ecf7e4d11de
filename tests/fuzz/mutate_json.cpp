// JSON changed by its values: found with a scanner that takes any text for JSON, as mutated text is.
#include <algorithm>
#include <cctype>
#include <cstring>
#include <iterator>
#include <string_view>

#include "fuzz/mutate.h"

namespace garam::fuzz {
namespace {

constexpr std::size_t kNone = std::string::npos;

struct Value {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t key = kNone;  // where its key begins, for a member of an object
};

bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

std::size_t string_end(std::string_view text, std::size_t at) {
    for (++at; at < text.size() && text[at] != '"'; ++at)
        at += text[at] == '\\';
    return std::min(at + 1, text.size());
}

std::vector<Value> values_in(std::string_view text) {
    std::vector<Value> values;
    std::vector<Value> open;
    std::size_t key = kNone;
    for (std::size_t at = 0; at < text.size() && values.size() < 20000;) {
        const char c = text[at];
        std::size_t end = at + 1;
        if (c == '{' || c == '[') {
            open.push_back({at, 0, key});
            key = kNone;
        } else if (c == '}' || c == ']') {
            if (!open.empty()) {
                values.push_back({open.back().begin, end, open.back().key});
                open.pop_back();
            }
            key = kNone;
        } else if (c == ',') {
            key = kNone;
        } else if (!is_space(c) && c != ':') {
            if (c == '"') {
                end = string_end(text, at);
            } else {
                while (end < text.size() && !is_space(text[end]) &&
                       std::strchr(",:[]{}\"", text[end]) == nullptr)
                    ++end;
            }
            std::size_t next = end;
            while (next < text.size() && is_space(text[next]))
                ++next;
            if (c == '"' && next < text.size() && text[next] == ':' && key == kNone) {
                key = at;
            } else {
                values.push_back({at, end, key});
                key = kNone;
            }
        }
        at = end;
    }
    return values;
}

std::string edge_value(const std::vector<std::string>& words, Random& random) {
    static const std::string kValues[] = {"null",
                                          "true",
                                          "false",
                                          "0",
                                          "-1",
                                          "-0",
                                          "1",
                                          "0.5",
                                          "1.5",
                                          "1e5",
                                          "1e308",
                                          "1e999",
                                          "-1e308",
                                          "1e-320",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "-9223372036854775808",
                                          "18446744073709551616",
                                          "\"\"",
                                          "\"a\"",
                                          "[]",
                                          "{}",
                                          "[[]]",
                                          "[null]",
                                          "{\"\":0}",
                                          "\"0\"",
                                          "2147483647",
                                          "2147483648",
                                          "4294967296",
                                          "1099511627776",
                                          "\"\\ud800\"",
                                          "\"\\u0000\"",
                                          "NaN",
                                          "Infinity"};
    switch (random.below(5)) {
        case 0:
            return std::to_string(edge_number(random));
        case 1:
            return "\"" + odd_text(random) + "\"";
        case 2:
            if (!words.empty()) return "\"" + words[random.below(words.size())] + "\"";
            [[fallthrough]];
        default:
            return kValues[random.below(std::size(kValues))];
    }
}

}  // namespace

void mutate_json(std::string& text, const std::string& other, const std::vector<std::string>& words,
                 Random& random) {
    const std::vector<Value> values = values_in(text);
    if (values.empty()) return mutate_text(text, other, words, random);
    const Value& value = values[random.below(values.size())];
    const std::string old = text.substr(value.begin, value.end - value.begin);
    const std::size_t begin = value.key == kNone ? value.begin : value.key;
    const auto replace = [&](const std::string& by) {
        text.replace(value.begin, value.end - value.begin, by);
    };
    switch (random.below(14)) {
        case 0:
        case 1:
        case 2:
            return replace(edge_value(words, random));
        case 3: {
            const Value& from = values[random.below(values.size())];
            return replace(text.substr(from.begin, from.end - from.begin));
        }
        case 4: {  // gone, with a comma beside it
            std::size_t end = value.end;
            while (end < text.size() && is_space(text[end]))
                ++end;
            std::size_t first = begin;
            if (end < text.size() && text[end] == ',') {
                ++end;
            } else {
                while (first > 0 && is_space(text[first - 1]))
                    --first;
                if (first > 0 && text[first - 1] == ',') --first;
            }
            text.erase(first, end - first);
            return;
        }
        case 5: {  // there several times
            constexpr std::uint64_t kTimes[] = {1, 1, 1, 1, 2, 2, 10, 300, 3000};
            const std::string again = text.substr(begin, value.end - begin) + ", ";
            std::string many;
            for (std::uint64_t n = kTimes[random.below(std::size(kTimes))];
                 n > 0 && many.size() < kLargestInput; --n)
                many += again;
            text.insert(begin, many);
            return;
        }
        case 6: {  // deep inside
            constexpr std::size_t kDepths[] = {1, 1, 1, 1, 2, 2, 3, 10, 200, 255, 257, 20000};
            const std::size_t depth = kDepths[random.below(std::size(kDepths))];
            if (random.below(2) == 0)
                return replace(std::string(depth, '[') + old + std::string(depth, ']'));
            std::string nested;
            for (std::size_t i = 0; i < depth; ++i)
                nested += "{\"a\":";
            return replace(nested + old + std::string(depth, '}'));
        }
        case 7: {  // another key
            if (value.key == kNone) return replace(edge_value(words, random));
            const std::size_t end = string_end(text, value.key);
            const Value& from = values[random.below(values.size())];
            std::string name = "\"" + odd_text(random) + "\"";
            if (from.key != kNone && random.below(2) == 0)
                name = text.substr(from.key, string_end(text, from.key) - from.key);
            else if (!words.empty() && random.below(4) != 0)
                name = "\"" + words[random.below(words.size())] + "\"";
            text.replace(value.key, end - value.key, name);
            return;
        }
        case 8: {  // a member more
            const std::size_t brace = text.find('{', random.below(text.size()));
            if (brace == kNone || words.empty()) return replace(edge_value(words, random));
            text.insert(brace + 1, "\"" + words[random.below(words.size())] +
                                       "\": " + edge_value(words, random) + ",");
            return;
        }
        case 9: {  // the number a little off
            const bool digit = std::isdigit(static_cast<unsigned char>(old.back())) != 0;
            if (!digit) return replace("[" + old + ", " + old + "]");
            constexpr const char* kAround[] = {"-", "1", "0.", "1e"};
            if (random.below(2) == 0) return replace(kAround[random.below(4)] + old);
            constexpr const char* kBehind[] = {"0", "1", ".5", "e3", "e300", "000000000"};
            return replace(old + kBehind[random.below(6)]);
        }
        case 10:  // within a string
            if (old.size() >= 2 && old.front() == '"') {
                const std::size_t at = value.begin + 1 + random.below(old.size() - 1);
                text.insert(at, words.empty() || random.below(2) == 0
                                    ? odd_text(random)
                                    : words[random.below(words.size())]);
                return;
            }
            return replace("\"" + old + "\"");
        case 11: {  // from the other input
            const std::vector<Value> theirs = values_in(other);
            if (theirs.empty()) return replace(edge_value(words, random));
            const Value& from = theirs[random.below(theirs.size())];
            return replace(other.substr(from.begin, from.end - from.begin));
        }
        case 12: {
            const Value& from = values[random.below(values.size())];
            const std::size_t from_begin = from.key == kNone ? from.begin : from.key;
            text.insert(begin, text.substr(from_begin, from.end - from_begin) + ", ");
            return;
        }
        default:
            mutate_bytes(text, other, random);
    }
}

}  // namespace garam::fuzz
