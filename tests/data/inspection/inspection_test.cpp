// Sets so small that every number is counted by hand. ByteTokenizer: a character is a token.
#include "garam/data/inspection/inspection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "data/byte_tokenizer.h"
#include "garam/core/token_batch.h"
#include "garam/data/inspection/inspection_json.h"
#include "garam/data/inspection/inspection_page.h"
#include "garam/data/inspection/inspection_text.h"

namespace garam {
namespace {

using testing::ByteTokenizer;

constexpr std::int32_t kBos = ByteTokenizer::kFirstSpecial;
constexpr std::int32_t kEos = ByteTokenizer::kFirstSpecial + 1;

// `prompt` is no target, `answer` is, and so is what ends it.
Sample row(const std::string& prompt, const std::string& answer, bool ends = true) {
    Sample sample;
    for (const char c : prompt) {
        sample.ids.push_back(static_cast<unsigned char>(c) + 3);
        sample.labels.push_back(kIgnore);
    }
    for (const char c : answer)
        sample.ids.push_back(static_cast<unsigned char>(c) + 3);
    if (ends) sample.ids.push_back(kEos);
    for (std::size_t t = prompt.size(); t < sample.ids.size(); ++t)
        sample.labels.push_back(sample.ids[t]);
    return sample;
}

// What reading does, written once more: cuts, drops and counts.
InspectedSource source_of(std::vector<Sample> rows, const std::string& name = "rows.jsonl",
                          std::int64_t max_length = 1024, bool keep_end = false) {
    InspectedSource source;
    source.name = name;
    std::vector<Sample> kept;
    ReadReport report;
    report.file = name;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i].row = static_cast<std::int64_t>(i);
        ++report.rows;
        Sample cut = rows[i];
        const std::int64_t excess = cut.tokens() - max_length;
        if (excess > 0 && keep_end) {
            cut.ids.erase(cut.ids.begin(), cut.ids.begin() + excess);
            cut.labels.erase(cut.labels.begin(), cut.labels.begin() + excess);
        } else if (excess > 0) {
            cut.ids.resize(static_cast<std::size_t>(max_length));
            cut.labels.resize(static_cast<std::size_t>(max_length));
        }
        if (cut.targets() == 0) {
            ReadReport::Finding& dropped =
                report.dropped[static_cast<std::size_t>(DropReason::beyond_max_length)];
            if (dropped.count++ == 0) dropped.first_example = "\"" + std::to_string(i) + "\"";
            continue;
        }
        report.truncated += excess > 0;
        ++report.kept;
        report.tokens += cut.tokens();
        report.target_tokens += cut.targets();
        report.longest = std::max(report.longest, cut.tokens());
        kept.push_back(std::move(cut));
    }
    source.whole = table_of(rows);
    source.samples = table_of(kept);
    source.report = report;
    return source;
}

InspectedSource for_validation(InspectedSource source) {
    source.validation = true;
    return source;
}

// Over all training samples.
LoaderMaker loader_of(const std::vector<InspectedSource>& sources) {
    std::vector<Sample> samples;
    for (const InspectedSource& source : sources)
        for (std::int64_t i = 0; i < source.samples.size() && !source.validation; ++i)
            if (!source.rows ||
                std::count(source.rows->begin(), source.rows->end(), source.samples.row(i)) > 0)
                samples.push_back(source.samples.sample(i));
    return [table = table_of(samples)](const LoaderOptions& options) {
        return std::make_unique<Loader>(table, options);
    };
}

