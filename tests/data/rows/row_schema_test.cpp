#include "garam/data/rows/row_schema.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "data/expect_error.h"

namespace garam {
namespace {

class RowSchemas : public ::testing::Test {
  protected:
    // Of rows that have keys of their own.
    RowColumns of(const std::string& row) {
        return recognise_rows({}, {Json::parse(row, "row")}, config_, "f.jsonl");
    }
    RowColumns of(const std::vector<ColumnSchema>& declared, const std::string& row = "{}") {
        return recognise_rows(declared, {Json::parse(row, "row")}, config_, "f.parquet");
    }
    void map(const std::string& ours, const std::string& theirs) {
        config_.columns.emplace_back(ours, theirs);
    }

    DataConfig config_;
};

constexpr const char* kOpenAi = R"([{"role": "user", "content": "u"}])";
constexpr const char* kShareGpt = R"([{"from": "human", "value": "u"}])";

std::string chat(const std::string& name, const char* turns, const std::string& more = "") {
    return "{\"" + name + "\": " + turns + more + "}";
}

TEST_F(RowSchemas, Messages) {
    EXPECT_EQ(of(chat("messages", kOpenAi)).shape, RowShape::messages);
    EXPECT_EQ(of(chat("messages", kOpenAi)).summary, "messages");
    EXPECT_EQ(of(chat("conversations", kShareGpt)).summary,
              "messages from \"conversations\" (ShareGPT)");
    // Under any name, where no other column could be meant.
    EXPECT_EQ(of(chat("dialog", kOpenAi, ", \"id\": 3")).messages, "dialog");
    map("messages", "conv");
    map("system", "sys");
    const RowColumns mapped =
        of(chat("conv", kShareGpt, R"(, "sys": "s", "id": 1, "url": "x", "text": "t")"));
    EXPECT_EQ(mapped.system, "sys");
    EXPECT_EQ(mapped.summary,
              "messages from \"conv\" (ShareGPT), system from \"sys\"; 3 columns unused: id, url, "
              "text");
}

TEST_F(RowSchemas, MessagesOfADeclaredTypeWithoutExamples) {
    EXPECT_EQ(of({{"talk", "list<struct<from: string, value: string>>", {}}, {"n", "int64", {}}})
                  .messages,
              "talk");
}

TEST_F(RowSchemas, TwoChatsAreAmbiguous) {
    EXPECT_ERROR(
        of(R"({"a": [{"role": "user", "content": "u"}], "b": [{"role": "user", "content": "u"}]})"),
        "f.jsonl", "data.columns.messages=a");
    EXPECT_ERROR(of(chat("dialog", kOpenAi, ", \"text\": \"x\"")), "data.columns.text=text",
                 "data.columns.messages=dialog");
}

TEST_F(RowSchemas, PromptAndCompletion) {
    const RowColumns columns = of(R"({"prompt": "p", "completion": "c", "text": "t"})");
    EXPECT_EQ(columns.shape, RowShape::completion);
    EXPECT_EQ(columns.summary, "prompt, completion; 1 column unused: text");
    map("prompt", "question");
    EXPECT_EQ(of(R"({"question": "p", "answer": "c", "id": 4})").completion, "answer");
    EXPECT_ERROR(of(R"({"question": "p", "answer": "c", "response": "d"})"),
                 "data.columns.completion must name a column", "\"response\" (string: \"d\")");
    EXPECT_ERROR(of(R"({"prompt": "p", "answer": "c"})"), "data.columns.prompt names",
                 "\"question\"");
}

TEST_F(RowSchemas, Instructions) {
    RowColumns columns = of(R"({"instruction": "i", "input": "", "output": "o", "text": "whole"})");
    EXPECT_EQ(columns.shape, RowShape::instruction);
    EXPECT_EQ(columns.summary, "instruction, input, output; 1 column unused: text");
    columns = of(R"({"instruction": "i", "context": "c", "response": "r", "category": "x"})");
    EXPECT_EQ(columns.input, "context");
    EXPECT_EQ(columns.output, "response");
    columns = of(R"({"question": "q", "answer": "a"})");
    EXPECT_EQ(columns.shape, RowShape::instruction);
    EXPECT_EQ(columns.instruction, "question");
    columns = of(R"({"input": "q", "output": "a"})");
    EXPECT_EQ(columns.instruction, "input");
    EXPECT_EQ(columns.input, "");
    // What the question is about would be lost.
    EXPECT_ERROR(of(R"({"question": "q", "context": "c", "answer": "a"})"),
                 "data.columns.instruction=question data.columns.input=context "
                 "data.columns.output=answer");
    EXPECT_ERROR(
        of(R"({"question": "q", "answer": "a", "response": "b"})"),
        "data.columns.instruction=question data.columns.output=", "\"answer\" (string: \"a\")");
    map("instruction", "ask");
    map("output", "say");
    EXPECT_EQ(of(R"({"ask": "q", "say": "a", "text": "b"})").output, "say");
}

TEST_F(RowSchemas, TextAndLabel) {
    EXPECT_EQ(of(R"({"text": "t", "id": 1})").summary, "text; 1 column unused: id");
    EXPECT_ERROR(of(R"({"text": "t", "label": 1})"), "set data.instruction");
    config_.instruction = "What is it?";
    EXPECT_EQ(of(R"({"text": "t", "label": 1})").shape, RowShape::labelled);
    EXPECT_ERROR(of(R"({"text": "t", "class": 1})"), "no column \"label\"", "data.label_column");
    map("text", "sms");
    map("label", "class");
    const RowColumns columns =
        of({{"sms", "string", {}}, {"class", "int64", {"ham", "spam"}}}, R"({"sms": "x"})");
    EXPECT_EQ(columns.shape, RowShape::labelled);
    EXPECT_EQ(columns.class_names, (std::vector<std::string>{"ham", "spam"}));
    EXPECT_EQ(columns.summary, "text from \"sms\", label from \"class\"");
}

TEST_F(RowSchemas, TheOnlyColumnOfATableIsItsText) {
    EXPECT_EQ(of({{"example", "string", {}}}, R"({"example": "x"})").text, "example");
    EXPECT_ERROR(of({{"n", "int64", {}}}, R"({"n": 3})"), "\"n\" (int64: 3)");
    // Of rows with keys of their own it may be what is left of others.
    EXPECT_ERROR(of(R"({"prompt": "x"})"), "data.columns.text=prompt");
}

TEST_F(RowSchemas, ColumnsOfSeveralSourcesMayBeNamed) {
    map("messages", "talk");
    map("instruction", "ask");
    map("output", "say");
    EXPECT_EQ(of(chat("talk", kOpenAi)).shape, RowShape::messages);
    EXPECT_EQ(of(R"({"ask": "q", "say": "a"})").shape, RowShape::instruction);
    EXPECT_ERROR(of(R"({"ask": "q", "text": "a"})"), "data.columns.output names", "\"say\"");
}

TEST_F(RowSchemas, TokenIds) {
    const RowColumns columns = of(R"({"input_ids": [1, 2], "attention_mask": [1, 1]})");
    EXPECT_EQ(columns.shape, RowShape::token_ids);
    EXPECT_EQ(columns.summary, "input_ids, attention_mask");
    EXPECT_ERROR(of(R"({"input_ids": [1, 2], "text": "x"})"), "data.columns.input_ids=input_ids",
                 "data.columns.text=text");
}

TEST_F(RowSchemas, PreferencesAreRefusedByName) {
    EXPECT_ERROR(of(R"({"prompt": "p", "chosen": "a", "rejected": "b"})"), "(chosen, rejected)",
                 "preference training", "data.columns.completion=chosen");
    EXPECT_ERROR(of(R"({"prompt": "p", "completion": "a", "label": true})"), "judgement");
    map("completion", "chosen");
    EXPECT_EQ(of(R"({"prompt": "p", "chosen": "a", "rejected": "b"})").completion, "chosen");
}

TEST_F(RowSchemas, NestedColumns) {
    map("messages", "data.conv");
    EXPECT_EQ(of("{\"data\": {\"conv\": " + std::string(kOpenAi) + "}, \"id\": 1}").summary,
              "messages from \"data.conv\"; 1 column unused: id");
    const Json row = Json::parse(R"({"a": {"b": {"c": 1}}, "d.e": 2, "n": null})", "row");
    ASSERT_NE(find_column(row, "a.b.c"), nullptr);
    EXPECT_EQ(find_column(row, "a.b.c")->integer(), 1);
    EXPECT_EQ(find_column(row, "d.e")->integer(), 2);  // a name with a dot
    EXPECT_EQ(find_column(row, "a.x.c"), nullptr);
    EXPECT_EQ(find_column(row, "n"), nullptr);
    EXPECT_EQ(find_column(row, ""), nullptr);
}

TEST_F(RowSchemas, UnknownColumnsAreListedWithTheKeysToSet) {
    EXPECT_ERROR(of({{"a", "string", {}}, {"b", "string", {}}, {"when", "timestamp[ms]", {}}},
                    R"({"a": "first text", "b": "second"})"),
                 "f.parquet: ", "\"a\" (string: \"first text\")", "\"when\" (timestamp[ms])",
                 "data.columns.prompt=a data.columns.completion=b");
    map("prompt", "nowhere");
    EXPECT_ERROR(of({{"a", "string", {}}}), "data.columns.prompt", "\"nowhere\"", "\"a\" (string)");
}

TEST_F(RowSchemas, EachRowHasKeysOfItsOwnUnlessTheyAreDeclared) {
    RowSchema schema;
    const std::vector<Json> first = {Json::parse(R"({"text": "a"})", "row")};
    const RowRecogniser loose(schema, first, config_, "f");
    EXPECT_EQ(loose.summary(), "text");
    const auto columns = [&](const char* row) {
        return loose.columns_of(Json::parse(row, "row"), "f:2");
    };
    EXPECT_EQ(columns(R"({"text": "a"})")->shape, RowShape::text);
    EXPECT_EQ(columns(R"({"prompt": "a", "completion": "b"})")->shape, RowShape::completion);
    EXPECT_EQ(columns(R"({"prompt": null, "completion": null, "text": "c"})")->shape,
              RowShape::text);
    EXPECT_EQ(columns(R"({"prompt": "a", "completion": "b"})").get(),
              columns(R"({"prompt": "c", "completion": "d"})").get());
    EXPECT_ERROR(columns(R"({"x": 1})"), "f:2: ");
    // As many kinds of rows as there are rows.
    for (int i = 0; i < 500; ++i)
        EXPECT_EQ(columns(("{\"text\": \"a\", \"k" + std::to_string(i) + "\": 1}").c_str())->text,
                  "text");
    schema.columns = {{"text", "string", {}}};
    const RowRecogniser strict(schema, first, config_, "f");
    EXPECT_EQ(
        strict.columns_of(Json::parse(R"({"prompt": "a", "completion": "b"})", "row"), "f")->shape,
        RowShape::text);
}

TEST_F(RowSchemas, ARowMayHaveManyKeys) {
    std::string row = "{";
    for (int i = 0; i < 200'000; ++i)
        row += "\"key" + std::to_string(i) + "\": 1, ";
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(of(row + "\"text\": \"a\"}").text, "text");
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(30));
}

}  // namespace
}  // namespace garam
