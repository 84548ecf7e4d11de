#include "garam/train/data_keys.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "garam/core/error.h"
#include "garam/train/job_config.h"

namespace garam {
namespace {

// The message that the changed config is refused with; "" when it is accepted.
std::string refusal(const std::function<void(DataConfig&)>& change) {
    DataConfig config;
    config.train = {"a.jsonl"};
    change(config);
    try {
        validate(config);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}
#define EXPECT_REFUSED(part, ...)                                                       \
    EXPECT_NE(refusal([](DataConfig& c) { __VA_ARGS__ }).find(part), std::string::npos) \
        << refusal([](DataConfig& c) { __VA_ARGS__ })

TEST(DataKeys, ThatGoTogetherAreAccepted) {
    EXPECT_EQ(refusal([](DataConfig&) {}), "");
    EXPECT_EQ(refusal([](DataConfig& c) {
                  c.train = {"a", "b"};
                  c.weights = {1, 0.5};
                  c.validation_split = "test";
                  c.columns = {{"prompt", "q"}, {"completion", "a"}, {"role", "who"}};
                  c.csv_delimiter = "tab";
                  c.csv_quote = "";
              }),
              "");
    EXPECT_EQ(refusal([](DataConfig& c) {
                  c.train = {"a.en", "a.de"};
                  c.zip = {"en", "de"};
                  c.weights = {2};
                  c.csv_delimiter = "\\t";
                  c.validation_fraction = 0.1;
              }),
              "");
}

TEST(DataKeys, ThatContradictEachOtherAreNamed) {
    EXPECT_REFUSED("data.train is not set", c.train = {};);
    EXPECT_REFUSED("data.train: a name is empty", c.train = {"a", ""};);
    EXPECT_REFUSED("data.validation: a name is empty", c.validation = {""};);
    EXPECT_REFUSED("data.weights has 2 numbers for 1 source of rows", c.weights = {1, 2};);
    EXPECT_REFUSED("data.validation_fraction and data.validation", c.validation_fraction = 0.1;
                   c.validation = {"b"};);
    EXPECT_REFUSED("both set: keep one", c.validation_fraction = 0.1; c.validation_split = "test";);
    EXPECT_REFUSED("data.zip names 2 columns, but data.train has 1 files", c.zip = {"a", "b"};);
    EXPECT_REFUSED("data.validation has 1 files", c.train = {"a", "b"}; c.zip = {"a", "b"};
                   c.validation = {"c"};);
    EXPECT_REFUSED("did you mean data.columns.prompt?", c.columns = {{"promt", "q"}};);
    EXPECT_REFUSED("data.columns.question: no such name", c.columns = {{"question", "prompt"}};);
    EXPECT_REFUSED("data.columns.prompt must name a column", c.columns = {{"prompt", ""}};);
    EXPECT_REFUSED("neither one character nor tab", c.csv_delimiter = "::";);
    EXPECT_REFUSED("data.csv_quote", c.csv_quote = "''";);
    EXPECT_REFUSED("data.cache=false", c.cache = false; c.cache_dir = "x";);
}

TEST(DataKeys, AreReadAsTheyAreWritten) {
    JobConfig job;
    ConfigTable table = describe(job);
    table.set_override("data.train=a.jsonl");
    EXPECT_EQ(job.data.train, std::vector<std::string>{"a.jsonl"});
    table.set_override("data.train=[a.jsonl, b.csv]");
    table.set_override("data.weights=1,0.25");
    table.set_override("data.columns.prompt=question");
    table.set_override("data.label_names=[ham, spam]");
    table.set_override("data.chat_template_kwargs.enable_thinking=false");
    table.set_override("data.csv_quote=");
    table.set_override("data.validation_fraction=0.1");
    EXPECT_EQ(job.data.train.size(), 2u);
    EXPECT_EQ(job.data.columns, (TextMap{{"prompt", "question"}}));
    EXPECT_EQ(job.data.label_names, (TextMap{{"0", "ham"}, {"1", "spam"}}));
    EXPECT_EQ(job.data.chat_template_kwargs, (TextMap{{"enable_thinking", "false"}}));
    EXPECT_EQ(job.data.csv_quote, "");
    EXPECT_TRUE(job.data.evaluates());
    for (const auto& [argument, part] :
         {std::pair{"data.text_unit=word", "none of"}, std::pair{"data.format=xlsx", "none of"},
          std::pair{"data.validation_fraction=1", "out of range"},
          std::pair{"data.dataset_name=x", "data.train"},
          std::pair{"data.val_set_size=0.1", "data.validation_fraction"},
          std::pair{"data.streaming=true", "always streamed"},
          std::pair{"data.field_messages=x", "data.columns.messages"},
          std::pair{"data.colums=x", "did you mean data.columns?"}}) {
        try {
            table.set_override(argument);
            ADD_FAILURE() << argument;
        } catch (const Error& error) {
            EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
        }
    }
}

}  // namespace
}  // namespace garam
