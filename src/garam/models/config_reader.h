// Reads a config.json's keys, with errors that name file and key.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "garam/core/error.h"
#include "garam/core/json.h"

namespace garam {

class ConfigReader {
  public:
    ConfigReader(const Json& config, std::string source)
        : config_(config), source_(std::move(source)) {}

    // nullptr when absent or null.
    const Json* find(std::string_view key) const {
        const Json* value = config_.find(key);
        return value == nullptr || value->is_null() ? nullptr : value;
    }
    bool is_null(std::string_view key) const {
        const Json* value = config_.find(key);
        return value != nullptr && value->is_null();
    }
    std::string name(std::string_view key) const { return source_ + ": " + std::string(key); }
    const std::string& source() const { return source_; }

    std::int64_t size(std::string_view key) const {
        const Json* value = find(key);
        if (value == nullptr) throw Error(name(key) + " is missing");
        return checked(key, value->integer(name(key)));
    }
    std::int64_t size(std::string_view key, std::int64_t otherwise) const {
        const Json* value = find(key);
        return value == nullptr ? otherwise : checked(key, value->integer(name(key)));
    }
    double number(std::string_view key, double otherwise) const {
        const Json* value = find(key);
        return value == nullptr ? otherwise : value->number(name(key));
    }
    bool boolean(std::string_view key, bool otherwise) const {
        const Json* value = find(key);
        return value == nullptr ? otherwise : value->boolean(name(key));
    }
    std::string text(std::string_view key, std::string_view otherwise) const {
        const Json* value = find(key);
        return value == nullptr ? std::string(otherwise) : value->string(name(key));
    }

    double positive(std::string_view key) const {
        if (find(key) == nullptr) throw Error(name(key) + " is missing");
        return positive(key, 0);
    }
    double positive(std::string_view key, double otherwise) const {
        const double value = number(key, otherwise);
        check_positive(value, name(key));
        return value;
    }
    // Neither so small nor so large that a quotient of two of them times a position leaves fp32.
    static void check_positive(double value, const std::string& what) {
        if (!(value >= 1e-12 && value <= 1e30))
            throw Error(what + " must be a positive number, not " + Json(value).dump());
    }

  private:
    std::int64_t checked(std::string_view key, std::int64_t value) const {
        constexpr std::int64_t kLargest = std::int64_t{1} << 31;
        if (value < 1 || value > kLargest)
            throw Error(name(key) + " is " + std::to_string(value) + ", not between 1 and 2^31");
        return value;
    }
    const Json& config_;
    std::string source_;
};

}  // namespace garam
