// Rows of messages, with the real chat templates and a tokenizer whose ids can be told by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "data/byte_tokenizer.h"
#include "data/expect_error.h"
#include "data/sample_reader.h"
#include "garam/core/json.h"
#include "garam/data/samples/read_samples.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

using testing::ByteTokenizer;

class ChatRows : public testing::SampleReader {
  protected:
    ChatRows() { setup_.chat_template = testing::kChatMl; }

    static std::string row(const std::vector<std::pair<std::string, std::string>>& messages) {
        Json list(Json::Array{});
        for (const auto& [role, content] : messages) {
            Json message;
            message.set("role", role);
            message.set("content", content);
            list.push_back(message);
        }
        Json object;
        object.set("messages", list);
        return object.dump() + "\n";
    }
};

TEST_F(ChatRows, OnlyTheAssistantsTurnsAndTheirTerminatorAreTargets) {
    const std::string line = row({{"system", "s"},
                                  {"user", "u"},
                                  {"assistant", "one"},
                                  {"user", "v"},
                                  {"assistant", "two"}});
    Sample sample = read_one(line);
    EXPECT_EQ(decoded(sample.ids),
              "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"
              "<|im_start|>assistant\none<|im_end|>\n<|im_start|>user\nv<|im_end|>\n"
              "<|im_start|>assistant\ntwo<|im_end|>\n");
    EXPECT_EQ(target_text(sample), "one<|im_end|>|two<|im_end|>");
    settings_.assistant_only_loss = false;
    sample = read_one(line);
    EXPECT_EQ(sample.labels, sample.ids);
}

TEST_F(ChatRows, NothingIsAddedToWhatTheTemplateWrites) {
    setup_.adds_bos = true;  // of texts; a chat's BOS is the template's
    Sample sample = read_one(row({{"user", "u"}, {"assistant", "a"}}));
    EXPECT_EQ(decoded(sample.ids),
              "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n");
    setup_.chat_template = std::string("{{ bos_token }}") + testing::kChatMl;
    sample = read_one(row({{"user", "u"}, {"assistant", "a"}}));
    EXPECT_EQ(decoded(sample.ids),
              "<bos><|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n");
}

// CASES 7: the answer's text occurs elsewhere too, and its first characters merge with what stands
// before it: spans come from where the template wrote it.
TEST_F(ChatRows, TargetsAreFoundByPlaceNotByMatching) {
    setup_.merges = {"\nyes", "yes<"};
    const SampleSet set =
        read(row({{"user", "say yes\n<|im_start|>assistant\nyes"}, {"assistant", "yes"}}) +
             row({{"user", "no"}, {"assistant", "no"}}));
    EXPECT_EQ(set.report.merged_start.count, 1);  // which inspection warns of
    const Sample& sample = set.samples.at(0);
    EXPECT_EQ(target_text(sample), "\nyes<|im_end|>");
    EXPECT_EQ(std::count_if(sample.labels.begin(), sample.labels.end(),
                            [](std::int32_t label) { return label != kIgnore; }),
              2);
}

TEST_F(ChatRows, AnEmptyAnswerTeachesToStop) {
    EXPECT_EQ(target_text(read_one(row({{"user", "u"}, {"assistant", ""}}))), "<|im_end|>");
}

// CASES 2: the terminator is the pad token too, and stays a target.
TEST_F(ChatRows, APadTokenEqualToTheTerminatorStaysATarget) {
    setup_.eos = "<|im_end|>";
    setup_.pad = "<|im_end|>";
    const Sample sample = read_one(row({{"user", "u"}, {"assistant", "a"}}));
    EXPECT_EQ(target_text(sample), "a<|im_end|>");
}

// CASES 5 and 6.
TEST_F(ChatRows, ChatsWithoutATargetAreDroppedOrRefused) {
    const std::string good = row({{"user", "u"}, {"assistant", "a"}});
    const std::string silent = row({{"user", "u"}, {"user", "v"}});
    const std::string lengthy = row({{"user", std::string(200, 'x')}, {"assistant", "a"}});
    settings_.max_length = 60;
    const SampleSet set = read(good + silent + lengthy + row({}));
    EXPECT_EQ(set.samples.size(), 1u);
    EXPECT_EQ(set.report.dropped[static_cast<std::size_t>(DropReason::no_assistant_turn)].count, 1);
    EXPECT_EQ(set.report.dropped[static_cast<std::size_t>(DropReason::beyond_max_length)].count, 1);
    EXPECT_EQ(set.report.dropped[static_cast<std::size_t>(DropReason::empty)].count, 1);
    EXPECT_ERROR(read(silent), "none of its 1 rows", "no turn of the assistant", "rows.jsonl:1",
                 "<|im_start|>user", "no message with the role");
    // A template that leaves the answers out.
    setup_.chat_template = "{% for message in messages %}{{ message['role'] }};{% endfor %}";
    EXPECT_ERROR(read(good), "no turn of the assistant", "template leaves out");
}

TEST_F(ChatRows, TruncationInsideAnAnswerKeepsItsBeginning) {
    settings_.max_length = 24;  // <|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n are 20
    const Sample sample = read_one(row({{"user", "u"}, {"assistant", "abcdefgh"}}));
    EXPECT_EQ(target_text(sample), "abcd");
}

