#include "garam/core/json.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "garam/core/error.h"

namespace garam {
namespace {

constexpr std::size_t kMaxDepth = 256;

// Builds a Json from the library's events: no second tree, keys keep their order.
class Builder : public nlohmann::json_sax<nlohmann::json> {
  public:
    Builder(std::string_view text, const std::string& source) : text_(text), source_(source) {}

    Json take() { return std::move(root_); }

    bool null() override { return put(Json()); }
    bool boolean(bool value) override { return put(Json(value)); }
    bool number_integer(number_integer_t value) override { return put(Json(std::int64_t{value})); }
    bool number_unsigned(number_unsigned_t value) override {
        if (value > static_cast<number_unsigned_t>(INT64_MAX))
            return put(Json(static_cast<double>(value)));
        return put(Json(static_cast<std::int64_t>(value)));
    }
    bool number_float(number_float_t value, const string_t&) override { return put(Json(value)); }
    bool string(string_t& value) override { return put(Json(std::move(value))); }
    bool binary(binary_t&) override { return false; }
    bool start_object(std::size_t) override { return open(Json(Json::Object{})); }
    bool start_array(std::size_t) override { return open(Json(Json::Array{})); }
    bool key(string_t& value) override {
        keys_.back() = std::move(value);
        return true;
    }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool parse_error(std::size_t position, const std::string&,
                     const nlohmann::detail::exception& error) override {
        std::size_t line = 1;
        std::size_t column = 1;
        for (std::size_t i = 0; i + 1 < position && i < text_.size(); ++i) {
            column = text_[i] == '\n' ? 1 : column + 1;
            line += text_[i] == '\n';
        }
        std::string what = error.what();
        if (const std::size_t colon = what.find(": "); colon != std::string::npos)
            what = what.substr(colon + 2);
        what = shortened(what);
        throw Error(source_ + ": not valid JSON at line " + std::to_string(line) + ", column " +
                    std::to_string(column) + ": " + what);
    }

  private:
    // The parser quotes all of a string that has no end.
    static std::string shortened(const std::string& what) {
        constexpr std::size_t kQuoted = 60;
        constexpr std::string_view kBefore = "last read: '";
        const std::size_t begin = what.find(kBefore);
        const std::size_t end = what.rfind('\'');
        if (begin == std::string::npos || end - begin <= kBefore.size() + kQuoted) return what;
        std::size_t cut = begin + kBefore.size() + kQuoted;
        while ((static_cast<unsigned char>(what[cut]) & 0xc0) == 0x80)  // within a character
            --cut;
        return what.substr(0, cut) + "…" + what.substr(end);
    }

    bool put(Json value) {
        if (stack_.empty()) {
            root_ = std::move(value);
        } else if (stack_.back().is_array()) {
            stack_.back().push_back(std::move(value));
        } else {
            members_.back().emplace_back(keys_.back(), std::move(value));
        }
        return true;
    }
    bool open(Json container) {
        if (stack_.size() >= kMaxDepth)
            throw Error(source_ + ": JSON nested deeper than " + std::to_string(kMaxDepth));
        stack_.push_back(std::move(container));
        keys_.emplace_back();
        members_.emplace_back();
        return true;
    }
    bool close() {
        Json done = std::move(stack_.back());
        if (done.is_object()) done = Json(deduplicate(std::move(members_.back())));
        stack_.pop_back();
        keys_.pop_back();
        members_.pop_back();
        return put(std::move(done));
    }
    static Json::Object deduplicate(Json::Object members) {
        // Large objects (vocabularies) are the rule here, so look for repeats by sorting.
        std::vector<std::size_t> order(members.size());
        for (std::size_t i = 0; i < order.size(); ++i)
            order[i] = i;
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            const int compared = members[a].first.compare(members[b].first);
            return compared != 0 ? compared < 0 : a < b;
        });
        std::vector<bool> dead(members.size(), false);
        bool any = false;
        for (std::size_t i = 0; i + 1 < order.size(); ++i) {
            if (members[order[i]].first != members[order[i + 1]].first) continue;
            dead[order[i]] = any = true;
        }
        if (!any) return members;
        Json::Object kept;
        for (std::size_t i = 0; i < members.size(); ++i) {
            if (!dead[i]) kept.push_back(std::move(members[i]));
        }
        return kept;
    }

    std::string_view text_;
    std::string source_;
    Json root_;
    std::vector<Json> stack_;
    std::vector<std::string> keys_;
    std::vector<Json::Object> members_;
};

std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void new_line(std::string& out, int indent, int depth) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<std::size_t>(indent * depth), ' ');
}

