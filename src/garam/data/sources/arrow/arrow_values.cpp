#include "garam/data/sources/arrow/arrow_values.h"

#include <arrow/array.h>
#include <arrow/extension_type.h>
#include <arrow/type.h>
#include <arrow/util/utf8.h>

#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "garam/core/error.h"
#include "garam/data/sources/arrow/iso_time.h"

namespace garam {
namespace {

using arrow::Type;

[[noreturn]] void corrupt(const char* what) {
    throw Error(std::string("the file is corrupt: ") + what);
}

Json text(std::string_view bytes) {
    // Arrow's own readers fill its tables on demand, or not at all.
    [[maybe_unused]] static const bool is_ready = (arrow::util::InitializeUTF8(), true);
    if (!arrow::util::ValidateUTF8(bytes)) throw Error("is not UTF-8");
    return Json(bytes);
}

// Offsets that go back would give the same values many times.
template <typename Array>
void check_order(const Array& array) {
    const auto* const offsets = array.raw_value_offsets();
    for (std::int64_t i = 0; i < array.length(); ++i)
        if (offsets[i + 1] < offsets[i]) corrupt("offsets that go back");
}

// Begin and length out of an array's offsets.
template <typename Offset>
std::pair<std::int64_t, std::int64_t> range(const Offset* offsets, std::int64_t i,
                                            std::int64_t limit) {
    const std::int64_t begin = offsets[i];
    const std::int64_t end = offsets[i + 1];
    if (begin < 0 || end < begin || end > limit) corrupt("offsets beyond their values");
    return {begin, end - begin};
}

// With value_of(array, i) for what is not null, or value_of(array, i, budget).
template <typename Array, typename ValueOf>
class Plain : public ArrowValues {
  public:
    Plain(std::shared_ptr<arrow::Array> array, ValueOf value_of)
        : owner_(std::move(array)),
          array_(static_cast<const Array&>(*owner_)),
          value_of_(std::move(value_of)) {}
    std::int64_t length() const override { return array_.length(); }
    Json value(std::int64_t i, RowBudget& budget) const override {
        if (array_.IsNull(i)) return Json();
        if constexpr (std::is_invocable_v<const ValueOf&, const Array&, std::int64_t, RowBudget&>) {
            return value_of_(array_, i, budget);
        } else {
            return value_of_(array_, i);
        }
    }

