#include "garam/core/product_table.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"
#include "garam/core/json.h"
#include "testing/temp_dir.h"

namespace garam {
namespace {

ProductShape shape_of(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t tail) {
    ProductShape shape;
    shape.m = m;
    shape.n = n;
    shape.k = k;
    shape.tail = tail;
    shape.a_pitch = k;
    shape.b_pitch = k + 64;
    shape.c_pitch = n;
    shape.transpose_b = shape.inputs_are_bf16 = shape.c_is_bf16 = true;
    return shape;
}

ProductTable some_table() {
    ProductTable table;
    table.home = {"NVIDIA H100 80GB HBM3", 90, 130100};
    TunedProduct tuned;
    tuned.algorithm = ProductAlgorithm{66, 20, 36, 4, 2, 1, 3, 0, 5};
    tuned.calls = 30.5;
    tuned.heuristic_us = 812.125;
    tuned.tuned_us = 0.1;
    table.products[shape_of(8192, 2560, 2624, 64)] = tuned;
    ProductShape shape = shape_of(100, 24, 40, 0);
    shape.bias = true;
    shape.addend = ProductAddend::separate;
    shape.addend_pitch = 32;
    shape.a_alignment = 16;
    table.products[shape] = {};
    TunedProduct two;
    two.two_products = true;
    table.products[shape_of(8192, 2560, 7232, 64)] = two;
    return table;
}

std::string error_of(const std::string& text) {
    try {
        ProductTable::parse(text, "table.json");
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

// The table's text with one member of its first product (or, by "", of the whole) changed.
std::string changed(const std::string& where, const std::string& key, Json value) {
    Json json = Json::parse(some_table().to_text(), "table");
    if (where.empty()) {
        json.set(key, std::move(value));
        return json.dump();
    }
    Json::Array products = json.at("products").array();
    for (Json& product : products) {
        if (where == "product") {
            product.set(key, value);
        } else if (!product.at("algorithm").is_null()) {
            Json algorithm = product.at("algorithm");
            algorithm.set(key, value);
            product.set("algorithm", algorithm);
        }
    }
    json.set("products", Json(std::move(products)));
    return json.dump();
}

TEST(ProductTable, ComesBackAsItWasWritten) {
    const ProductTable table = some_table();
    const ProductTable read = ProductTable::parse(table.to_text(), "table.json");
    EXPECT_EQ(read.home, table.home);
    ASSERT_EQ(read.products.size(), table.products.size());
    for (const auto& [shape, tuned] : table.products) {
        const TunedProduct* const found = read.find(shape);
        ASSERT_NE(found, nullptr) << shape.to_string();
        EXPECT_EQ(found->algorithm, tuned.algorithm);
        EXPECT_EQ(found->two_products, tuned.two_products);
        EXPECT_EQ(found->calls, tuned.calls);
        EXPECT_EQ(found->heuristic_us, tuned.heuristic_us);
        EXPECT_EQ(found->tuned_us, tuned.tuned_us);
    }
    EXPECT_EQ(read.to_text(), table.to_text());
    EXPECT_EQ(read.find(shape_of(1, 2, 3, 0)), nullptr);
}

TEST(ProductTable, ChoicesAreWhatCounts) {
    const ProductTable table = some_table();
    ProductTable other = table;
    EXPECT_TRUE(table.chooses_as(other));
    // Times, and shapes that are left to the heuristic, change no bit.
    other.products.begin()->second.tuned_us = 7;
    other.products[shape_of(7, 7, 7, 0)] = {};
    EXPECT_TRUE(table.chooses_as(other));
    other.products[shape_of(8192, 2560, 2624, 64)].algorithm->tile = 21;
    EXPECT_FALSE(table.chooses_as(other));
    other = table;
    other.home.library_version = 130200;
    EXPECT_FALSE(table.chooses_as(other));
}

TEST(ProductTable, ATailsPartsLieInItsOperands) {
    ProductShape shape = shape_of(64, 24, 40 + 16, 16);
    shape.bias = true;
    const ProductShape main = without_tail(shape);
    EXPECT_EQ(main.k, 40);
    EXPECT_EQ(main.tail, 0);
    EXPECT_TRUE(main.bias);
    EXPECT_EQ(main.a_pitch, shape.a_pitch);
    const ProductShape tail = only_tail(shape);
    EXPECT_EQ(tail.k, 16);
    EXPECT_FALSE(tail.bias);
    EXPECT_EQ(tail.addend, ProductAddend::in_place);
    EXPECT_EQ(tail.addend_pitch, shape.c_pitch);
    EXPECT_EQ(tail.a_alignment, 16);  // 80 bytes on
    EXPECT_EQ(tail.b_alignment, 16);
    shape.transpose_b = false;  // 40 rows of b on
    shape.b_pitch = 32;
    EXPECT_EQ(only_tail(shape).b_alignment, 256);
}

TEST(ProductTable, OtherFilesAndVersionsAreRefused) {
    EXPECT_NE(error_of("{}").find("table.json: no table of products; garam tune writes one"),
              std::string::npos);
    EXPECT_NE(error_of("[1]").find("no table"), std::string::npos);
    EXPECT_NE(error_of("{").find("table.json"), std::string::npos);
    EXPECT_EQ(error_of(changed("", "format_version", 2)),
              "table.json: a table of format 2, this garam reads 1; run garam tune again");
    const std::string text = some_table().to_text();
    for (std::size_t length = 0; length + 2 < text.size(); length += 37)
        EXPECT_NE(error_of(text.substr(0, length)), "") << length;
}

TEST(ProductTable, HostileFilesAreRefused) {
    const auto refused = [](const std::string& where, const std::string& key, Json value) {
        const std::string error = error_of(changed(where, key, std::move(value)));
        EXPECT_EQ(error.rfind("table.json: ", 0), 0u) << key << ": " << error;
        EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    };
    EXPECT_EQ(error_of(changed("product", "calls", 2)), "");
    refused("", "card", 3);
    refused("", "compute_capability", "90");
    refused("", "cublaslt_version", -1);
    refused("", "products", "none");
    for (const char* key : {"m", "n", "k"}) {
        refused("product", key, 0);
        refused("product", key, -5);
        refused("product", key, 1.5);
        refused("product", key, std::int64_t{1} << 60);
    }
    refused("product", "tail", 1 << 20);
    refused("product", "a_pitch", 8);
    refused("product", "c_pitch", 0);
    refused("product", "a_alignment", 48);
    refused("product", "a_alignment", 0);
    refused("product", "addend", "sideways");
    refused("product", "bias", 1);
    refused("product", "calls", -1);
    refused("product", "tuned_us", nullptr);
    refused("product", "algorithm", 5);
    refused("algorithm", "id", -1);
    refused("algorithm", "tile", std::int64_t{1} << 31);
    refused("algorithm", "cluster_shape", 1 << 16);
    // Pieces of sums must not meet in an order that is chance.
    for (const int scheme : {1, 3, 4, 7})
        refused("algorithm", "reduction_scheme", scheme);
    // The same shape twice; two products of what has one.
    Json json = Json::parse(some_table().to_text(), "table");
    Json::Array products = json.at("products").array();
    products.push_back(products.front());
    json.set("products", Json(products));
    EXPECT_NE(error_of(json.dump()).find("came before"), std::string::npos);
    products.pop_back();
    products[0].set("tail", 0);
    products[0].set("two_products", true);
    json.set("products", Json(products));
    EXPECT_NE(error_of(json.dump()).find("two products"), std::string::npos);
}

TEST(ProductTable, ReadsFiles) {
    const testing::TempDir dir;
    dir.write("products.json", some_table().to_text());
    EXPECT_TRUE(ProductTable::read(dir / "products.json").chooses_as(some_table()));
    EXPECT_THROW(ProductTable::read(dir / "absent.json"), Error);
    EXPECT_THROW(ProductTable::read(dir.path()), Error);
}

}  // namespace
}  // namespace garam