void write(const Json& value, std::string& out, int indent, int depth) {
    if (value.is_null()) {
        out += "null";
    } else if (value.is_bool()) {
        out += value.boolean() ? "true" : "false";
    } else if (value.is_int()) {
        out += std::to_string(value.integer());
    } else if (value.is_number()) {
        out += std::isfinite(value.number()) ? nlohmann::json(value.number()).dump() : "null";
    } else if (value.is_string()) {
        out += quoted(value.string());
    } else if (value.is_array()) {
        const auto& items = value.array();
        out += '[';
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (i > 0) out += indent < 0 ? ", " : ",";
            new_line(out, indent, depth + 1);
            write(items[i], out, indent, depth + 1);
        }
        if (!items.empty()) new_line(out, indent, depth);
        out += ']';
    } else {
        const auto& members = value.object();
        out += '{';
        for (std::size_t i = 0; i < members.size(); ++i) {
            if (i > 0) out += indent < 0 ? ", " : ",";
            new_line(out, indent, depth + 1);
            out += quoted(members[i].first);
            out += ": ";
            write(members[i].second, out, indent, depth + 1);
        }
        if (!members.empty()) new_line(out, indent, depth);
        out += '}';
    }
}

[[noreturn]] void wrong_kind(const std::string& what, const char* wanted, const Json& got) {
    throw Error(what + " must be " + wanted + ", not " + got.kind());
}

}  // namespace

Json Json::parse(std::string_view text, const std::string& source) {
    Builder builder(text, source);
    nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
    return builder.take();
}

Json Json::parse_file(const std::filesystem::path& path) {
    // A folder, or a pipe or device, which might never end.
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
        throw Error(path.string() + ": is no regular file");
    std::ifstream file(path, std::ios::binary);
    if (!file) throw Error(path.string() + ": cannot be opened: " + std::strerror(errno));
    std::ostringstream content;
    content << file.rdbuf();
    if (file.bad()) throw Error(path.string() + ": cannot be read");
    return parse(content.str(), path.string());
}

std::string Json::dump(int indent) const {
    std::string out;
    write(*this, out, indent, 0);
    return out;
}

const char* Json::kind() const {
    if (is_null()) return "null";
    if (is_bool()) return "bool";
    if (is_number()) return "number";
    if (is_string()) return "string";
    return is_array() ? "array" : "object";
}

bool Json::boolean(const std::string& what) const {
    if (!is_bool()) wrong_kind(what, "true or false", *this);
    return std::get<bool>(value_);
}

std::int64_t Json::integer(const std::string& what) const {
    if (is_int()) return std::get<std::int64_t>(value_);
    if (is_number()) {  // 1e5 and 512.0 are whole numbers, however they are written
        const double value = std::get<double>(value_);
        if (value == std::floor(value) && std::fabs(value) < 0x1p53)
            return static_cast<std::int64_t>(value);
    }
    wrong_kind(what, "a whole number", *this);
}

double Json::number(const std::string& what) const {
    if (is_int()) return static_cast<double>(std::get<std::int64_t>(value_));
    if (!is_number()) wrong_kind(what, "a number", *this);
    return std::get<double>(value_);
}

const std::string& Json::string(const std::string& what) const {
    if (!is_string()) wrong_kind(what, "a string", *this);
    return std::get<std::string>(value_);
}

const Json::Array& Json::array(const std::string& what) const {
    if (!is_array()) wrong_kind(what, "an array", *this);
    return std::get<Array>(value_);
}

Json::Array& Json::array(const std::string& what) {
    if (!is_array()) wrong_kind(what, "an array", *this);
    return std::get<Array>(value_);
}

const Json::Object& Json::object(const std::string& what) const {
    if (!is_object()) wrong_kind(what, "an object", *this);
    return std::get<Object>(value_);
}

const Json* Json::find(std::string_view key) const {
    const Object* members = std::get_if<Object>(&value_);
    if (members == nullptr) return nullptr;
    for (const Member& member : *members) {
        if (member.first == key) return &member.second;
    }
    return nullptr;
}

const Json& Json::at(std::string_view key, const std::string& what) const {
    if (!is_object()) wrong_kind(what, "an object", *this);
    const Json* found = find(key);
    if (found == nullptr) throw Error(what + ": \"" + std::string(key) + "\" is missing");
    return *found;
}

void Json::set(std::string_view key, Json value) {
    if (is_null()) value_ = Object{};
    GARAM_CHECK(is_object(), "Json::set on " + std::string(kind()));
    for (Member& member : std::get<Object>(value_)) {
        if (member.first != key) continue;
        member.second = std::move(value);
        return;
    }
    std::get<Object>(value_).emplace_back(std::string(key), std::move(value));
}

void Json::push_back(Json value) {
    if (is_null()) value_ = Array{};
    GARAM_CHECK(is_array(), "Json::push_back on " + std::string(kind()));
    std::get<Array>(value_).push_back(std::move(value));
}

}  // namespace garam