  private:
    std::shared_ptr<arrow::Array> owner_;
    const Array& array_;
    ValueOf value_of_;
};

template <typename Array, typename ValueOf>
std::unique_ptr<ArrowValues> plain(std::shared_ptr<arrow::Array> array, ValueOf value_of) {
    return std::make_unique<Plain<Array, ValueOf>>(std::move(array), std::move(value_of));
}

template <typename Array>
std::unique_ptr<ArrowValues> numbers(std::shared_ptr<arrow::Array> array) {
    return plain<Array>(std::move(array), [](const Array& values, std::int64_t i) {
        const auto value = values.Value(i);
        if constexpr (std::is_floating_point_v<decltype(value)>) {
            return Json(static_cast<double>(value));
        } else if constexpr (std::is_same_v<decltype(value), const std::uint64_t>) {
            return value > static_cast<std::uint64_t>(INT64_MAX)
                       ? Json(static_cast<double>(value))
                       : Json(static_cast<std::int64_t>(value));
        } else {
            return Json(static_cast<std::int64_t>(value));
        }
    });
}

template <typename Array>
std::unique_ptr<ArrowValues> texts(std::shared_ptr<arrow::Array> array) {
    check_order(static_cast<const Array&>(*array));
    return plain<Array>(
        std::move(array), [](const Array& values, std::int64_t i, RowBudget& budget) {
            // Not value_data(), which counts another owner for each text.
            const arrow::Buffer* const data = values.data()->buffers[2].get();
            const auto [begin, length] =
                range(values.raw_value_offsets(), i, data != nullptr ? data->size() : 0);
            if (length == 0) return Json("");
            budget.take(static_cast<std::size_t>(length), 1);
            return text({reinterpret_cast<const char*>(data->data()) + begin,
                         static_cast<std::size_t>(length)});
        });
}

std::unique_ptr<ArrowValues> view_texts(std::shared_ptr<arrow::Array> array) {
    return plain<arrow::StringViewArray>(std::move(array), [](const arrow::StringViewArray& values,
                                                              std::int64_t i, RowBudget& budget) {
        const auto& view = values.raw_values()[i];
        if (view.size() < 0) corrupt("a text of negative length");
        budget.take(static_cast<std::size_t>(view.size()), 1);
        if (!view.is_inline()) {
            const auto& buffers = values.data()->buffers;  // validity, views, then the texts
            const auto buffer = static_cast<std::int64_t>(view.ref.buffer_index) + 2;
            if (buffer < 2 || buffer >= static_cast<std::int64_t>(buffers.size()) ||
                buffers[static_cast<std::size_t>(buffer)] == nullptr || view.ref.offset < 0 ||
                static_cast<std::int64_t>(view.ref.offset) + view.size() >
                    buffers[static_cast<std::size_t>(buffer)]->size())
                corrupt("a text beyond its buffer");
        }
        return text(values.GetView(i));
    });
}

// Numbers of classes, by their names.
class Classes : public ArrowValues {
  public:
    Classes(std::unique_ptr<ArrowValues> numbers, std::vector<std::string> names)
        : numbers_(std::move(numbers)), names_(std::move(names)) {}
    std::int64_t length() const override { return numbers_->length(); }
    Json value(std::int64_t i, RowBudget& budget) const override {
        const Json number = numbers_->value(i, budget);
        if (!number.is_int()) return number;
        const std::int64_t at = number.integer();
        if (at == -1) return Json();  // `datasets` marks rows without a label so
        if (at < 0 || at >= static_cast<std::int64_t>(names_.size()))
            throw Error("class number " + std::to_string(at) + ", and there are " +
                        std::to_string(names_.size()) + " names of classes");
        const std::string& name = names_[static_cast<std::size_t>(at)];
        budget.take(name.size(), 1);
        return Json(name);
    }

