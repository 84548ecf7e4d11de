// Which algorithm of a card's library multiplies which shape: what `garam tune` measured, and the file of
// it (products.json) that runs and checkpoints carry with them, since an algorithm decides about the order
// of sums. A shape that the table lacks is multiplied as the library's heuristic has it.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace garam {

enum class ProductAddend : std::uint8_t { none, separate, in_place };
const char* name_of(ProductAddend addend);

// c [m, n] = op(a) op(b) + addend + bias (ops/matmul.h), and all of its operands that a choice depends on.
struct ProductShape {
    std::int64_t m = 0, n = 0, k = 0;
    // The last so many terms of the sums (an adapter's) may be added by a product of their own.
    std::int64_t tail = 0;
    std::int64_t a_pitch = 0, b_pitch = 0, c_pitch = 0, addend_pitch = 0;  // no addend: 0
    // Of the addresses: a power of two, 256 at most. Of the addend's: c's where there is none.
    std::int64_t a_alignment = 256, b_alignment = 256, c_alignment = 256, addend_alignment = 256;
    bool transpose_a = false, transpose_b = false;
    bool inputs_are_bf16 = false, c_is_bf16 = false, tf32 = false;
    bool bias = false;
    ProductAddend addend = ProductAddend::none;

    auto operator<=>(const ProductShape&) const = default;
    std::string to_string() const;  // "8192 x 2560 x 7168+64 NT bf16"
};
// The product without its tail, and the tail's product, which adds to c.
ProductShape without_tail(const ProductShape& shape);
ProductShape only_tail(const ProductShape& shape);

// An algorithm in the terms of cublasLtMatmulAlgoConfigAttributes_t.
struct ProductAlgorithm {
    std::int64_t id = 0, tile = 0, stages = 0, split_k = 1, reduction_scheme = 0, swizzling = 0,
                 custom_option = 0, inner_shape = 0, cluster_shape = 0;
    auto operator<=>(const ProductAlgorithm&) const = default;
};
// Whether pieces of a sum meet in a fixed order: not at all, or in the workspace in fp32.
bool is_deterministic(const ProductAlgorithm& algorithm);

struct TunedProduct {
    std::optional<ProductAlgorithm> algorithm;  // none: the heuristic's
    bool two_products = false;                  // the tail is added by a second product
    // As measured, for those who read the file.
    double calls = 0;  // of a step
    double heuristic_us = 0, tuned_us = 0;

    bool is_a_choice() const { return algorithm || two_products; }
};

// Algorithms mean the same only on the same card with the same library.
struct ProductHome {
    std::string card;
    std::int64_t compute_capability = 0;
    std::int64_t library_version = 0;  // cuBLASLt's
    bool operator==(const ProductHome&) const = default;
    std::string to_string() const;
};

struct ProductTable {
    ProductHome home;
    std::map<ProductShape, TunedProduct> products;

    const TunedProduct* find(const ProductShape& shape) const;
    // Whether both multiply every shape alike.
    bool chooses_as(const ProductTable& other) const;

    std::string to_text() const;
    // Throws Error "<source>: …", one line: not such a file, another version of it, damaged.
    static ProductTable parse(std::string_view text, const std::string& source);
    static ProductTable read(const std::filesystem::path& path);
};
using SharedProductTable = std::shared_ptr<const ProductTable>;

// The name of the copies in run folders and checkpoints.
constexpr const char* kProductTableFile = "products.json";

}  // namespace garam