class InspectionTest : public ::testing::Test {
  protected:
    InspectionTest() {
        options_.loader.rows_per_micro_batch = 2;
        options_.loader.shuffle = false;
        options_.max_steps = 12;  // not few, and no reason for many epochs
        options_.vocab_size = 400;
    }
    Inspection inspect(const std::vector<InspectedSource>& sources) {
        return garam::inspect(sources, ByteTokenizer(setup_), options_, loader_of(sources));
    }
    Inspection inspect(std::vector<Sample> rows) {
        return inspect({source_of(std::move(rows), "rows.jsonl", options_.loader.max_length)});
    }
    static std::vector<std::string> kinds(const Inspection& inspection) {
        std::vector<std::string> kinds;
        for (const InspectionWarning& warning : inspection.warnings)
            kinds.push_back(warning.kind);
        return kinds;
    }
    static const InspectionWarning& warning(const Inspection& inspection, const std::string& kind) {
        for (const InspectionWarning& warning : inspection.warnings)
            if (warning.kind == kind) return warning;
        throw std::out_of_range("no warning " + kind);
    }
    static const LengthLimit& limit(const Inspection& inspection, std::int64_t max_length) {
        for (const LengthLimit& limit : inspection.limits)
            if (limit.max_length == max_length) return limit;
        throw std::out_of_range("no limit");
    }

    ByteTokenizer::Setup setup_;
    InspectionOptions options_;
};

// Enough different rows that no warning is due: with the end tokens 31 rows of 8 tokens.
std::vector<Sample> clean_rows(std::size_t count = 31) {
    std::vector<Sample> rows;
    for (std::size_t i = 0; i < count; ++i) {
        const std::string number = std::to_string(100 + i);
        rows.push_back(row("ask" + number, "a"));
    }
    // Different answers.
    for (std::size_t i = 0; i < count; ++i) {
        rows[i].ids[6] = static_cast<std::int32_t>('A' + i % 26) + 3;
        rows[i].labels[6] = rows[i].ids[6];
    }
    return rows;
}

const std::vector<std::string> kNone;

TEST_F(InspectionTest, CleanRowsHaveNoWarnings) {
    options_.max_steps = -1;  // 3 epochs of 16 steps
    const Inspection found = inspect(clean_rows());
    EXPECT_EQ(kinds(found), kNone);
    EXPECT_EQ(found.notes, kNone);
    EXPECT_EQ(found.steps, 48);
    EXPECT_EQ(found.epochs, 3);
    EXPECT_EQ(found.training().tokens, 31 * 8);
    EXPECT_EQ(found.training().target_tokens, 31 * 2);
    // Answers are no classes: 26 of them in 31 rows.
    EXPECT_TRUE(found.answers.empty());
    // Seven characters in seven tokens beside the special one.
    EXPECT_DOUBLE_EQ(found.characters_per_token, 1.0);
}

TEST_F(InspectionTest, CountsWhatEachMaxLengthTakes) {
    options_.loader.max_length = 5;
    options_.loader.rows_per_micro_batch = 1;
    // 4, 6 and 11 tokens; 2, 3 and 4 targets.
    const std::vector<Sample> rows = {row("ab", "x"), row("abc", "yy"), row("abcdefg", "zzz")};
    const Inspection found = inspect(rows);
    // At 5: "abcyy" loses its end, "abcdefgzzz" all.
    const LengthLimit& set = limit(found, 5);
    EXPECT_TRUE(set.is_set);
    EXPECT_EQ(set.rows_truncated, 2);
    EXPECT_EQ(set.rows_dropped, 1);
    EXPECT_EQ(set.tokens_lost, 1 + 11);
    EXPECT_EQ(set.targets_lost, 1 + 4);
    EXPECT_EQ(found.sources[0].tokens_lost, 12);
    EXPECT_EQ(found.sources[0].targets_lost, 5);
    // What is kept and what is lost make the whole.
    EXPECT_EQ(found.training().tokens + set.tokens_lost, 21);
    EXPECT_EQ(found.training().target_tokens + set.targets_lost, 9);
    // The median, 6 tokens, and all.
    EXPECT_EQ(limit(found, 6).rows_truncated, 1);
    EXPECT_EQ(limit(found, 6).tokens_lost, 11);
    EXPECT_EQ(limit(found, 11).tokens_lost, 0);
    EXPECT_EQ(limit(found, 128).rows_truncated, 0);
    EXPECT_FALSE(limit(found, 128).is_set);
    EXPECT_EQ(found.limits.back().max_length, 128);
    EXPECT_EQ(found.lossless_length, 11);
    // 1 % of 21 tokens is less than one.
    EXPECT_EQ(found.one_percent_length, 11);
    EXPECT_EQ(kinds(found), (std::vector<std::string>{"dropped", "truncated"}));
    EXPECT_EQ(found.truncated.count, 2);
    EXPECT_EQ(found.truncated.examples.at(0).row, 1);
    // Both lose their end.
    EXPECT_EQ(found.end_cut.count, 2);
    // Of the training rows only.
    EXPECT_EQ(inspect({source_of(rows, "rows.jsonl", 5),
                       for_validation(source_of(rows, "held.jsonl", 5))})
                  .end_cut.count,
              2);
    EXPECT_NE(warning(found, "truncated").message.find("12 tokens (57.1 %)"), std::string::npos)
        << warning(found, "truncated").message;
    EXPECT_EQ(warning(found, "dropped").finding.count, 1);
}