  private:
    std::unique_ptr<ArrowValues> numbers_;
    std::vector<std::string> names_;
};

Json elements(const ArrowValues& values, std::int64_t begin, std::int64_t length,
              RowBudget& budget) {
    if (begin < 0 || length < 0 || begin > values.length() - length)
        corrupt("a list beyond its elements");
    budget.take(static_cast<std::size_t>(length), sizeof(Json));
    Json::Array list;
    list.reserve(static_cast<std::size_t>(length));
    for (std::int64_t i = begin; i < begin + length; ++i)
        list.push_back(values.value(i, budget));
    return Json(std::move(list));
}

template <typename Array>
std::unique_ptr<ArrowValues> lists(std::shared_ptr<arrow::Array> array, const Json& feature) {
    std::shared_ptr<ArrowValues> values =
        read_values(static_cast<const Array&>(*array).values(), element_feature(feature));
    check_order(static_cast<const Array&>(*array));
    return plain<Array>(
        std::move(array), [values](const Array& list, std::int64_t i, RowBudget& budget) {
            const auto [begin, length] = range(list.raw_value_offsets(), i, values->length());
            return elements(*values, begin, length, budget);
        });
}

std::unique_ptr<ArrowValues> fixed_lists(std::shared_ptr<arrow::Array> array, const Json& feature) {
    using Array = arrow::FixedSizeListArray;
    std::shared_ptr<ArrowValues> values =
        read_values(static_cast<const Array&>(*array).values(), element_feature(feature));
    return plain<Array>(
        std::move(array), [values](const Array& list, std::int64_t i, RowBudget& budget) {
            return elements(*values, list.value_offset(i), list.value_length(i), budget);
        });
}

// Texts as keys give an object, anything else a list of pairs.
std::unique_ptr<ArrowValues> maps(std::shared_ptr<arrow::Array> array) {
    const auto& map = static_cast<const arrow::MapArray&>(*array);
    const std::shared_ptr<ArrowValues> keys = read_values(map.keys(), Json());
    const std::shared_ptr<ArrowValues> items = read_values(map.items(), Json());
    const bool is_object = type_name(*map.keys()->type()) == "string";
    check_order(map);
    return plain<arrow::MapArray>(
        std::move(array),
        [keys, items, is_object](const arrow::MapArray& values, std::int64_t i, RowBudget& budget) {
            const auto [begin, length] =
                range(values.raw_value_offsets(), i, std::min(keys->length(), items->length()));
            budget.take(static_cast<std::size_t>(length), 3 * sizeof(Json));
            Json::Array pairs;
            Json::Object members;
            std::unordered_map<std::string, std::size_t> places;  // of members
            for (std::int64_t at = begin; at < begin + length; ++at) {
                Json key = keys->value(at, budget);
                Json item = items->value(at, budget);
                if (!is_object) {
                    pairs.push_back(Json(Json::Array{std::move(key), std::move(item)}));
                    continue;
                }
                const std::string& name = key.string("a key of a map");
                const auto [place, is_new] = places.emplace(name, members.size());
                if (is_new) {
                    members.emplace_back(name, std::move(item));
                } else {
                    members[place->second].second = std::move(item);
                }
            }
            return is_object ? Json(std::move(members)) : Json(std::move(pairs));
        });
}

std::unique_ptr<ArrowValues> structs(std::shared_ptr<arrow::Array> array, const Json& feature) {
    struct Member {
        std::string name;
        std::unique_ptr<ArrowValues> values;
    };
    const auto& whole = static_cast<const arrow::StructArray&>(*array);
    auto members = std::make_shared<std::vector<Member>>();
    std::size_t names = 0;  // bytes
    for (int i = 0; i < whole.num_fields(); ++i) {
        const std::string& name = whole.struct_type()->field(i)->name();
        names += name.size();
        members->push_back({name, read_values(whole.field(i), member_feature(feature, name))});
        if (members->back().values->length() < whole.length()) corrupt("a member is too short");
    }
    return plain<arrow::StructArray>(
        std::move(array),
        [members, names](const arrow::StructArray&, std::int64_t i, RowBudget& budget) {
            budget.take(members->size(), sizeof(Json::Member));
            budget.take(names, 1);
            Json::Object object;
            object.reserve(members->size());
            for (const Member& member : *members)
                object.emplace_back(member.name, member.values->value(i, budget));
            return Json(std::move(object));
        });
}

template <typename Index>
Json looked_up(const ArrowValues& dictionary, const arrow::Array& indices, std::int64_t i,
               RowBudget& budget) {
    const auto at = static_cast<std::int64_t>(static_cast<const Index&>(indices).Value(i));
    if (at < 0 || at >= dictionary.length()) corrupt("an index beyond its dictionary");
    return dictionary.value(at, budget);
}

std::unique_ptr<ArrowValues> dictionaries(std::shared_ptr<arrow::Array> array,
                                          const Json& feature) {
    const auto& whole = static_cast<const arrow::DictionaryArray&>(*array);
    const std::shared_ptr<ArrowValues> dictionary = read_values(whole.dictionary(), feature);
    const std::shared_ptr<arrow::Array> indices = whole.indices();
    return plain<arrow::DictionaryArray>(
        std::move(array),
        [dictionary, indices](const arrow::DictionaryArray&, std::int64_t i, RowBudget& budget) {
            switch (indices->type_id()) {
                case Type::INT8:
                    return looked_up<arrow::Int8Array>(*dictionary, *indices, i, budget);
                case Type::UINT8:
                    return looked_up<arrow::UInt8Array>(*dictionary, *indices, i, budget);
                case Type::INT16:
                    return looked_up<arrow::Int16Array>(*dictionary, *indices, i, budget);
                case Type::UINT16:
                    return looked_up<arrow::UInt16Array>(*dictionary, *indices, i, budget);
                case Type::INT32:
                    return looked_up<arrow::Int32Array>(*dictionary, *indices, i, budget);
                case Type::UINT32:
                    return looked_up<arrow::UInt32Array>(*dictionary, *indices, i, budget);
                case Type::INT64:
                    return looked_up<arrow::Int64Array>(*dictionary, *indices, i, budget);
                default:
                    return looked_up<arrow::UInt64Array>(*dictionary, *indices, i, budget);
            }
        });
}

template <typename Array>
std::unique_ptr<ArrowValues> decimals(std::shared_ptr<arrow::Array> array) {
    return plain<Array>(std::move(array), [](const Array& values, std::int64_t i) {
        return Json(values.FormatValue(i));
    });
}

std::int64_t units_per_second(arrow::TimeUnit::type unit) {
    switch (unit) {
        case arrow::TimeUnit::SECOND:
            return 1;
        case arrow::TimeUnit::MILLI:
            return 1000;
        case arrow::TimeUnit::MICRO:
            return 1000000;
        default:
            return 1000000000;
    }
}

template <typename Array, typename TypeOf>
std::unique_ptr<ArrowValues> times_of_day(std::shared_ptr<arrow::Array> array) {
    const std::int64_t units = units_per_second(static_cast<const TypeOf&>(*array->type()).unit());
    return plain<Array>(std::move(array), [units](const Array& values, std::int64_t i) {
        return Json(iso_time_of_day(values.Value(i), units));
    });
}

std::unique_ptr<ArrowValues> timestamps(std::shared_ptr<arrow::Array> array) {
    const auto& type = static_cast<const arrow::TimestampType&>(*array->type());
    const std::int64_t units = units_per_second(type.unit());
    const bool has_zone = !type.timezone().empty();
    return plain<arrow::TimestampArray>(
        std::move(array), [units, has_zone](const arrow::TimestampArray& values, std::int64_t i) {
            return Json(iso_timestamp(values.Value(i), units) + (has_zone ? "+00:00" : ""));
        });
}

}  // namespace

void RowBudget::take(std::size_t count, std::size_t each) {
    if (count > left_ / each)
        throw Error("is larger than " + std::to_string(bytes_ >> 20) +
                    " MiB, which its part of the file cannot be");
    left_ -= count * each;
}

std::unique_ptr<ArrowValues> read_values(std::shared_ptr<arrow::Array> array, const Json& feature) {
    if (std::vector<std::string> names = class_names(feature);
        !names.empty() && arrow::is_integer(array->type_id()))
        return std::make_unique<Classes>(read_values(std::move(array), Json()), std::move(names));
    switch (array->type_id()) {
        case Type::NA:
            return plain<arrow::NullArray>(
                std::move(array), [](const arrow::NullArray&, std::int64_t) { return Json(); });
        case Type::BOOL:
            return plain<arrow::BooleanArray>(
                std::move(array), [](const arrow::BooleanArray& values, std::int64_t i) {
                    return Json(values.Value(i));
                });
        case Type::INT8:
            return numbers<arrow::Int8Array>(std::move(array));
        case Type::INT16:
            return numbers<arrow::Int16Array>(std::move(array));
        case Type::INT32:
            return numbers<arrow::Int32Array>(std::move(array));
        case Type::INT64:
            return numbers<arrow::Int64Array>(std::move(array));
        case Type::UINT8:
            return numbers<arrow::UInt8Array>(std::move(array));
        case Type::UINT16:
            return numbers<arrow::UInt16Array>(std::move(array));
        case Type::UINT32:
            return numbers<arrow::UInt32Array>(std::move(array));
        case Type::UINT64:
            return numbers<arrow::UInt64Array>(std::move(array));
        case Type::HALF_FLOAT:
            return plain<arrow::HalfFloatArray>(
                std::move(array), [](const arrow::HalfFloatArray& values, std::int64_t i) {
                    return Json(half_as_double(values.Value(i)));
                });
        case Type::FLOAT:
            return numbers<arrow::FloatArray>(std::move(array));
        case Type::DOUBLE:
            return numbers<arrow::DoubleArray>(std::move(array));
        case Type::STRING:
            return texts<arrow::StringArray>(std::move(array));
        case Type::LARGE_STRING:
            return texts<arrow::LargeStringArray>(std::move(array));
        case Type::STRING_VIEW:
            return view_texts(std::move(array));
        case Type::LIST:
            return lists<arrow::ListArray>(std::move(array), feature);
        case Type::LARGE_LIST:
            return lists<arrow::LargeListArray>(std::move(array), feature);
        case Type::FIXED_SIZE_LIST:
            return fixed_lists(std::move(array), feature);
        case Type::MAP:
            return maps(std::move(array));
        case Type::STRUCT:
            return structs(std::move(array), feature);
        case Type::DICTIONARY:
            return dictionaries(std::move(array), feature);
        case Type::DECIMAL128:
            return decimals<arrow::Decimal128Array>(std::move(array));
        case Type::DECIMAL256:
            return decimals<arrow::Decimal256Array>(std::move(array));
        case Type::DATE32:
            return plain<arrow::Date32Array>(std::move(array),
                                             [](const arrow::Date32Array& values, std::int64_t i) {
                                                 return Json(iso_date(values.Value(i)));
                                             });
        case Type::DATE64:
            return plain<arrow::Date64Array>(
                std::move(array), [](const arrow::Date64Array& values, std::int64_t i) {
                    return Json(iso_date(days_of(values.Value(i), 1000)));
                });
        case Type::TIME32:
            return times_of_day<arrow::Time32Array, arrow::Time32Type>(std::move(array));
        case Type::TIME64:
            return times_of_day<arrow::Time64Array, arrow::Time64Type>(std::move(array));
        case Type::TIMESTAMP:
            return timestamps(std::move(array));
        case Type::EXTENSION:
            return read_values(static_cast<const arrow::ExtensionArray&>(*array).storage(),
                               feature);
        default:
            throw Error(refusal_of(*array->type()));
    }
}

std::string type_name(const arrow::DataType& type) {
    switch (type.id()) {
        case Type::STRING:
        case Type::LARGE_STRING:
        case Type::STRING_VIEW:
            return "string";
        case Type::LIST:
        case Type::LARGE_LIST:
        case Type::FIXED_SIZE_LIST:
            return "list<" + type_name(*type.field(0)->type()) + ">";
        case Type::DICTIONARY:
            return type_name(*static_cast<const arrow::DictionaryType&>(type).value_type());
        case Type::EXTENSION:
            return type_name(*static_cast<const arrow::ExtensionType&>(type).storage_type());
        case Type::MAP: {
            const auto& map = static_cast<const arrow::MapType&>(type);
            return "map<" + type_name(*map.key_type()) + ", " + type_name(*map.item_type()) + ">";
        }
        case Type::STRUCT: {
            std::string members;
            for (const auto& field : type.fields())
                members += (members.empty() ? "" : ", ") + field->name() + ": " +
                           type_name(*field->type());
            return "struct<" + members + ">";
        }
        default:
            return type.ToString();
    }
}

std::string refusal_of(const arrow::DataType& type) {
    if (type.id() == Type::DICTIONARY)
        return refusal_of(*static_cast<const arrow::DictionaryType&>(type).value_type());
    if (type.id() == Type::EXTENSION)
        return refusal_of(*static_cast<const arrow::ExtensionType&>(type).storage_type());
    switch (type.id()) {
        case Type::BINARY:
        case Type::LARGE_BINARY:
        case Type::BINARY_VIEW:
        case Type::FIXED_SIZE_BINARY:
            return "holds bytes (" + type.ToString() + "), not text";
        case Type::SPARSE_UNION:
        case Type::DENSE_UNION:
        case Type::RUN_END_ENCODED:
        case Type::LIST_VIEW:
        case Type::LARGE_LIST_VIEW:
        case Type::DURATION:
        case Type::INTERVAL_MONTHS:
        case Type::INTERVAL_DAY_TIME:
        case Type::INTERVAL_MONTH_DAY_NANO:
        case Type::DECIMAL32:
        case Type::DECIMAL64:
            return "is of the type " + type.ToString() + ", which is not read";
        default:
            break;
    }
    for (const auto& field : type.fields()) {
        std::string refusal = refusal_of(*field->type());
        if (!refusal.empty()) return refusal;
    }
    return {};
}

}  // namespace garam
