// Rows of every shape as ids and targets.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "data/byte_tokenizer.h"
#include "data/expect_error.h"
#include "data/sample_reader.h"
#include "garam/core/token_batch.h"

namespace garam {
namespace {

class RowShapes : public testing::SampleReader {
  protected:
    RowShapes() { setup_.chat_template = testing::kChatMl; }
    void map(const std::string& ours, const std::string& theirs) {
        config_.columns.emplace_back(ours, theirs);
    }
    std::string text_of(const std::string& row) { return decoded(read_one(row).ids); }
    std::string targets_of(const std::string& row) { return target_text(read_one(row)); }
};

TEST_F(RowShapes, ShareGpt) {
    const std::string row =
        R"({"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "u"},)"
        R"( {"from": "gpt", "value": "a"}, {"from": "observation", "value": "o"}]})";
    EXPECT_EQ(text_of(row),
              "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"
              "<|im_start|>assistant\na<|im_end|>\n<|im_start|>tool\no<|im_end|>\n");
    EXPECT_EQ(targets_of(row), "a<|im_end|>");
}

TEST_F(RowShapes, OwnRolesAndNamesWithinMessages) {
    config_.roles = {{"customer", "user"}, {"agent", "assistant"}};
    map("role", "who");
    map("content", "said");
    map("messages", "talk");
    EXPECT_EQ(targets_of(
                  R"({"talk": [{"who": "customer", "said": "u"}, {"who": "agent", "said": "a"}]})"),
              "a<|im_end|>");
    EXPECT_ERROR(read(R"({"talk": [{"said": "u"}]})"), "talk[0]: the turn has no \"who\"",
                 "data.columns.role");
}

TEST_F(RowShapes, MessagesAsJsonText) {
    EXPECT_EQ(
        targets_of(
            R"({"messages": "[{\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", \"content\": \"a\"}]"})"),
        "a<|im_end|>");
}

TEST_F(RowShapes, TurnsThatAreContextOnly) {
    const std::string turns =
        R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a", "train": false},)"
        R"( {"role": "user", "content": "v"}, {"role": "assistant", "content": "b", "weight": 1},)"
        R"( {"role": "user", "content": "w"}, {"role": "assistant", "content": "c", "weight": 0},)"
        R"( {"role": "user", "content": "x"}, {"role": "assistant", "content": "d"}]})";
    EXPECT_EQ(targets_of(turns), "b<|im_end|>|d<|im_end|>");
    config_.train_on_turns = "last";
    EXPECT_EQ(targets_of(turns), "d<|im_end|>");
    config_.train_on_turns = "first";
    EXPECT_ERROR(read(turns), "data.train_on_turns");
    config_.train_on_turns = "all";
    // CASES 5: nothing is left to train on, and that is said.
    EXPECT_ERROR(
        read(
            R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a", "train": false}]})"),
        "none of its 1 rows has a token to train on", "train: false");
}

TEST_F(RowShapes, ASystemColumnComesFirst) {
    map("system", "sys");
    EXPECT_EQ(
        text_of(
            R"({"sys": "S", "messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]})"),
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|"
        "im_"
        "end|>\n");
    const std::string both =
        R"({"sys": "S", "messages": [{"role": "system", "content": "T"}, {"role": "assistant", "content": "a"}]})";
    EXPECT_ERROR(read(both), "rows.jsonl:1: messages[0] is a system message", "sys");
    // No value is none.
    EXPECT_EQ(targets_of(R"({"sys": null, "messages": [{"role": "assistant", "content": "a"}]})"),
              "a<|im_end|>");
    EXPECT_EQ(targets_of(R"({"sys": "", "messages": [{"role": "assistant", "content": "a"}]})"),
              "a<|im_end|>");
}

