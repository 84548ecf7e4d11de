#include "garam/serve/classification.h"

#include <gtest/gtest.h>

namespace garam {
namespace {

TEST(Confusion, CountsByHand) {
    // truth: a a a b b c; prediction: a a b b a a.
    Confusion confusion({"a", "b", "c"});
    const std::vector<std::pair<std::int64_t, std::int64_t>> rows = {{0, 0}, {0, 0}, {0, 1},
                                                                     {1, 1}, {1, 0}, {2, 0}};
    for (const auto& [truth, predicted] : rows)
        confusion.add(truth, predicted);
    EXPECT_EQ(confusion.total(), 6);
    EXPECT_EQ(confusion.count(0, 1), 1);
    EXPECT_EQ(confusion.count(1, 0), 1);
    EXPECT_DOUBLE_EQ(confusion.accuracy(), 3.0 / 6);

    const Confusion::LabelScore a = confusion.score(0);
    EXPECT_DOUBLE_EQ(a.precision, 2.0 / 4);
    EXPECT_DOUBLE_EQ(a.recall, 2.0 / 3);
    EXPECT_DOUBLE_EQ(a.f1, 4.0 / 7);
    EXPECT_EQ(a.support, 3);
    const Confusion::LabelScore b = confusion.score(1);
    EXPECT_DOUBLE_EQ(b.f1, 0.5);
    // Never predicted: its precision has nothing below the line.
    const Confusion::LabelScore c = confusion.score(2);
    EXPECT_EQ(c.precision, 0);
    EXPECT_EQ(c.recall, 0);
    EXPECT_EQ(c.f1, 0);
    EXPECT_EQ(c.support, 1);
    EXPECT_DOUBLE_EQ(confusion.macro_f1(), (4.0 / 7 + 0.5 + 0) / 3);
}

TEST(Confusion, ALabelThatDoesNotOccurHasNoPartInTheMean) {
    Confusion confusion({"a", "b", "never"});
    confusion.add(0, 0);
    confusion.add(1, 1);
    EXPECT_DOUBLE_EQ(confusion.macro_f1(), 1);
}

// As scikit-learn counts a prediction that is none of the labels asked for.
TEST(Confusion, AnswersWithoutAVerdictAreWrong) {
    Confusion confusion({"a", "b"});
    confusion.add(0, 0);
    confusion.add_unparsable(0);
    confusion.add_unparsable(0);
    confusion.add(1, 1);
    EXPECT_EQ(confusion.total(), 4);
    EXPECT_EQ(confusion.unparsable(), 2);
    EXPECT_EQ(confusion.unparsable(0), 2);
    EXPECT_EQ(confusion.unparsable(1), 0);
    EXPECT_DOUBLE_EQ(confusion.accuracy(), 2.0 / 4);
    EXPECT_DOUBLE_EQ(confusion.score(0).precision, 1);
    EXPECT_DOUBLE_EQ(confusion.score(0).recall, 1.0 / 3);
    EXPECT_DOUBLE_EQ(confusion.score(0).f1, 0.5);
    EXPECT_EQ(confusion.score(0).support, 3);
    EXPECT_DOUBLE_EQ(confusion.macro().recall, (1.0 / 3 + 1) / 2);
    EXPECT_DOUBLE_EQ(confusion.macro().precision, 1);
    EXPECT_DOUBLE_EQ(confusion.macro_f1(), 0.75);
    EXPECT_EQ(confusion.macro().support, 4);
}

TEST(Confusion, EmptyIsZero) {
    const Confusion confusion({"a", "b"});
    EXPECT_EQ(confusion.accuracy(), 0);
    EXPECT_EQ(confusion.macro_f1(), 0);
    EXPECT_EQ(confusion.total(), 0);
}

}  // namespace
}  // namespace garam
