// Values as text: Python's str and repr, and JSON.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "garam/text/jinja/value.h"
#include "garam/text/unicode.h"

namespace garam::jinja {
namespace {

// The shortest digits that read back, laid out as Python's repr does: plain from 1e-4 up to 1e16.
std::string float_text(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    char buffer[64];
    const bool plain = value == 0 || (std::fabs(value) >= 1e-4 && std::fabs(value) < 1e16);
    const auto end =
        std::to_chars(buffer, buffer + sizeof(buffer), value,
                      plain ? std::chars_format::fixed : std::chars_format::scientific);
    std::string text(buffer, end.ptr);
    if (plain && text.find('.') == std::string::npos) text += ".0";
    return text;
}

// How a character of a quoted text is written, or empty where it stands for itself.
std::string escape_of(char c, char quote, bool json) {
    switch (c) {
        case '\n':
            return "\\n";
        case '\r':
            return "\\r";
        case '\t':
            return "\\t";
        case '\\':
            return "\\\\";
        case '\b':
            if (json) return "\\b";
            break;
        case '\f':
            if (json) return "\\f";
            break;
        default:
            break;
    }
    if (c == quote) return {'\\', quote};
    if (static_cast<unsigned char>(c) >= 0x20 && (json || c != 0x7F)) return {};
    constexpr std::string_view kDigits = "0123456789abcdef";
    return std::string(json ? "\\u00" : "\\x") + kDigits[static_cast<std::size_t>(c >> 4)] +
           kDigits[static_cast<std::size_t>(c & 15)];
}

std::string utf16_escape(char32_t c) {
    const auto unit = [](char32_t value) {
        char text[12];
        std::snprintf(text, sizeof(text), "\\u%04x", static_cast<unsigned>(value));
        return std::string(text);
    };
    if (c < 0x10000) return unit(c);
    return unit(0xD800 + ((c - 0x10000) >> 10)) + unit(0xDC00 + ((c - 0x10000) & 0x3FF));
}

// How Python's repr writes a character beyond ASCII; empty where as it is.
std::string repr_escape(char32_t c) {
    if (is_python_printable(c)) return {};
    char text[12];
    std::snprintf(text, sizeof(text),
                  c < 0x100     ? "\\x%02x"
                  : c < 0x10000 ? "\\u%04x"
                                : "\\U%08x",
                  static_cast<unsigned>(c));
    return text;
}

class Writer {
  public:
    explicit Writer(Budget& budget) : budget_(budget) {}
    MarkedText take() { return std::move(out_); }

    // A str within a container: quoted as Python's repr, or as JSON.
    void quoted(const MarkedText& text, bool json, bool ascii = false) {
        const std::string& from = text.text();
        const bool single =
            !json && (from.find('\'') == std::string::npos || from.find('"') != std::string::npos);
        const char quote = single ? '\'' : '"';
        out_.append_plain(std::string_view(&quote, 1));
        out_.append(text, 0, 0);  // an empty content keeps its place
        for (std::size_t at = 0; at < from.size();) {
            const std::size_t end = at + utf8_length(from[at]);
            std::string escaped = escape_of(from[at], quote, json);
            if (!json && escaped.empty() && static_cast<unsigned char>(from[at]) >= 0x80) {
                std::size_t next = at;
                escaped = repr_escape(next_code_point(from, next));
            }
            if (ascii && escaped.empty() && static_cast<unsigned char>(from[at]) >= 0x7F) {
                std::size_t next = at;
                escaped = utf16_escape(next_code_point(from, next));
            }
            if (escaped.empty()) {
                out_.append(text, at, end);
            } else {
                out_.append_for(text, at, end, escaped);
            }
            at = end;
        }
        out_.append_plain(std::string_view(&quote, 1));
    }

