// Values of Arrow arrays as JSON.
//
// Offsets, indices and lengths are held against what is there for each value, so that a file that lies about them
// gives an Error and nothing else; arrays only need to have passed Array::Validate(). What a file says once can be
// many times in a row, and nulls take no bytes at all: each row has a budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "garam/core/json.h"

namespace arrow {
class Array;
class DataType;
}  // namespace arrow

namespace garam {

// Bytes of memory that the values of one row may take.
class RowBudget {
  public:
    explicit RowBudget(std::size_t bytes) : bytes_(bytes), left_(bytes) {}
    // Throws Error when `count` things of `each` bytes are more than is left.
    void take(std::size_t count, std::size_t each);

  private:
    std::size_t bytes_;
    std::size_t left_;
};

class ArrowValues {
  public:
    virtual ~ArrowValues() = default;
    // Takes what the value refers to, not itself. Throws Error with what is wrong alone; the caller knows column
    // and row.
    virtual Json value(std::int64_t i, RowBudget& budget) const = 0;
    virtual std::int64_t length() const = 0;
};

// `feature`: `datasets`' description of the column, or null; it gives class numbers their names. Throws Error for
// types that are no text data.
std::unique_ptr<ArrowValues> read_values(std::shared_ptr<arrow::Array> array, const Json& feature);

// "list<struct<role: string, content: string>>"
std::string type_name(const arrow::DataType& type);
// Why a type cannot be read, or "".
std::string refusal_of(const arrow::DataType& type);

// The parts of a feature: of a list's elements, of a member of a struct. Null where there is none.
Json element_feature(const Json& feature);
Json member_feature(const Json& feature, const std::string& name);
// Empty: no ClassLabel.
std::vector<std::string> class_names(const Json& feature);

}  // namespace garam
