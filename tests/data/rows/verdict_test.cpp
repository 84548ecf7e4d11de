#include "garam/data/rows/verdict.h"

#include <gtest/gtest.h>

#include "data/expect_error.h"
#include "garam/core/error.h"

namespace garam {
namespace {

constexpr const char* kReference = R"({"verdict": "spam", "reason": "a prize"})";

TEST(Verdict, OfJson) {
    const VerdictReader reader(kReference, "verdict");
    EXPECT_TRUE(reader.is_json());
    const std::vector<std::string> labels = {"ham", "spam", "확실치 않음"};
    const auto label = [&](const char* answer) { return reader.label_of(answer, labels); };
    EXPECT_EQ(label(R"({"verdict": "ham"})"), 0);
    EXPECT_EQ(label(R"( {"reason": "a } \" brace", "verdict":"spam"} )"), 1);
    EXPECT_EQ(label(R"({"verdict": "확실치 않음", "n": 1})"), 2);
    EXPECT_EQ(label(R"({"verdict": " Spam. "})"), 1);
    EXPECT_EQ(label("```json\n{\"verdict\": \"spam\"}\n```"), 1);
    EXPECT_EQ(label(R"(Sure! {it is} {"note": 1} {"verdict": "ham"} {"verdict": "spam"})"), 0);
    EXPECT_EQ(label(R"({"answer": {"verdict": "spam"}})"), 1);
    // Not whole, another key, another kind, another label, no JSON at all.
    for (const char* answer :
         {R"({"verdict": "spam", "reason": "a long on)", R"({"label": "spam"})",
          R"({"verdict": ["spam"]})", R"({"verdict": null})", R"({"verdict": "spam or ham"})",
          "spam", "", "{", "}{", R"({"verdict": "spam")", "{\"verdict\": \"\xff\"}"})
        EXPECT_EQ(label(answer), std::nullopt) << answer;
}

TEST(Verdict, OfNumbersAndTruthValues) {
    const VerdictReader reader(R"({"is_spam": true})", "is_spam");
    EXPECT_EQ(reader.label_of(R"({"is_spam": false})", {"false", "true"}), 0);
    EXPECT_EQ(VerdictReader(R"({"c": 3})", "c").label_of(R"({"c":1})", {"0", "1"}), 1);
}

TEST(Verdict, OfTheLabelAlone) {
    const VerdictReader reader("spam", "verdict");
    EXPECT_FALSE(reader.is_json());
    const std::vector<std::string> labels = {"A.", "Ham", "ham", "spam", "SPAM mail", "spam MAIL"};
    const auto label = [&](const char* answer) { return reader.label_of(answer, labels); };
    EXPECT_EQ(label(" spam\n"), 3);
    EXPECT_EQ(label("\"Spam\"."), 3);
    EXPECT_EQ(label("a"), 0);
    // Equal to one counts before alike.
    EXPECT_EQ(label("ham"), 2);
    EXPECT_EQ(label("HAM"), std::nullopt);
    EXPECT_EQ(label("Spam Mail"), std::nullopt);
    EXPECT_EQ(label("The message is spam"), std::nullopt);
    EXPECT_EQ(label(" \n"), std::nullopt);
}

TEST(Verdict, WrongKeysAreNamed) {
    EXPECT_ERROR(VerdictReader(kReference, "label"), "eval.verdict_key", "verdict, reason");
    EXPECT_ERROR(VerdictReader(R"({"verdict": {"is": 1}})", "verdict"), "eval.verdict_key",
                 "object");
    EXPECT_FALSE(VerdictReader("{broken", "verdict").is_json());
    EXPECT_FALSE(VerdictReader("", "verdict").is_json());
}

}  // namespace
}  // namespace garam