TEST_F(ChatRows, LabelledRowsBecomeChats) {
    config_.instruction = "Spam?";
    config_.system = "Be terse.";
    Sample sample = read_one(R"({"text": "hi", "label": "ham"})");
    EXPECT_EQ(decoded(sample.ids),
              "<|im_start|>system\nBe terse.<|im_end|>\n<|im_start|>user\nSpam?\nhi<|im_end|>\n"
              "<|im_start|>assistant\nham<|im_end|>\n");
    EXPECT_EQ(target_text(sample), "ham<|im_end|>");
    config_.system = "";
    sample = read_one(R"({"text": "hi", "label": 0})");
    EXPECT_EQ(decoded(sample.ids),
              "<|im_start|>user\nSpam?\nhi<|im_end|>\n<|im_start|>assistant\n0<|im_end|>\n");
}

TEST_F(ChatRows, AnOverridingTemplateIsUsed) {
    settings_.chat_template =
        "{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}{{ eos_token "
        "}}{% endfor %}";
    const Sample sample = read_one(row({{"user", "u"}, {"assistant", "a"}}));
    EXPECT_EQ(decoded(sample.ids), "[user]u<eos>[assistant]a<eos>");
    EXPECT_EQ(target_text(sample), "a<eos>");
}

TEST_F(ChatRows, BadMessagesAreNamed) {
    EXPECT_ERROR(read(R"({"messages": "hi"})"), "rows.jsonl:1: messages", "must be JSON");
    EXPECT_ERROR(read(R"({"messages": {"role": "user"}})"),
                 "rows.jsonl:1: messages must be an array");
    EXPECT_ERROR(read(R"({"messages": [{"role": "user"}]})"), "rows.jsonl:1: messages[0]",
                 "no \"content\"");
    EXPECT_ERROR(read(R"({"messages": [{"content": "x"}]})"), "no \"role\"");
    EXPECT_ERROR(read(R"({"messages": ["x"]})"), "messages[0] must be an object");
    EXPECT_ERROR(read(R"({"messages": [{"role": "user", "content": 3}]})"),
                 "messages[0]: content must be a text");
    EXPECT_ERROR(read(R"({"messages": [{"role": "assistant", "content": "x", "weight": 0.5}]})"),
                 "messages[0]: weight must be 0 or 1");
    EXPECT_ERROR(read(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})"),
                 "messages[0]: content has a part of the type \"image\"", "only texts");
}

TEST_F(ChatRows, TemplatesThatRefuseOrAreMissing) {
    setup_.chat_template = "{{ raise_exception('roles must alternate') }}";
    const std::string line = row({{"user", "u"}, {"assistant", "a"}});
    EXPECT_ERROR(read("\n" + line), "rows.jsonl:2: ", "roles must alternate");
    config_.on_error = "skip";
    EXPECT_ERROR(read(line), "none of its 1 rows can be read", "roles must alternate");
    config_.on_error = "fail";
    setup_.chat_template = "";
    EXPECT_ERROR(read(line), "rows.jsonl:1: ", "no chat template");
    setup_.chat_template = "{% nonsense %}";
    EXPECT_ERROR(read(line), "rows.jsonl:1: ", "the tokenizer's chat template");
    // Rows that are no chats do not need it.
    EXPECT_EQ(decoded(read_one(R"({"text": "ab"})").ids), "ab<eos>");
}

// CASES 8, for each template family among the reference data: at most one BOS, and targets are whole
// answers with one token more.
TEST_F(ChatRows, PublishedTemplatesHaveOneBosAndWholeAnswers) {
    GARAM_REQUIRE_DATA("golden/chat");
    const auto folder = testing::data_dir() / "golden/chat";
    int rendered = 0;
    for (const std::string& name : testing::files_in(folder, ".jinja")) {
        SCOPED_TRACE(name);
        setup_ = {};
        setup_.adds_bos = true;
        setup_.bos = name.starts_with("exaone") ? "[BOS]" : "<|begin_of_text|>";
        setup_.specials = {"<|begin_of_text|>",
                           "[BOS]",
                           "<eos>",
                           "<|eot_id|>",
                           "<|im_start|>",
                           "<|im_end|>",
                           "[|system|]",
                           "[|endofturn|]",
                           "[|user|]",
                           "[|assistant|]",
                           "<|start_header_id|>",
                           "<|end_header_id|>"};
        setup_.chat_template = testing::read_file(folder / name);
        try {
            ChatTemplate(setup_.chat_template, name);
        } catch (const Error& error) {
            RecordProperty("not_supported_" + name, error.what());
            continue;
        }
        ++rendered;
        const Sample sample = read_one(row({{"system", "s"},
                                            {"user", "u"},
                                            {"assistant", "one"},
                                            {"user", "v"},
                                            {"assistant", "two"}}));
        const std::string targets = target_text(sample);
        const std::size_t bar = targets.find('|', targets.find("one") + 3);
        EXPECT_TRUE(targets.starts_with("one<") || targets.starts_with("one[")) << targets;
        EXPECT_NE(targets.find("two"), std::string::npos) << targets;
        EXPECT_NE(bar, std::string::npos) << targets;
        EXPECT_EQ(sample.targets(), 2 * (3 + 1)) << targets;
        const auto bos = ByteTokenizer(setup_).bos_id();
        EXPECT_LE(std::count(sample.ids.begin(), sample.ids.end(), *bos), 1);
    }
    EXPECT_GT(rendered, 0);
}

}  // namespace
}  // namespace garam