TEST_F(InspectionTest, KeepingTheEndLosesOtherTokens) {
    options_.loader.max_length = 4;
    options_.truncation = Truncation::keep_end;
    const std::vector<Sample> rows = {row("ab", "x"), row("abc", "yy"), row("abcdefg", "zzz")};
    const Inspection found = inspect({source_of(rows, "rows.jsonl", 4, true)});
    // "cyy." keeps its three targets; of "zzz." the first one is not scored: nothing comes before it.
    const LengthLimit& set = limit(found, 4);
    EXPECT_EQ(set.rows_truncated, 2);
    EXPECT_EQ(set.rows_dropped, 0);
    EXPECT_EQ(set.tokens_lost, 2 + 7);
    EXPECT_EQ(set.targets_lost, 0 + 1);
    EXPECT_EQ(found.training().tokens + set.tokens_lost, 21);
    EXPECT_EQ(found.training().target_tokens + set.targets_lost, 9);
    EXPECT_EQ(found.end_cut.count, 0);
}

TEST_F(InspectionTest, OnePercentOfTheTokens) {
    std::vector<Sample> rows;
    for (int i = 0; i < 99; ++i)
        rows.push_back(row("ask" + std::to_string(100 + i), "abc"));
    rows.push_back(row("ask", "a long answer, in words"));
    ASSERT_EQ(rows.back().tokens(), 27);
    // 990 + 27 = 1017 tokens, of which 10 may go.
    Inspection found = inspect(rows);
    EXPECT_EQ(found.lossless_length, 27);
    EXPECT_EQ(found.one_percent_length, 17);
    // Where the answer stands at the end, a shorter one would take the whole row.
    rows.back() = row("a long question in words", "xy");
    ASSERT_EQ(rows.back().tokens(), 27);
    found = inspect(rows);
    EXPECT_EQ(found.one_percent_length, 25);
    // From the other side there is always something to learn.
    options_.truncation = Truncation::keep_end;
    EXPECT_EQ(inspect(rows).one_percent_length, 17);
}

TEST_F(InspectionTest, QuantilesByNearestRank) {
    std::vector<Sample> rows;
    for (std::size_t length = 1; length <= 20; ++length)
        rows.push_back(row(std::string(length, static_cast<char>('a' + length)), "x"));
    const Inspection found = inspect(rows);  // 3 … 22 tokens
    EXPECT_EQ(found.whole.at, (std::array<std::int64_t, 9>{3, 3, 7, 12, 17, 20, 21, 22, 22}));
    EXPECT_DOUBLE_EQ(found.whole.mean, 12.5);
    EXPECT_EQ(found.longest.row, 19);
    std::int64_t rows_in_bins = 0;
    for (const LengthBin& bin : found.histogram) {
        rows_in_bins += bin.whole;
        EXPECT_EQ(bin.whole, bin.kept);
        EXPECT_LE(bin.whole, bin.to - bin.from);
    }
    EXPECT_EQ(rows_in_bins, 20);
}

