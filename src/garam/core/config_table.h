// The table of a config's keys: one place for name, type, default, range and meaning, from which
// files and overrides are checked, `garam config` is listed and the resolved config is written.
//
// An entry points at the field that it sets; the field's value when it is added is the default. The
// table does not own the fields: the struct must outlive it and must not move. Text is read
// strictly: a whole number for int, a finite number for float (1e-4 is one), true or false for
// bool (also True and TRUE, as Python and YAML write it), `[a, b]` or `a, b` for lists, `{name: 1}`
// for maps, null (or the entry's own name for it, such as auto) for optionals.
//
// Every mistake throws Error "<source>: <key>: …", the source being "file:line" or "command line".
// An unknown key names the nearest known one; a key that other trainers have and this one lacks is
// refused by name, under whatever section it was written.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace garam {

// The numbers that a key allows.
struct Range {
    double low = -std::numeric_limits<double>::infinity();
    double high = std::numeric_limits<double>::infinity();
    bool low_open = false;   // low itself is not allowed
    bool high_open = false;  // high itself is not allowed

    bool contains(double value) const;
    std::string to_string() const;  // ">= 1", "> 0", "in [0, 1)"; empty when everything is allowed
};
constexpr Range at_least(double low) {
    return {.low = low};
}
constexpr Range above(double low) {
    return {.low = low, .low_open = true};
}
constexpr Range between(double low, double high) {
    return {.low = low, .high = high};
}
constexpr Range from_to_below(double low, double high) {
    return {.low = low, .high = high, .high_open = true};
}

// A value as it was written, before its key gives it a type.
struct ConfigText {
    enum class Kind : std::uint8_t { plain, quoted, list, null };
    Kind kind = Kind::plain;
    std::string text;                // plain and quoted; quoted text is never null and never split
    std::vector<std::string> items;  // list
};

// Numbers or texts by name, in the order in which they were given. A file may give one a line: "key.name:
// number". A list of texts counts as a map from "0", "1", ...
using NumberMap = std::vector<std::pair<std::string, double>>;
using TextMap = std::vector<std::pair<std::string, std::string>>;

class ConfigTable {
  public:
    using Target =
        std::variant<bool*, int*, std::int64_t*, double*, std::string*, std::vector<std::string>*,
                     std::vector<std::int64_t>*, std::vector<double>*, NumberMap*, TextMap*,
                     std::optional<bool>*, std::optional<std::int64_t>*, std::optional<double>*,
                     std::optional<std::string>*>;

    struct Entry {
        std::string key;
        Target target;
        std::string meaning;
        Range range;  // numbers, also in lists and maps
        // Strings only; empty: any text. One that ends in "_N" has any whole number there.
        std::vector<std::string> choices;
        std::vector<std::pair<std::string, std::string>> refused;  // value, what to do instead
        std::string null_name = "null";  // optionals: how the absent value is written
        std::string default_text;        // the value when it was added, as YAML
        std::string source;              // where the value was set; empty while it is the default

        std::string type() const;        // "int >= 1", "float in [0, 1)", "one of: linear, cosine"
        std::string value_text() const;  // the value now, as YAML
        // Another word for the absent value ("auto"); right after add().
        void call_null(std::string name);
    };

    // Entries of one section stay together; a key is added once.
    Entry& add(std::string key, Target target, std::string meaning, Range range = {});
    Entry& add_choice(std::string key, std::string& target, std::vector<std::string> choices,
                      std::string meaning);
    // A key of other tools: its last part alone counts, so that it is found in any section.
    void refuse(std::string name, std::string advice);
    // What refuse() was told of such a key; nullptr: nothing.
    const std::string* advice_against(std::string_view key) const;

    void set(const std::string& key, const ConfigText& value, const std::string& source);
    void set(const std::string& key, const std::string& text, const std::string& source) {
        set(key, ConfigText{ConfigText::Kind::plain, text, {}}, source);
    }
    // Reads "key=value" as given on the command line. Nothing after '=' is an empty string.
    void set_override(const std::string& argument);

    const Entry* find(std::string_view key) const;
    const std::vector<Entry>& entries() const { return entries_; }
    // Every key with its present value, or those alone that were set; sections as nested maps. Reads back to the
    // same values.
    std::string to_yaml(bool only_set = false) const;
    // The default again, as if the key had never been set.
    void reset(std::string_view key);

  private:
    // One value of a map: "<key>.<name>".
    bool set_in_map(const std::string& key, const ConfigText& value, const std::string& source);
    [[noreturn]] void throw_unknown(const std::string& key, const std::string& source) const;

    std::vector<Entry> entries_;
    std::vector<std::pair<std::string, std::string>> refused_;
};

// True for "some.key=value": a name of letters, digits, '_' and '.' before the first '='.
bool is_override(std::string_view argument);

// Insertions, deletions, substitutions and swaps of neighbours that lead from one text to the other
// (optimal string alignment).
int edit_distance(std::string_view from, std::string_view to);

// The candidate nearest to `text`, or "" when none is near enough to be what was meant.
std::string nearest(std::string_view text, const std::vector<std::string>& candidates);

}  // namespace garam
