#include "garam/data/samples/read_samples.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/byte_tokenizer.h"
#include "data/expect_error.h"
#include "data/packed.h"
#include "data/sample_reader.h"
#include "garam/core/parallel.h"

namespace garam {
namespace {

using testing::ByteTokenizer;

class ReadSamples : public testing::SampleReader {};

TEST_F(ReadSamples, TextIsAllTargetsAndEndsWithEosOnce) {
    Sample sample = read_one(R"({"text": "ab"})");
    EXPECT_EQ(decoded(sample.ids), "ab<eos>");
    EXPECT_EQ(sample.labels, sample.ids);
    EXPECT_EQ(sample.targets(), 2);  // the first token has nothing before it
    sample = read_one(R"({"text": "ab<eos>"})");
    EXPECT_EQ(decoded(sample.ids), "ab<eos>");
    config_.text_column = "body";
    sample = read_one(R"({"body": "xy", "text": 3})");
    EXPECT_EQ(decoded(sample.ids), "xy<eos>");
}

TEST_F(ReadSamples, WithoutAnEosTokenNothingIsAppended) {
    setup_.eos = "<none>";
    EXPECT_EQ(decoded(read_one(R"({"text": "ab"})").ids), "ab");
}

TEST_F(ReadSamples, BosComesOnce) {  // CASES 8
    setup_.adds_bos = true;
    EXPECT_EQ(decoded(read_one(R"({"text": "ab"})").ids), "<bos>ab<eos>");
    // The text brings one of its own.
    EXPECT_EQ(decoded(read_one(R"({"text": "<bos>ab"})").ids), "<bos>ab<eos>");
    const Sample sample = read_one(R"({"prompt": "<bos>ab", "completion": "c"})");
    EXPECT_EQ(decoded(sample.ids), "<bos>abc<eos>");
    EXPECT_EQ(target_text(sample), "c<eos>");
}

TEST_F(ReadSamples, CompletionIsTheTarget) {
    Sample sample = read_one(R"({"prompt": "ab", "completion": "cd"})");
    EXPECT_EQ(decoded(sample.ids), "abcd<eos>");
    EXPECT_EQ(target_text(sample), "cd<eos>");
    EXPECT_EQ(sample.targets(), 3);
    settings_.completion_only_loss = false;
    sample = read_one(R"({"prompt": "ab", "completion": "cd"})");
    EXPECT_EQ(target_text(sample), "abcd<eos>");
    settings_.completion_only_loss = true;
    sample = read_one(R"({"prompt": "ab", "completion": "cd<eos>"})");
    EXPECT_EQ(target_text(sample), "cd<eos>");
    sample =
        read_one(R"({"prompt": "ab", "completion": ""})");  // to stop at once can be learnt too
    EXPECT_EQ(target_text(sample), "<eos>");
}

TEST_F(ReadSamples, CompletionBeginsWhereTheIdsPart) {
    setup_.merges = {"bc"};
    const Sample sample = read_one(R"({"prompt": "ab", "completion": "cd"})");
    EXPECT_EQ(sample.ids.size(), 4u);  // a bc d <eos>
    EXPECT_EQ(target_text(sample), "bcd<eos>");
}

// CASES 7, what a user can do something about: asked "ab", the model sees another token than it learnt behind.
TEST_F(ReadSamples, AnswersWhoseFirstTokenBeginsInThePromptAreCounted) {
    setup_.merges = {"bc"};
    const std::string rows =
        "{\"prompt\": \"ax\", \"completion\": \"cd\"}\n"
        "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n"
        "{\"prompt\": \"ab\", \"completion\": \"cc\"}\n";
    const ReadReport report = read(rows).report;
    EXPECT_EQ(report.merged_start.count, 2);
    EXPECT_NE(report.merged_start.first_where.find("rows.jsonl:2"), std::string::npos);
    EXPECT_EQ(report.merged_start.first_example, "\"abcd\"");
    EXPECT_EQ(join({report, report}).merged_start.count, 4);
    settings_.completion_only_loss = false;
    EXPECT_EQ(read(rows).report.merged_start.count, 0);
}

// CASES 2: pad = eos. There is no padding to mask, so the answer's end is learnt.
TEST_F(ReadSamples, APadTokenEqualToEosChangesNothing) {
    const std::string row = R"({"prompt": "ab", "completion": "cd"})";
    const Sample apart = read_one(row);
    setup_.pad = "<eos>";
    const Sample same = read_one(row);
    EXPECT_EQ(same.ids, apart.ids);
    EXPECT_EQ(same.labels, apart.labels);
    EXPECT_EQ(same.labels.back(), *ByteTokenizer(setup_).eos_id());
}

TEST_F(ReadSamples, TruncationTakesTheEndAndItsEos) {
    settings_.max_length = 5;
    const SampleSet set = read(
        "{\"text\": \"abcd\"}\n{\"text\": \"abcde\"}\n{\"prompt\": \"abc\", \"completion\": "
        "\"defg\"}\n");
    ASSERT_EQ(set.samples.size(), 3u);
    EXPECT_EQ(decoded(set.samples[0].ids), "abcd<eos>");
    EXPECT_EQ(decoded(set.samples[1].ids), "abcde");
    EXPECT_EQ(target_text(set.samples[2]), "de");
    EXPECT_EQ(set.report.truncated, 2);
    EXPECT_EQ(set.report.longest, 5);
}

TEST_F(ReadSamples, TruncationCanKeepTheEnd) {
    settings_.max_length = 4;
    settings_.truncation = Truncation::keep_end;
    const Sample sample = read_one(R"({"prompt": "abcd", "completion": "ef"})");
    EXPECT_EQ(decoded(sample.ids), "def<eos>");
    EXPECT_EQ(target_text(sample), "ef<eos>");
}

// CASES 6: a row whose prompt fills max_length has nothing to learn from.
TEST_F(ReadSamples, RowsWithoutATargetAreDroppedAndCounted) {
    settings_.max_length = 5;
    const SampleSet set = read(
        "{\"text\": \"ab\"}\n"
        "{\"prompt\": \"abcde\", \"completion\": \"f\"}\n"
        "{\"text\": \"\"}\n"
        "{\"prompt\": \"abcdefg\", \"completion\": \"h\"}\n"
        "{\"prompt\": \"\", \"completion\": \"\"}\n"
        "{\"text\": \"<eos>\"}\n"
        "{\"prompt\": \"abcd\", \"completion\": \"e\"}\n");
    ASSERT_EQ(set.samples.size(), 2u);
    EXPECT_EQ(set.samples[0].row, 0);
    EXPECT_EQ(set.samples[1].row, 6);  // rows keep their numbers
    const ReadReport& report = set.report;
    EXPECT_EQ(report.rows, 7);
    EXPECT_EQ(report.kept, 2);
    EXPECT_EQ(report.dropped_rows(), 5);
    const auto& beyond = report.dropped[static_cast<std::size_t>(DropReason::beyond_max_length)];
    EXPECT_EQ(beyond.count, 2);
    EXPECT_NE(beyond.first_where.find("rows.jsonl:2"), std::string::npos);
    EXPECT_EQ(beyond.first_example, "\"abcdef\"");
    const auto& empty = report.dropped[static_cast<std::size_t>(DropReason::empty)];
    EXPECT_EQ(empty.count, 2);
    EXPECT_NE(empty.first_where.find("rows.jsonl:3"), std::string::npos);
    const auto& nothing = report.dropped[static_cast<std::size_t>(DropReason::nothing_to_predict)];
    EXPECT_EQ(nothing.count, 1);
    EXPECT_EQ(report.tokens, 3 + 5);
    EXPECT_EQ(report.target_tokens, 2 + 1);
    EXPECT_EQ(report.truncated, 1);  // of the samples kept
    testing::expect_parts(report.summary(),
                          {"2 samples, 8 tokens (3 targets), longest 5, of 7 rows",
                           "1 sample truncated", "2 rows dropped", "rows.jsonl:2"});
    for (const Sample& sample : set.samples)
        EXPECT_GT(sample.targets(), 0);
}

// CASES 5: when nothing at all would be trained on, that is said before training.
TEST_F(ReadSamples, RefusesAFileWithoutAnyTarget) {
    settings_.max_length = 5;
    EXPECT_ERROR(read("\n{\"prompt\": \"abcdefgh\", \"completion\": \"x\"}\n"
                      "{\"prompt\": \"ABCDEFGH\", \"completion\": \"x\"}\n{\"text\": \"\"}\n"),
                 "rows.jsonl: none of its 3 rows", "2 of them", "max_length is 5", "rows.jsonl:2",
                 "\"abcdefghx\"", "1 of them: the row holds no text, first at ", "rows.jsonl:4");
}

TEST_F(ReadSamples, FirstExamplesAreCutBetweenCharacters) {
    settings_.max_length = 2;
    std::string text = "a";
    for (int i = 0; i < 40; ++i)
        text += "강";
    EXPECT_ERROR(read("{\"prompt\": \"" + text + "\", \"completion\": \"x\"}\n"), "강…\"");
}

TEST_F(ReadSamples, LabelledRowsWithoutAChatTemplateBecomeCompletions) {
    config_.instruction = "Spam? {text}\nAnswer: ";
    Sample sample = read_one(R"({"text": "hi {text}", "label": "ham"})");
    EXPECT_EQ(decoded(sample.ids), "Spam? hi {text}\nAnswer: ham<eos>");
    EXPECT_EQ(target_text(sample), "ham<eos>");
    config_.instruction = "Spam?";
    sample = read_one(R"({"text": "hi", "label": 1})");
    EXPECT_EQ(decoded(sample.ids), "Spam?\nhi\n1<eos>");
    EXPECT_EQ(target_text(sample), "1<eos>");
    config_.label_column = "class";
    config_.text_column = "body";
    sample = read_one(R"({"body": "hi", "class": 0.5, "label": "other"})");
    EXPECT_EQ(target_text(sample), "0.5<eos>");
}

TEST_F(ReadSamples, LabelledRowsNeedAnInstruction) {
    const std::string row = R"({"text": "hi", "label": "ham"})";
    EXPECT_ERROR(read(row), "rows.jsonl:1", "data.instruction", "data.label_column=\"\"");
    config_.label_column = "";
    EXPECT_EQ(decoded(read_one(row).ids), "hi<eos>");
    config_.label_column = "label";
    config_.instruction = "Spam?";
    EXPECT_ERROR(read(R"({"text": "hi", "label": [1]})"), "label must be a text or a number");
    EXPECT_ERROR(read(R"({"text": "hi", "label": ""})"), "label is empty");
    EXPECT_ERROR(read(R"({"text": 5, "label": "ham"})"), "rows.jsonl:1: text must be a string");
}

// A mistyped data.label_column must not become a model trained on the bare texts.
TEST_F(ReadSamples, AnInstructionNeedsLabels) {
    config_.instruction = "Spam?";
    config_.label_column = "lable";
    EXPECT_ERROR(read(R"({"text": "hi", "label": "ham"})"), "rows.jsonl:1", "\"lable\"",
                 "data.label_column", "\"label\" (string: \"ham\")");
    config_.label_column = "";
    EXPECT_EQ(decoded(read_one(R"({"text": "hi"})").ids), "hi<eos>");
}

TEST_F(ReadSamples, ShapesMayBeMixed) {
    const SampleSet set = read(
        "{\"text\": \"ab\"}\n{\"prompt\": \"ab\", \"completion\": \"cd\"}\r\n\n{\"text\": \"ef\"}");
    ASSERT_EQ(set.samples.size(), 3u);
    EXPECT_EQ(set.samples[2].row, 2);
}

TEST_F(ReadSamples, UnknownShapesNameTheirKeys) {
    EXPECT_ERROR(read("{\"text\": \"ab\"}\n{\"ask\": \"a\", \"say\": \"b\", \"n\": 3}\n"),
                 "rows.jsonl:2", "\"ask\" (string: \"a\")", "\"n\" (number: 3)",
                 "prompt and completion", "text and label with data.instruction",
                 "data.columns.instruction=ask data.columns.output=say",
                 "data.columns.prompt=ask data.columns.completion=say", "data.columns.text=ask");
    EXPECT_ERROR(read("{}\n"), "rows.jsonl:1", "no columns");
    EXPECT_ERROR(read(R"({"prompt": "a"})"), "The column is \"prompt\"");
    EXPECT_ERROR(read(R"({"prompt": ["a"], "completion": "b"})"), "both be texts or both lists");
    EXPECT_ERROR(read(R"({"text": null})"), "\"text\" is null");
}

TEST_F(ReadSamples, BrokenLinesStopOrAreCounted) {
    const std::string content =
        "{\"text\": \"ab\"}\n{\"text\": \"c\n{\"other\": 1}\n{\"text\": "
        "\"\xC3\x28\"}\n[1]\n{\"text\": \"ef\"}\n";
    EXPECT_ERROR(read(content), "rows.jsonl:2: ", "not valid JSON at column");
    config_.on_error = "skip";
    const SampleSet set = read(content);
    ASSERT_EQ(set.samples.size(), 2u);
    EXPECT_EQ(set.samples[1].row, 5);
    EXPECT_EQ(set.report.rows, 6);
    EXPECT_EQ(set.report.skipped.count, 4);
    EXPECT_NE(set.report.skipped.first_where.find("rows.jsonl:2"), std::string::npos);
    testing::expect_parts(set.report.summary(), {"4 rows skipped", "rows.jsonl:2: not valid JSON"});
    EXPECT_ERROR(read("{\n{\n"), "none of its 2 rows can be read", "rows.jsonl:1");
    config_.on_error = "ignore";
    EXPECT_ERROR(read(content), "data.on_error", "ignore");
}

// What lies behind the break is lost, which no count of skipped rows would tell.
TEST_F(ReadSamples, BrokenPackedFilesEndReadingEvenWhereRowsAreSkipped) {
    std::string content;
    for (int i = 0; i < 20000; ++i)
        content += "{\"text\": \"row " + std::to_string(i * 7919 % 20011) + "\"}\n";
    const std::string packed = testing::gzip(content);
    std::string damaged = packed;
    for (std::size_t at = packed.size() / 2; at < packed.size() / 2 + 64; ++at)
        damaged[at] = static_cast<char>(~damaged[at]);
    config_.on_error = "skip";
    const ByteTokenizer tokenizer;
    for (const std::string& broken : {packed.substr(0, packed.size() * 2 / 3), damaged})
        EXPECT_ERROR(
            read_samples(dir_.write("rows.jsonl.gz", broken), config_, settings_, tokenizer),
            "rows.jsonl.gz: not a whole gzip file", ", in line 1", "behind row ",
            "what follows cannot be read");
    // Within the first rows there is only the line.
    EXPECT_ERROR(read_samples(dir_.write("few.jsonl.gz",
                                         testing::gzip(content.substr(0, 400)).substr(0, 100)),
                              config_, settings_, tokenizer),
                 "few.jsonl.gz: not a whole gzip file: it ends too early, in line ");
}

TEST_F(ReadSamples, FilesOfAFolderThatAreNotReadAreTold) {
    dir_.write("a.jsonl", "{\"text\": \"ab\"}\n");
    dir_.write("b.xlsx", "PK");
    const ByteTokenizer tokenizer;
    EXPECT_EQ(read_samples(dir_.path(), config_, settings_, tokenizer).report.shape,
              "text; files not read, of no known format: 1 .xlsx");
}

TEST_F(ReadSamples, EmptyAndMissingFiles) {
    EXPECT_ERROR(read(""), "rows.jsonl: holds no rows");
    EXPECT_ERROR(read("\n \r\n"), "holds no rows");
    const ByteTokenizer tokenizer;
    EXPECT_ERROR(read_samples(dir_ / "none.jsonl", config_, settings_, tokenizer), "no such file");
    EXPECT_ERROR(read_samples(dir_.path(), config_, settings_, tokenizer), "holds no rows");
}

TEST_F(ReadSamples, TokenizerAndModelMustBelongTogether) {
    settings_.vocab_size = 302;
    EXPECT_EQ(decoded(read_one(R"({"text": "ab"})").ids), "ab<eos>");  // <eos> is 301
    settings_.vocab_size = 301;
    config_.on_error = "skip";  // no fault of a row: never skipped
    EXPECT_ERROR(read(R"({"text": "ab"})"), "rows.jsonl:1", "\"<eos>\" the id 301", "301 tokens",
                 "the tokenizer has 400");
}

TEST_F(ReadSamples, MaxLengthHasRoomForATarget) {
    settings_.max_length = 1;
    EXPECT_ERROR(read(R"({"text": "ab"})"), "max_length must be at least 2");
}

TEST_F(ReadSamples, AMarkCarriageReturnsAndLongLines) {
    // A line of 100 MB whose length is in a column that nobody asks for, and a text of 2 MB.
    const std::string other(100'000'000, 'x');
    const std::string text(2'000'000, 'x');
    const SampleSet set = read("\xEF\xBB\xBF{\"text\": \"ab\", \"other\": \"" + other +
                               "\"}\r\n{\"text\": \"" + text + "\"}\r\n\r\n");
    ASSERT_EQ(set.samples.size(), 2u);
    EXPECT_EQ(decoded(set.samples[0].ids), "ab<eos>");
    EXPECT_EQ(set.samples[1].tokens(), 1024);
    EXPECT_LE(set.samples[1].ids.capacity(), 2048u);  // what was cut away is not kept
}

TEST_F(ReadSamples, AnyNumberOfThreadsGivesTheSame) {
    std::string content;
    for (int i = 0; i < 3000; ++i) {
        if (i % 7 == 3)
            content += "{broken\n";
        else if (i % 11 == 5)
            content += "{\"text\": \"\"}\n";
        else
            content += "{\"prompt\": \"p" + std::to_string(i) + "\", \"completion\": \"c\"}\n";
    }
    const int threads = num_threads();
    std::vector<SampleSet> sets;
    std::vector<std::string> errors;
    for (const int count : {1, 2, 5}) {
        set_num_threads(count);
        config_.on_error = "skip";
        sets.push_back(read(content));
        config_.on_error = "fail";
        try {
            read(content);
        } catch (const Error& error) {
            errors.emplace_back(error.what());
        }
    }
    set_num_threads(threads);
    ASSERT_EQ(errors.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(errors[i], errors[0]);
        EXPECT_EQ(sets[i].report.summary(), sets[0].report.summary());
        ASSERT_EQ(sets[i].samples.size(), sets[0].samples.size());
        for (std::size_t s = 0; s < sets[0].samples.size(); ++s) {
            EXPECT_EQ(sets[i].samples[s].ids, sets[0].samples[s].ids);
            EXPECT_EQ(sets[i].samples[s].row, sets[0].samples[s].row);
        }
    }
    testing::expect_parts(errors[0], {"rows.jsonl:4: "});
    EXPECT_EQ(sets[0].samples[3].row, 4);  // 3 is broken
}

}  // namespace
}  // namespace garam