TEST_F(InspectionTest, HistogramKeepsFarLengthsApart) {
    std::vector<Sample> rows;
    for (int i = 0; i < 300; ++i)
        rows.push_back(
            row("ask" + std::to_string(100 + i), std::string(1, static_cast<char>(i % 90 + 33))));
    rows.push_back(row(std::string(5000, 'q'), "x"));
    options_.loader.max_length = 8;  // the long row loses everything
    const Inspection found = inspect(rows);
    ASSERT_GE(found.histogram.size(), 2u);
    EXPECT_EQ(found.histogram.back().whole, 1);
    EXPECT_EQ(found.histogram.back().to, 5003);
    EXPECT_EQ(found.whole.at.back(), 5002);
    std::int64_t whole = 0;
    for (const LengthBin& bin : found.histogram)
        whole += bin.whole;
    EXPECT_EQ(whole, 301);
}

TEST_F(InspectionTest, Duplicates) {
    std::vector<Sample> rows = clean_rows();
    rows.push_back(rows[4]);
    rows.push_back(rows[2]);
    rows.push_back(rows[2]);
    const Inspection found = inspect(rows);
    EXPECT_EQ(kinds(found), std::vector<std::string>{"duplicates"});
    EXPECT_EQ(found.duplicates.count, 3);
    // The first row that repeats one, and the one that it repeats.
    ASSERT_EQ(found.duplicates.examples.size(), 2u);
    EXPECT_EQ(found.duplicates.examples[0].row, 31);
    EXPECT_EQ(found.duplicates.examples[1].row, 4);
    EXPECT_EQ(found.duplicates.examples[0].where, "rows.jsonl, row 31");
    // From where it differs from the others.
    EXPECT_EQ(found.duplicates.text, "…4E");
}

TEST_F(InspectionTest, DuplicatesAreFoundBeforeTruncation) {
    options_.loader.max_length = 8;
    std::vector<Sample> rows = clean_rows();
    rows.push_back(row("ask200", "x one"));
    rows.push_back(row("ask200", "x two"));
    const Inspection found = inspect(rows);
    EXPECT_EQ(found.duplicates.count, 0);
    EXPECT_EQ(found.conflicts.count, 2);
}

TEST_F(InspectionTest, DuplicatesOverSources) {
    std::vector<Sample> rows = clean_rows();
    const Inspection found =
        inspect({source_of(rows, "a.jsonl"), source_of({row("other", "x"), rows[7]}, "b.jsonl")});
    EXPECT_EQ(found.duplicates.count, 1);
    EXPECT_EQ(found.duplicates.examples.at(0).where, "b.jsonl, row 1");
    EXPECT_EQ(found.duplicates.examples.at(1).where, "a.jsonl, row 7");
}

TEST_F(InspectionTest, Leakage) {
    std::vector<Sample> rows = clean_rows();
    std::vector<Sample> held = {row("new1", "x"), rows[5], row("ask103", "z"), rows[5]};
    const Inspection found =
        inspect({source_of(rows), for_validation(source_of(held, "held.jsonl"))});
    EXPECT_EQ(kinds(found), std::vector<std::string>{"leakage"});
    EXPECT_EQ(found.leakage.count, 2);
    EXPECT_EQ(found.leakage.examples.at(0).where, "held.jsonl, row 1");
    EXPECT_EQ(found.leakage.examples.at(1).where, "rows.jsonl, row 5");
    EXPECT_EQ(found.repeats.count, 1);
    EXPECT_EQ(found.duplicates.count, 0);
    EXPECT_EQ(found.shared_prompts.count, 3);
    EXPECT_EQ(found.validation().kept, 4);
    EXPECT_NE(warning(found, "leakage").message.find("2 of 4 rows for validation (50.0 %)"),
              std::string::npos);
}

