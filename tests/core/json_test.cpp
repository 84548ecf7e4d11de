#include "garam/core/json.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"

namespace garam {
namespace {

TEST(Json, KeepsKeyOrderAndKinds) {
    const Json j = Json::parse(R"({"b": 1, "a": [true, null, 2.5, "x"], "c": {"d": -7}})", "t");
    EXPECT_EQ(j.object()[0].first, "b");
    EXPECT_EQ(j.at("b").integer(), 1);
    EXPECT_TRUE(j.at("a").array()[1].is_null());
    EXPECT_EQ(j.at("a").array()[2].number(), 2.5);
    EXPECT_EQ(j.at("c").at("d").integer(), -7);
    EXPECT_EQ(Json::parse(j.dump(), "t").dump(2), j.dump(2));
}

TEST(Json, DoublesReadBackBitEqual) {
    for (const double value : {0.1, 1e-300, 3.141592653589793, 1.0, -2.5e17}) {
        EXPECT_EQ(Json::parse(Json(value).dump(), "t").number(), value);
    }
}

TEST(Json, LastOfDuplicateKeysCounts) {
    const Json j = Json::parse(R"({"a": 1, "b": 2, "a": 3})", "t");
    EXPECT_EQ(j.object().size(), 2u);
    EXPECT_EQ(j.at("a").integer(), 3);
}

TEST(Json, WholeNumbersMayBeWrittenAsFloats) {
    EXPECT_EQ(Json::parse("1e5", "t").integer(), 100000);
    EXPECT_THROW(Json::parse("1.5", "t").integer("key"), Error);
}

TEST(Json, ErrorsNameSourceAndPosition) {
    try {
        Json::parse("{\n  \"a\": 1,\n  oops\n}", "config.json");
        FAIL();
    } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find("config.json"), std::string::npos) << e.what();
        EXPECT_NE(std::string(e.what()).find("line 3"), std::string::npos) << e.what();
    }
    EXPECT_THROW(Json::parse("", "t"), Error);
    EXPECT_THROW(Json::parse("\"\xff\"", "t"), Error);
    EXPECT_THROW(Json::parse(std::string(100000, '['), "t"), Error);
    EXPECT_THROW(Json::parse("{} x", "t"), Error);
    EXPECT_THROW(Json::parse_file("/nonexistent/file.json"), Error);
}

// Of a file that is cut within a long string.
TEST(Json, ErrorsQuoteLittle) {
    std::string text = "{\"a\": \"";
    for (int i = 0; i < 3000; ++i)
        text += i % 2 == 0 ? "x" : "한";
    try {
        Json::parse(text, "config.json");
        FAIL();
    } catch (const Error& e) {
        const std::string message = e.what();
        EXPECT_LT(message.size(), 250u);
        EXPECT_NE(message.find("x한x"), std::string::npos) << message;
        EXPECT_NE(message.find("…'"), std::string::npos) << message;
    }
}

TEST(Json, OnlyRegularFilesAreRead) {
    for (const char* path : {"/", "/dev/zero"}) {  // the second has no end
        try {
            Json::parse_file(path);
            FAIL() << path;
        } catch (const Error& error) {
            EXPECT_EQ(std::string(error.what()), std::string(path) + ": is no regular file");
        }
    }
    EXPECT_THROW(Json::parse_file("/no/such/file"), Error);
}

TEST(Json, MissingAndWrongKindsAreErrors) {
    const Json j = Json::parse(R"({"a": "text"})", "t");
    EXPECT_EQ(j.find("b"), nullptr);
    EXPECT_THROW(j.at("b"), Error);
    EXPECT_THROW(j.at("a").integer(), Error);
    EXPECT_THROW(j.array(), Error);
}

}  // namespace
}  // namespace garam