TEST_F(RowShapes, ToolsAndVariablesReachTheTemplate) {
    setup_.chat_template =
        "{% if tools %}{% for tool in tools %}<{{ tool['name'] }}>{% endfor %}{% endif %}"
        "{% if enable_thinking %}!{% endif %}{{ depth }}" +
        std::string(testing::kChatMl);
    const std::string turns = R"("messages": [{"role": "assistant", "content": "a"}])";
    const std::string rest = "<|im_start|>assistant\na<|im_end|>\n";
    EXPECT_EQ(text_of("{" + turns + R"(, "tools": [{"name": "f"}, {"name": "g"}]})"),
              "<f><g>" + rest);
    EXPECT_EQ(text_of("{" + turns + R"(, "tools": "[{\"name\": \"f\"}]"})"), "<f>" + rest);
    EXPECT_EQ(text_of("{" + turns + R"(, "tools": ""})"), rest);
    EXPECT_EQ(text_of("{" + turns + R"(, "tools": null})"), rest);
    EXPECT_ERROR(read("{" + turns + R"(, "tools": "f"})"), "rows.jsonl:1: tools", "must be JSON");
    config_.chat_template_kwargs = {{"enable_thinking", "true"}, {"depth", "3"}};
    EXPECT_EQ(text_of("{" + turns + "}"), "!3" + rest);
    // A row's own count before.
    EXPECT_EQ(text_of("{" + turns + R"(, "chat_template_kwargs": {"enable_thinking": false}})"),
              "3" + rest);
    EXPECT_EQ(text_of("{" + turns + R"(, "chat_template_kwargs": {"depth": null}})"), "!3" + rest);
}

TEST_F(RowShapes, CallsOfShareGptAreTheAssistants) {
    setup_.chat_template =
        "{% for m in messages %}[{{ m['role'] }}]{% if m['tool_calls'] %}{% for c in "
        "m['tool_calls'] %}{{ c['function']['name'] }}({{ c['function']['arguments']['x'] }}){% "
        "endfor %}{% else %}{{ m['content'] }}{% endif %}{{ eos_token }}{% endfor %}";
    settings_.assistant_only_loss = false;
    EXPECT_EQ(
        text_of(
            R"({"conversations": [{"from": "human", "value": "u"}, {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"}, {"from": "observation", "value": "2"}]})"),
        "[user]u<eos>[assistant]f(1)<eos>[tool]2<eos>");
    // Not a call: what was said.
    EXPECT_EQ(
        text_of(
            R"({"conversations": [{"from": "human", "value": "u"}, {"from": "function_call", "value": "f of 1"}]})"),
        "[user]u<eos>[assistant]f of 1<eos>");
}

TEST_F(RowShapes, PromptAndCompletionAsMessages) {
    const std::string row =
        R"({"prompt": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"},)"
        R"( {"role": "user", "content": "v"}], "completion": [{"role": "assistant", "content": "b"}]})";
    const std::string whole =
        "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
        "<|im_start|>user\nv<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n";
    EXPECT_EQ(text_of(row), whole);
    EXPECT_EQ(targets_of(row), "b<|im_end|>");
    settings_.completion_only_loss = false;
    EXPECT_EQ(targets_of(row), "a<|im_end|>|b<|im_end|>");
    settings_.assistant_only_loss = false;
    EXPECT_EQ(targets_of(row), whole);
    settings_.completion_only_loss = true;  // all behind the prompt, as TRL counts it
    EXPECT_EQ(targets_of(row), "b<|im_end|>\n");
}

TEST_F(RowShapes, InstructionsAreAChatWhereThereIsATemplate) {
    EXPECT_EQ(text_of(R"({"instruction": "i", "input": "x", "output": "o"})"),
              "<|im_start|>user\ni\nx<|im_end|>\n<|im_start|>assistant\no<|im_end|>\n");
    const std::string row = R"({"instruction": "i", "input": null, "output": "o"})";
    EXPECT_EQ(targets_of(row), "o<|im_end|>");
    config_.system = "S";
    EXPECT_EQ(text_of(row),
              "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\ni<|im_end|>\n"
              "<|im_start|>assistant\no<|im_end|>\n");
    EXPECT_ERROR(read(R"({"instruction": "", "input": "", "output": ""})"),
                 "the row holds no text");
    EXPECT_ERROR(read(R"({"instruction": "i", "output": 3})"), "no row that can be trained on",
                 "\"output\" (number: 3)");
}

TEST_F(RowShapes, InstructionsAreAlpacasTextWithoutATemplate) {
    setup_.chat_template = "";
    Sample sample = read_one(R"({"instruction": "i", "input": "", "output": "o"})");
    EXPECT_EQ(decoded(sample.ids),
              "Below is an instruction that describes a task. Write a response that appropriately "
              "completes the request.\n\n### Instruction:\ni\n\n### Response:\no<eos>");
    EXPECT_EQ(target_text(sample), "o<eos>");
    sample = read_one(R"({"instruction": "i", "input": "x", "output": "o"})");
    EXPECT_NE(decoded(sample.ids).find("further context. Write a response"), std::string::npos);
    EXPECT_NE(decoded(sample.ids).find("### Input:\nx\n\n### Response:\no<eos>"),
              std::string::npos);
    config_.system = "S";
    EXPECT_EQ(decoded(read_one(R"({"instruction": "i", "output": "o"})").ids),
              "S\n\n### Instruction:\ni\n\n### Response:\no<eos>");
}

TEST_F(RowShapes, TokenIdsAreTakenAsTheyAre) {
    setup_.adds_bos = true;  // of texts
    settings_.vocab_size = 400;
    Sample sample = read_one(R"({"input_ids": [300, 300, 5, 6]})");
    EXPECT_EQ(sample.ids, (std::vector<std::int32_t>{300, 300, 5, 6}));
    EXPECT_EQ(sample.labels, sample.ids);
    sample = read_one(R"({"input_ids": [4, 5, 6], "labels": [-100, 5, 6]})");
    EXPECT_EQ(sample.labels, (std::vector<std::int32_t>{kIgnore, 5, 6}));
    sample = read_one(
        R"({"input_ids": [4, 5, 6], "completion_mask": [0, 1, 1], "assistant_masks": [1, 1, 0]})");
    EXPECT_EQ(sample.labels, (std::vector<std::int32_t>{kIgnore, 5, kIgnore}));
    settings_.assistant_only_loss = false;
    settings_.completion_only_loss = false;
    sample = read_one(
        R"({"input_ids": [4, 5, 6], "completion_mask": [0, 1, 1], "assistant_masks": [true, true, false]})");
    EXPECT_EQ(sample.labels, sample.ids);
}