    void python(const Value& value, bool within) {
        budget_.step();
        if (const MarkedText* text = value.string()) {
            if (within) {
                quoted(*text, false);
            } else {
                out_.append(*text);
            }
        } else if (value.is_undefined()) {
            if (within) out_.append_plain("Undefined");
        } else if (value.is_none()) {
            out_.append_plain("None");
        } else if (value.is_bool()) {
            out_.append_plain(value.truthy() ? "True" : "False");
        } else if (const List* list = value.list()) {
            out_.append_plain(list->tuple ? "(" : "[");
            for (std::size_t i = 0; i < list->items.size(); ++i) {
                if (i > 0) out_.append_plain(", ");
                python(list->items[i], true);
            }
            if (list->tuple && list->items.size() == 1) out_.append_plain(",");
            out_.append_plain(list->tuple ? ")" : "]");
        } else if (const Dict* dict = value.dict()) {
            out_.append_plain("{");
            for (std::size_t i = 0; i < dict->entries.size(); ++i) {
                if (i > 0) out_.append_plain(", ");
                quoted(dict->entries[i].first, false);
                out_.append_plain(": ");
                python(dict->entries[i].second, true);
            }
            out_.append_plain("}");
        } else {
            scalar(value);
        }
    }

    void json(const Value& value, const JsonStyle& style, int depth) {
        budget_.step();
        const auto line = [&](int at) {
            if (!style.indent) return;
            out_.append_plain("\n");
            for (int i = 0; i < at; ++i)
                out_.append_plain(*style.indent);
        };
        const auto separator = [&](std::size_t i) {
            if (i > 0) out_.append_plain(style.item_separator);
            line(depth + 1);
        };
        if (const MarkedText* text = value.string()) {
            quoted(*text, true, style.ensure_ascii);
        } else if (value.is_none()) {
            out_.append_plain("null");
        } else if (value.is_bool()) {
            out_.append_plain(value.truthy() ? "true" : "false");
        } else if (const List* list = value.list()) {
            out_.append_plain("[");
            for (std::size_t i = 0; i < list->items.size(); ++i) {
                separator(i);
                json(list->items[i], style, depth + 1);
            }
            if (!list->items.empty()) line(depth);
            out_.append_plain("]");
        } else if (const Dict* dict = value.dict()) {
            out_.append_plain("{");
            std::vector<const std::pair<std::string, Value>*> entries;
            for (const auto& entry : dict->entries)
                entries.push_back(&entry);
            if (style.sort_keys)
                std::sort(entries.begin(), entries.end(),
                          [](const auto* a, const auto* b) { return a->first < b->first; });
            for (std::size_t i = 0; i < entries.size(); ++i) {
                separator(i);
                quoted(entries[i]->first, true, style.ensure_ascii);
                out_.append_plain(style.key_separator);
                json(entries[i]->second, style, depth + 1);
            }
            if (!dict->entries.empty()) line(depth);
            out_.append_plain("}");
        } else if (value.is_float() && !std::isfinite(*value.number())) {
            out_.append_plain(std::isnan(*value.number()) ? "NaN"
                              : *value.number() < 0       ? "-Infinity"
                                                          : "Infinity");
        } else {
            scalar(value);
        }
    }

  private:
    void scalar(const Value& value) {
        if (value.is_int()) {
            out_.append_plain(std::to_string(*value.integer()));
        } else if (value.is_float()) {
            out_.append_plain(float_text(*value.number()));
        } else {
            fail(std::string("\"") + value.kind() + "\" cannot be printed");
        }
    }

    Budget& budget_;
    MarkedText out_;
};

}  // namespace

MarkedText to_text(const Value& value, Budget& budget) {
    if (const MarkedText* text = value.string()) return *text;
    Writer writer(budget);
    writer.python(value, false);
    return writer.take();
}

MarkedText to_json(const Value& value, const JsonStyle& style, Budget& budget) {
    Writer writer(budget);
    writer.json(value, style, 0);
    return writer.take();
}

}  // namespace garam::jinja