TEST_F(InspectionTest, PartsOfOneSource) {
    // Rows 1 and 30 are held out; 30 repeats row 2.
    std::vector<Sample> rows = clean_rows();
    rows[30] = rows[2];
    InspectedSource training = source_of(rows);
    InspectedSource held = for_validation(training);
    held.rows = {{1, 30}};
    training.rows.emplace();
    for (std::int64_t i = 0; i < 31; ++i)
        if (i != 1 && i != 30) training.rows->push_back(i);
    training.report.kept = 29;
    held.report.kept = 2;
    const Inspection found = inspect({training, held});
    EXPECT_EQ(kinds(found), std::vector<std::string>{"leakage"});
    EXPECT_EQ(found.leakage.count, 1);
    EXPECT_EQ(found.leakage.examples.at(0).row, 30);
    EXPECT_EQ(found.leakage.examples.at(1).row, 2);
    std::int64_t in_bins = 0;
    for (const LengthBin& bin : found.histogram)
        in_bins += bin.whole;
    EXPECT_EQ(in_bins, 29);
    EXPECT_EQ(found.batchings.at(0).units, 29);
    ASSERT_EQ(found.samples.size(), 3u);
    EXPECT_EQ(found.samples[1].place.row, 2);
}

TEST_F(InspectionTest, ConflictingAnswers) {
    std::vector<Sample> rows = clean_rows();
    rows.push_back(row("is this spam?", "yes"));
    rows.push_back(row("is this spam?", "no"));
    rows.push_back(row("is this spam?", "yes"));
    const Inspection found = inspect(rows);
    EXPECT_EQ(kinds(found), (std::vector<std::string>{"duplicates", "conflicting_answers"}));
    EXPECT_EQ(found.conflicts.count, 3);
    EXPECT_EQ(found.conflicts.examples.at(0).row, 32);
    EXPECT_EQ(found.conflicts.examples.at(1).row, 31);
    EXPECT_EQ(found.conflicts.text, "no / yes");
}

TEST_F(InspectionTest, PlainTextHasNoPrompts) {
    std::vector<Sample> rows;
    for (const char* text : {"one text", "one other", "one"}) {
        Sample sample = row("", text);
        sample.ids.insert(sample.ids.begin(), kBos);
        sample.labels.insert(sample.labels.begin(), kIgnore);
        rows.push_back(sample);
    }
    const Inspection found = inspect(rows);
    EXPECT_EQ(found.conflicts.count, 0);
    EXPECT_EQ(kinds(found), kNone);
}

TEST_F(InspectionTest, SeveralTurnsAreNoConflict) {
    // "hi" is answered twice, but each is the beginning of a talk of its own.
    const auto talk = [](const std::string& first, const std::string& second) {
        Sample sample = row("hi", first);
        const Sample more = row("and", second);
        sample.ids.insert(sample.ids.end(), more.ids.begin(), more.ids.end());
        sample.labels.insert(sample.labels.end(), more.labels.begin(), more.labels.end());
        return sample;
    };
    std::vector<Sample> rows = clean_rows();
    rows.push_back(talk("a", "b"));
    rows.push_back(talk("c", "d"));
    EXPECT_EQ(kinds(inspect(rows)), kNone);
}

TEST_F(InspectionTest, EmptyAnswers) {
    std::vector<Sample> rows = clean_rows();
    rows.push_back(row("say nothing", ""));
    rows.push_back(row("say space", " \n"));
    const Inspection found = inspect(rows);
    EXPECT_EQ(kinds(found), std::vector<std::string>{"empty_answers"});
    EXPECT_EQ(found.empty_answers.count, 2);
    EXPECT_EQ(found.empty_answers.examples.at(0).row, 31);
}