// CASES 2: padding is known by its place. 301 is <eos>: the one that ends the text stays.
TEST_F(RowShapes, PaddingOfTokenIdsIsLeftAway) {
    for (const char* row :
         {R"({"input_ids": [5, 6, 301, 301, 301], "attention_mask": [1, 1, 1, 0, 0]})",
          R"({"input_ids": [301, 301, 5, 6, 301], "attention_mask": [0, 0, 1, 1, 1]})"}) {
        const Sample sample = read_one(row);
        EXPECT_EQ(sample.ids, (std::vector<std::int32_t>{5, 6, 301}));
        EXPECT_EQ(sample.labels, sample.ids);
    }
    EXPECT_ERROR(read(R"({"input_ids": [5, 6, 7], "attention_mask": [1, 0, 1]})"),
                 "rows.jsonl:1: attention_mask[1] is 0 between tokens");
    EXPECT_ERROR(read(R"({"input_ids": [5, 6], "attention_mask": [0, 0]})"), "holds no text");
}

TEST_F(RowShapes, BadTokenIds) {
    settings_.vocab_size = 400;
    EXPECT_ERROR(read(R"({"input_ids": [4, 400]})"), "rows.jsonl:1: input_ids[1] is 400",
                 "embeddings for 400 tokens");
    EXPECT_ERROR(read(R"({"input_ids": [-1, 4]})"), "input_ids[0] is -1");
    EXPECT_ERROR(read(R"({"input_ids": [1.5, 4]})"), "input_ids[0]");
    EXPECT_ERROR(read(R"({"input_ids": "4 5"})"), "input_ids must be an array");
    EXPECT_ERROR(read(R"({"input_ids": [4, 5], "labels": [4]})"),
                 "labels has 1 values for 2 tokens");
    EXPECT_ERROR(read(R"({"input_ids": [4, 5], "attention_mask": [1]})"), "attention_mask has 1");
    EXPECT_ERROR(read(R"({"input_ids": [4, 5], "attention_mask": [1, 2]})"), "must be 0 or 1");
    settings_.vocab_size = 0;
    EXPECT_ERROR(read(R"({"input_ids": [4, 3000000000]})"), "is no token");
    EXPECT_ERROR(read(R"({"input_ids": [4, 5], "labels": [-100, -100]})"),
                 "no token after the first one is a target");
}

// CASES 6.
TEST_F(RowShapes, TokenIdsAreTruncatedAsTextIs) {
    settings_.max_length = 3;
    EXPECT_EQ(read_one(R"({"input_ids": [4, 5, 6, 7]})").ids, (std::vector<std::int32_t>{4, 5, 6}));
    EXPECT_ERROR(read(R"({"input_ids": [4, 5, 6, 7], "labels": [-100, -100, -100, 7]})"),
                 "max_length is 3");
}

TEST_F(RowShapes, LabelsGetNames) {
    setup_.chat_template = "";
    config_.instruction = "Spam?";
    config_.label_names = {{"0", "ham"}, {"1", "spam"}};
    EXPECT_EQ(text_of(R"({"text": "t", "label": 1})"), "Spam?\nt\nspam<eos>");
    EXPECT_EQ(text_of(R"({"text": "t", "label": "0"})"), "Spam?\nt\nham<eos>");
    EXPECT_ERROR(read(R"({"text": "t", "label": 2})"), "rows.jsonl:1: label is \"2\"",
                 "data.label_names");
    config_.label_names = {};
    EXPECT_EQ(text_of(R"({"text": "t", "label": true})"), "Spam?\nt\ntrue<eos>");
}

// CASES 8: the template writes the BOS, and the tokenizer's own does not stand before it.
TEST_F(RowShapes, OneBosInEveryShapeOfChat) {
    setup_.adds_bos = true;
    setup_.chat_template = "{{ bos_token }}" + std::string(testing::kChatMl);
    for (
        const char* row :
        {R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]})",
         R"({"prompt": [{"role": "user", "content": "u"}], "completion": [{"role": "assistant", "content": "a"}]})",
         R"({"instruction": "u", "output": "a"})"})
        EXPECT_EQ(text_of(row),
                  "<bos><|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n");
}

TEST_F(RowShapes, OneBosOfMany) {
    setup_.chat_template = "";
    std::string text;
    for (int i = 0; i < 1'000'000; ++i)
        text += "<bos>";
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(text_of("{\"text\": \"" + text + "a\"}"), "<bos>a<eos>");
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(30));
}

}  // namespace
}  // namespace garam
