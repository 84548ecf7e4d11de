#include "garam/core/product_table.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "garam/core/error.h"
#include "garam/core/json.h"

namespace garam {
namespace {

constexpr const char* kFormat = "garam products";
constexpr std::int64_t kFormatVersion = 1;
constexpr std::uintmax_t kLargestFile = 16 << 20;
constexpr const char* kAdvice = "; run garam tune again";

// cublasLtReductionScheme_t
constexpr std::int64_t kNoReduction = 0;
constexpr std::int64_t kReductionInComputeType = 2;

// What each field of the file may be; names are those of the structs.
struct ShapeField {
    const char* name;
    std::int64_t ProductShape::*member;
    std::int64_t least, most;
};
constexpr std::int64_t kLargest = std::int64_t{1} << 40;
constexpr ShapeField kShapeFields[] = {
    {"m", &ProductShape::m, 1, kLargest},
    {"n", &ProductShape::n, 1, kLargest},
    {"k", &ProductShape::k, 1, kLargest},
    {"tail", &ProductShape::tail, 0, kLargest},
    {"a_pitch", &ProductShape::a_pitch, 0, kLargest},
    {"b_pitch", &ProductShape::b_pitch, 0, kLargest},
    {"c_pitch", &ProductShape::c_pitch, 0, kLargest},
    {"addend_pitch", &ProductShape::addend_pitch, 0, kLargest},
    {"a_alignment", &ProductShape::a_alignment, 1, 256},
    {"b_alignment", &ProductShape::b_alignment, 1, 256},
    {"c_alignment", &ProductShape::c_alignment, 1, 256},
    {"addend_alignment", &ProductShape::addend_alignment, 1, 256},
};
struct ShapeFlag {
    const char* name;
    bool ProductShape::*member;
};
constexpr ShapeFlag kShapeFlags[] = {
    {"transpose_a", &ProductShape::transpose_a},
    {"transpose_b", &ProductShape::transpose_b},
    {"inputs_are_bf16", &ProductShape::inputs_are_bf16},
    {"c_is_bf16", &ProductShape::c_is_bf16},
    {"tf32", &ProductShape::tf32},
    {"bias", &ProductShape::bias},
};
constexpr ProductAddend kAddends[] = {ProductAddend::none, ProductAddend::separate,
                                      ProductAddend::in_place};
struct AlgorithmField {
    const char* name;
    std::int64_t ProductAlgorithm::*member;
    std::int64_t least, most;
};
constexpr std::int64_t kLargestWord = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kLargestHalf = (std::int64_t{1} << 16) - 1;
constexpr AlgorithmField kAlgorithmFields[] = {
    {"id", &ProductAlgorithm::id, 0, kLargestWord},
    {"tile", &ProductAlgorithm::tile, 0, kLargestWord},
    {"stages", &ProductAlgorithm::stages, 0, kLargestWord},
    {"split_k", &ProductAlgorithm::split_k, -1, kLargestWord},
    {"reduction_scheme", &ProductAlgorithm::reduction_scheme, 0, kLargestWord},
    {"swizzling", &ProductAlgorithm::swizzling, 0, kLargestWord},
    {"custom_option", &ProductAlgorithm::custom_option, 0, kLargestWord},
    {"inner_shape", &ProductAlgorithm::inner_shape, 0, kLargestHalf},
    {"cluster_shape", &ProductAlgorithm::cluster_shape, 0, kLargestHalf},
};

std::int64_t integer_in(const Json& json, const char* name, std::int64_t least, std::int64_t most,
                        const std::string& source) {
    const std::string what = source + ": " + name;
    const std::int64_t value = json.at(name, source).integer(what);
    if (value < least || value > most)
        throw Error(what + " is " + std::to_string(value) + ", which no product has" + kAdvice);
    return value;
}

double measure_in(const Json& json, const char* name, const std::string& source) {
    const double value = json.at(name, source).number(source + ": " + name);
    if (!(value >= 0 && value < 1e15))
        throw Error(source + ": " + name + " is no measure" + kAdvice);
    return value;
}

ProductShape shape_from(const Json& json, const std::string& source) {
    ProductShape shape;
    for (const ShapeField& field : kShapeFields)
        shape.*field.member = integer_in(json, field.name, field.least, field.most, source);
    for (const ShapeFlag& flag : kShapeFlags)
        shape.*flag.member = json.at(flag.name, source).boolean(source + ": " + flag.name);
    const std::string& addend = json.at("addend", source).string(source + ": addend");
    const auto* const found =
        std::find_if(std::begin(kAddends), std::end(kAddends),
                     [&](const ProductAddend candidate) { return addend == name_of(candidate); });
    if (found == std::end(kAddends))
        throw Error(source + ": addend is none of none, separate, in_place" + kAdvice);
    shape.addend = *found;
    if (shape.tail >= shape.k) throw Error(source + ": tail is not shorter than k" + kAdvice);
    for (const std::int64_t alignment :
         {shape.a_alignment, shape.b_alignment, shape.c_alignment, shape.addend_alignment})
        if ((alignment & (alignment - 1)) != 0)
            throw Error(source + ": an alignment is no power of two" + kAdvice);
    // Rows lie beside each other, unless there is one only.
    const auto fits = [](std::int64_t pitch, std::int64_t rows, std::int64_t columns) {
        return rows == 1 || pitch >= columns;
    };
    if (!fits(shape.a_pitch, shape.transpose_a ? shape.k : shape.m,
              shape.transpose_a ? shape.m : shape.k) ||
        !fits(shape.b_pitch, shape.transpose_b ? shape.n : shape.k,
              shape.transpose_b ? shape.k : shape.n) ||
        !fits(shape.c_pitch, shape.m, shape.n) ||
        (shape.addend != ProductAddend::none && !fits(shape.addend_pitch, shape.m, shape.n)))
        throw Error(source + ": rows overlap by their pitch" + kAdvice);
    return shape;
}

ProductAlgorithm algorithm_from(const Json& json, const std::string& source) {
    ProductAlgorithm algorithm;
    for (const AlgorithmField& field : kAlgorithmFields)
        algorithm.*field.member = integer_in(json, field.name, field.least, field.most, source);
    if (!is_deterministic(algorithm))
        throw Error(source + ": adds pieces of a sum in an order that is chance" + kAdvice);
    return algorithm;
}

Json to_json(const ProductShape& shape, const TunedProduct& tuned) {
    Json json;
    for (const ShapeField& field : kShapeFields)
        json.set(field.name, shape.*field.member);
    for (const ShapeFlag& flag : kShapeFlags)
        json.set(flag.name, shape.*flag.member);
    json.set("addend", name_of(shape.addend));
    Json algorithm;
    if (tuned.algorithm)
        for (const AlgorithmField& field : kAlgorithmFields)
            algorithm.set(field.name, (*tuned.algorithm).*field.member);
    json.set("algorithm", std::move(algorithm));
    json.set("two_products", tuned.two_products);
    json.set("calls", tuned.calls);
    json.set("heuristic_us", tuned.heuristic_us);
    json.set("tuned_us", tuned.tuned_us);
    return json;
}

// The alignment of an address of that alignment, `bytes` further.
std::int64_t alignment_after(std::int64_t alignment, std::int64_t bytes) {
    const std::int64_t of_bytes = bytes & -bytes;
    return bytes == 0 ? alignment : std::min(alignment, of_bytes);
}

}  // namespace

const char* name_of(ProductAddend addend) {
    switch (addend) {
        case ProductAddend::none:
            return "none";
        case ProductAddend::separate:
            return "separate";
        case ProductAddend::in_place:
            return "in_place";
    }
    throw Bug("an unknown addend");
}

std::string ProductShape::to_string() const {
    std::string text = std::to_string(m) + " x " + std::to_string(n) + " x " +
                       std::to_string(k - tail) + (tail > 0 ? "+" + std::to_string(tail) : "") +
                       (transpose_a ? " T" : " N") + (transpose_b ? "T" : "N") +
                       (inputs_are_bf16 ? " bf16"
                        : tf32          ? " tf32"
                                        : " f32");
    if (inputs_are_bf16 && !c_is_bf16) text += ">f32";
    if (addend != ProductAddend::none) text += addend == ProductAddend::in_place ? " +=" : " +x";
    if (bias) text += " +bias";
    return text;
}

ProductShape without_tail(const ProductShape& shape) {
    ProductShape main = shape;
    main.k -= shape.tail;
    main.tail = 0;
    return main;
}

ProductShape only_tail(const ProductShape& shape) {
    const std::int64_t size = shape.inputs_are_bf16 ? 2 : 4;
    const std::int64_t before = shape.k - shape.tail;
    ProductShape tail = shape;
    tail.k = shape.tail;
    tail.tail = 0;
    tail.a_alignment =
        alignment_after(shape.a_alignment, before * size * (shape.transpose_a ? shape.a_pitch : 1));
    tail.b_alignment =
        alignment_after(shape.b_alignment, before * size * (shape.transpose_b ? 1 : shape.b_pitch));
    tail.bias = false;
    tail.addend = ProductAddend::in_place;
    tail.addend_pitch = shape.c_pitch;
    tail.addend_alignment = shape.c_alignment;
    return tail;
}

bool is_deterministic(const ProductAlgorithm& algorithm) {
    return algorithm.reduction_scheme == kNoReduction ||
           algorithm.reduction_scheme == kReductionInComputeType;
}

std::string ProductHome::to_string() const {
    return card + " (compute capability " + std::to_string(compute_capability / 10) + "." +
           std::to_string(compute_capability % 10) + ", cuBLASLt " +
           std::to_string(library_version) + ")";
}

const TunedProduct* ProductTable::find(const ProductShape& shape) const {
    const auto found = products.find(shape);
    return found == products.end() ? nullptr : &found->second;
}

bool ProductTable::chooses_as(const ProductTable& other) const {
    if (!(home == other.home)) return false;
    const auto choices = [](const ProductTable& table) {
        std::map<ProductShape, std::pair<std::optional<ProductAlgorithm>, bool>> made;
        for (const auto& [shape, tuned] : table.products)
            if (tuned.is_a_choice()) made[shape] = {tuned.algorithm, tuned.two_products};
        return made;
    };
    return choices(*this) == choices(other);
}

std::string ProductTable::to_text() const {
    Json listed{Json::Array{}};
    for (const auto& [shape, tuned] : products)
        listed.push_back(to_json(shape, tuned));
    Json json;
    json.set("format", kFormat);
    json.set("format_version", kFormatVersion);
    json.set("card", home.card);
    json.set("compute_capability", home.compute_capability);
    json.set("cublaslt_version", home.library_version);
    json.set("products", std::move(listed));
    return json.dump(1) + "\n";
}

ProductTable ProductTable::parse(std::string_view text, const std::string& source) {
    const Json json = Json::parse(text, source);
    const Json* const format = json.find("format");
    if (format == nullptr || !format->is_string() || format->string() != kFormat)
        throw Error(source + ": no table of products; garam tune writes one");
    const std::int64_t version =
        json.at("format_version", source).integer(source + ": format_version");
    if (version != kFormatVersion)
        throw Error(source + ": a table of format " + std::to_string(version) +
                    ", this garam reads " + std::to_string(kFormatVersion) + kAdvice);
    ProductTable table;
    table.home.card = json.at("card", source).string(source + ": card");
    table.home.compute_capability = integer_in(json, "compute_capability", 0, 1000, source);
    table.home.library_version = integer_in(json, "cublaslt_version", 0, kLargest, source);
    std::size_t number = 0;
    for (const Json& entry : json.at("products", source).array(source + ": products")) {
        const std::string where = source + ": product " + std::to_string(++number);
        const ProductShape shape = shape_from(entry, where);
        TunedProduct tuned;
        if (const Json& algorithm = entry.at("algorithm", where); !algorithm.is_null())
            tuned.algorithm = algorithm_from(algorithm, where + ": algorithm");
        tuned.two_products = entry.at("two_products", where).boolean(where + ": two_products");
        if (tuned.two_products && shape.tail == 0)
            throw Error(where + ": two products without a tail" + kAdvice);
        tuned.calls = measure_in(entry, "calls", where);
        tuned.heuristic_us = measure_in(entry, "heuristic_us", where);
        tuned.tuned_us = measure_in(entry, "tuned_us", where);
        if (!table.products.emplace(shape, tuned).second)
            throw Error(where + ": its shape came before" + kAdvice);
    }
    return table;
}

ProductTable ProductTable::read(const std::filesystem::path& path) {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    if (error)
        throw Error(path.string() + ": the table of products cannot be read (" + error.message() +
                    "); garam tune writes one");
    if (size > kLargestFile)
        throw Error(path.string() + ": too large for a table of products" + kAdvice);
    std::ifstream file(path, std::ios::binary);
    std::string text(static_cast<std::size_t>(size), '\0');
    file.read(text.data(), static_cast<std::streamsize>(size));
    if (!file) throw Error(path.string() + ": the table of products cannot be read to its end");
    return parse(text, path.string());
}

}  // namespace garam