TEST_F(InspectionTest, RowsThatNeverEnd) {
    std::vector<Sample> rows = clean_rows();
    rows.push_back(row("goes on", "and on", false));
    // White space behind the end that is a target, too, hides nothing.
    Sample ends = row("ends", "here");
    ends.ids.push_back('\n' + 3);
    ends.labels.push_back('\n' + 3);
    rows.push_back(ends);
    // The end is there, but is no target.
    Sample untaught = row("ends", "untaught");
    untaught.labels.back() = kIgnore;
    rows.push_back(untaught);
    const Inspection found = inspect(rows);
    EXPECT_EQ(found.no_end.count, 2);
    EXPECT_EQ(found.no_end.examples.at(0).row, 31);
    EXPECT_EQ(warning(found, "no_end").finding.count, 2);
}

TEST_F(InspectionTest, TwoBosAndForeignIds) {
    std::vector<Sample> rows = clean_rows();
    Sample twice = row("twice", "x");
    twice.ids.insert(twice.ids.begin(), 2, kBos);
    twice.labels.insert(twice.labels.begin(), 2, kIgnore);
    rows.push_back(twice);
    Sample once = row("once", "x");
    once.ids.insert(once.ids.begin(), kBos);
    once.labels.insert(once.labels.begin(), kIgnore);
    rows.push_back(once);
    EXPECT_EQ(kinds(inspect(rows)), std::vector<std::string>{"double_bos"});
    rows[31] = row("foreign", "x");
    rows[31].ids[0] = 400;
    const Inspection found = inspect(rows);
    EXPECT_EQ(kinds(found), std::vector<std::string>{"outside_vocabulary"});
    EXPECT_EQ(found.outside_vocabulary.count, 1);
    EXPECT_EQ(found.outside_vocabulary.examples.at(0).row, 31);
    options_.vocab_size = 401;
    EXPECT_EQ(kinds(inspect(rows)), kNone);
}

TEST_F(InspectionTest, UnknownAndByteTokens) {
    setup_.specials.push_back("<unk>");
    setup_.merges = {"<0xEC>"};
    options_.vocab_size = 500;
    std::vector<Sample> rows = clean_rows();
    rows[3].ids[0] = ByteTokenizer::kFirstSpecial + 4;
    rows[3].ids[1] = ByteTokenizer::kFirstSpecial + 4;
    rows[8].ids[1] = ByteTokenizer::kFirstSpecial + 4;
    rows[9].ids[1] = ByteTokenizer::kFirstMerge;
    Inspection found = inspect(rows);
    EXPECT_EQ(kinds(found), std::vector<std::string>{"unknown_tokens"});
    EXPECT_EQ(found.unknown_tokens, 3);
    EXPECT_EQ(found.unknown.count, 2);
    EXPECT_EQ(found.byte_tokens, 1);
    // Beyond 5 % of 248 tokens.
    rows = clean_rows();
    for (std::size_t i = 0; i < 13; ++i)
        rows[i].ids[1] = ByteTokenizer::kFirstMerge;
    found = inspect(rows);
    EXPECT_EQ(kinds(found), std::vector<std::string>{"byte_tokens"});
}

TEST_F(InspectionTest, AnswersAsClasses) {
    std::vector<Sample> rows;
    for (int i = 0; i < 40; ++i)
        rows.push_back(row("text" + std::to_string(i), i % 4 == 0 ? "spam" : "ham"));
    const Inspection found = inspect(rows);
    ASSERT_EQ(found.answers.size(), 2u);
    EXPECT_EQ(found.answers[0].text, "ham");
    EXPECT_EQ(found.answers[0].count, 30);
    EXPECT_EQ(found.answers[1].text, "spam");
    EXPECT_EQ(found.answers[1].count, 10);
    EXPECT_EQ(kinds(found), kNone);
}

