// JSON values, parsed and written. A narrow header over a library that stays in json.cpp.
//
// Objects keep the order of their keys. Numbers without fraction or exponent that fit are int64,
// all others double; both answer number(). Accessors throw Error naming the source ("config.json")
// and the key when a value is missing or of another kind: files are hostile input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace garam {

class Json {
  public:
    using Array = std::vector<Json>;
    using Member = std::pair<std::string, Json>;
    using Object = std::vector<Member>;

    Json() = default;  // null
    Json(std::nullptr_t) {}
    Json(bool value) : value_(value) {}
    Json(int value) : value_(static_cast<std::int64_t>(value)) {}
    Json(std::int64_t value) : value_(value) {}
    Json(double value) : value_(value) {}
    Json(const char* value) : value_(std::string(value)) {}
    Json(std::string_view value) : value_(std::string(value)) {}
    Json(std::string value) : value_(std::move(value)) {}
    Json(Array value) : value_(std::move(value)) {}
    Json(Object value) : value_(std::move(value)) {}

    // Throws Error "<source>: <what>, line L column C". Nesting deeper than 256 is refused. Duplicate
    // keys of an object: the last one counts. Invalid UTF-8 is refused.
    static Json parse(std::string_view text, const std::string& source);
    static Json parse_file(const std::filesystem::path& path);

    // indent < 0: one line. Doubles are written so that they read back bit-equal; a non-finite double
    // is written as null. Invalid UTF-8 is replaced by U+FFFD.
    std::string dump(int indent = -1) const;

    bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
    bool is_bool() const { return std::holds_alternative<bool>(value_); }
    bool is_int() const { return std::holds_alternative<std::int64_t>(value_); }
    bool is_number() const { return is_int() || std::holds_alternative<double>(value_); }
    bool is_string() const { return std::holds_alternative<std::string>(value_); }
    bool is_array() const { return std::holds_alternative<Array>(value_); }
    bool is_object() const { return std::holds_alternative<Object>(value_); }
    const char* kind() const;  // "null", "bool", "number", "string", "array", "object"

    // `what` names the value in the error message, for example "config.json: rope_theta".
    bool boolean(const std::string& what = "value") const;
    std::int64_t integer(const std::string& what = "value") const;
    double number(const std::string& what = "value") const;
    const std::string& string(const std::string& what = "value") const;
    const Array& array(const std::string& what = "value") const;
    const Object& object(const std::string& what = "value") const;
    Array& array(const std::string& what = "value");

    // Member of an object, or nullptr when absent or when this is no object.
    const Json* find(std::string_view key) const;
    // Member of an object; throws Error when absent.
    const Json& at(std::string_view key, const std::string& what = "value") const;
    // Adds or replaces a member; a null value becomes an object first.
    void set(std::string_view key, Json value);
    void push_back(Json value);  // a null value becomes an array first

  private:
    std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value_;
};

}  // namespace garam