TEST_F(InspectionTest, UnevenClasses) {
    std::vector<Sample> rows;
    // 10 to 1 is still even enough.
    for (int i = 0; i < 44; ++i)
        rows.push_back(row("text" + std::to_string(i), i % 11 == 0 ? "spam" : "ham"));
    EXPECT_EQ(kinds(inspect(rows)), kNone);
    rows.push_back(row("one more", "ham"));
    const Inspection found = inspect(rows);
    EXPECT_EQ(kinds(found), std::vector<std::string>{"imbalance"});
    EXPECT_EQ(warning(found, "imbalance").finding.count, 4);
    std::vector<Sample> same;
    for (int i = 0; i < 10; ++i)
        same.push_back(row("text" + std::to_string(i), "ham"));
    EXPECT_EQ(kinds(inspect(same)), std::vector<std::string>{"imbalance"});
}

TEST_F(InspectionTest, MoreThan64AnswersAreNoClasses) {
    std::vector<Sample> rows;
    for (int i = 0; i < 2 * 64; ++i)
        rows.push_back(row("text" + std::to_string(i), "a" + std::to_string(i / 2)));
    EXPECT_EQ(inspect(rows).answers.size(), 64u);
    for (int i = 0; i < 2; ++i)
        rows.push_back(row("more" + std::to_string(i), "b"));
    EXPECT_TRUE(inspect(rows).answers.empty());
}

TEST_F(InspectionTest, BatchesAndTheirWaste) {
    // Lengths 4, 10, 4, 10, 6: in rows' order two by two 2 x 10, 2 x 10, 6.
    const std::vector<Sample> rows = {row("ab", "x"), row("abcdefgh", "x"), row("cd", "x"),
                                      row("ijklmnop", "x"), row("efgh", "x")};
    options_.loader.max_length = 14;
    options_.max_steps = -1;
    options_.epochs = 2;
    const Inspection found = inspect(rows);
    ASSERT_EQ(found.batchings.size(), 3u);
    const BatchingCost& plain = found.batchings[0];
    EXPECT_TRUE(plain.is_set);
    EXPECT_EQ(plain.units, 5);
    EXPECT_EQ(plain.steps, 3);
    EXPECT_EQ(plain.tokens, 34);
    EXPECT_EQ(plain.room, 20 + 20 + 6);
    EXPECT_DOUBLE_EQ(plain.waste(), 1 - 34.0 / 46);
    // From long to short within a run: 10 10, 6 4, 4 (the five rows are one run of 2 x 1, at least four).
    EXPECT_EQ(found.batchings[1].tokens, 34);
    EXPECT_LE(found.batchings[1].room, plain.room);
    EXPECT_FALSE(found.batchings[1].is_set);
    // Best fit: 10 + 4, 10 + 4, 6 in bins of 14.
    const BatchingCost& packed = found.batchings[2];
    EXPECT_EQ(packed.units, 3);
    EXPECT_EQ(packed.steps, 2);
    EXPECT_EQ(packed.room, 3 * 14);
    EXPECT_EQ(packed.tokens, 34);
    EXPECT_EQ(found.steps, 6);
    EXPECT_EQ(found.longest_step, 1);
    options_.loader.packing = true;
    const Inspection with_packing = inspect(rows);
    EXPECT_TRUE(with_packing.batchings[2].is_set);
    EXPECT_FALSE(with_packing.batchings[0].is_set);
    EXPECT_EQ(with_packing.steps, 4);
    ASSERT_EQ(with_packing.notes.size(), 1u);
    EXPECT_NE(with_packing.notes[0].find("5 rows into 3 bins"), std::string::npos);
}

TEST_F(InspectionTest, OneVeryLongSample) {
    std::vector<Sample> rows = clean_rows(30);
    rows.push_back(row(std::string(600, 'q'), "x"));
    const Inspection found = inspect(rows);
    EXPECT_EQ(kinds(found), std::vector<std::string>{"long_sample"});
    // In order: row 30 stands in the 16th pair.
    EXPECT_EQ(found.longest_step, 16);
    EXPECT_EQ(warning(found, "long_sample").finding.examples.at(0).row, 30);
    rows.back() = row(std::string(500, 'q'), "x");
    EXPECT_EQ(kinds(inspect(rows)), kNone);
}

TEST_F(InspectionTest, BeyondTheModelsPositions) {
    options_.model_positions = 7;
    EXPECT_EQ(kinds(inspect(clean_rows())), std::vector<std::string>{"beyond_positions"});
    options_.model_positions = 8;
    EXPECT_EQ(kinds(inspect(clean_rows())), kNone);
}

TEST_F(InspectionTest, StepsAndEpochs) {
    options_.max_steps = 9;
    EXPECT_EQ(kinds(inspect(clean_rows())), std::vector<std::string>{"few_steps"});
    options_.max_steps = -1;
    options_.epochs = 10;
    EXPECT_EQ(kinds(inspect(clean_rows())), kNone);
    options_.epochs = 11;
    EXPECT_EQ(kinds(inspect(clean_rows())), std::vector<std::string>{"many_epochs"});
}

TEST_F(InspectionTest, DateAndPad) {
    options_.template_writes_date = true;
    EXPECT_EQ(kinds(inspect(clean_rows())), std::vector<std::string>{"template_date"});
    options_.template_writes_date = false;
    setup_.pad = "<eos>";
    const Inspection found = inspect(clean_rows());
    EXPECT_EQ(kinds(found), kNone);
    ASSERT_EQ(found.notes.size(), 1u);
    EXPECT_NE(found.notes[0].find("<eos>"), std::string::npos);
}

TEST_F(InspectionTest, SkippedRowsAreTold) {
    InspectedSource source = source_of(clean_rows());
    source.report.skipped = {2, "rows.jsonl:3", "rows.jsonl:3: not JSON"};
    source.report.rows += 2;
    const Inspection found = inspect(std::vector<InspectedSource>{source});
    EXPECT_EQ(kinds(found), std::vector<std::string>{"skipped"});
    EXPECT_EQ(warning(found, "skipped").finding.count, 2);
    EXPECT_NE(warning(found, "skipped").finding.text.find("rows.jsonl:3"), std::string::npos);
}

TEST_F(InspectionTest, AnswersThatBeginInThePromptAreTold) {  // CASES 7
    InspectedSource source = source_of(clean_rows());
    source.report.merged_start = {2, "rows.jsonl:3", "\"Label: spam\""};
    const Inspection found = inspect(std::vector<InspectedSource>{source});
    EXPECT_EQ(kinds(found), std::vector<std::string>{"merged_start"});
    EXPECT_EQ(warning(found, "merged_start").finding.count, 2);
    EXPECT_NE(warning(found, "merged_start").finding.text.find("rows.jsonl:3"), std::string::npos);
}

TEST_F(InspectionTest, ManyRowsGiveTheSameNumbersOnAnyThreads) {
    std::vector<Sample> rows;
    for (int i = 0; i < 3000; ++i)
        rows.push_back(row("text" + std::to_string(i % 2500), i % 3 == 0 ? "spam" : "ham"));
    const std::string first = inspection_json(inspect(rows)).dump();
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(inspection_json(inspect(rows)).dump(), first);
    const Inspection found = inspect(rows);
    // Row i + 2500 asks what row i asks; 2500 % 3 = 1, so a third of the pairs agree in "ham" alone:
    // i % 3 == 1 gives (i + 1) % 3 == 2.
    EXPECT_EQ(found.duplicates.count, 167);
    EXPECT_EQ(found.conflicts.count, 2 * (500 - 167));
    EXPECT_EQ(found.duplicates.examples.at(0).row, 2501);
}

}  // namespace
}  // namespace garam
