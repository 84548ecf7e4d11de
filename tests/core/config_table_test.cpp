#include "garam/core/config_table.h"

#include <gtest/gtest.h>

#include <chrono>

#include "garam/core/error.h"

namespace garam {
namespace {

struct Settings {
    std::string model;
    bool packing = false;
    int threads = 0;
    std::int64_t seed = 42;
    double learning_rate = 2e-5;
    double dropout = 0;
    std::string scheduler = "linear";
    std::vector<std::string> targets = {"q_proj", "v_proj"};
    std::optional<bool> bf16;
    std::optional<std::int64_t> limit;
    std::optional<double> ratio;
    std::optional<std::string> note;
};

ConfigTable table_of(Settings& s) {
    ConfigTable table;
    table.add("model", &s.model, "Base model.");
    table.add("train.packing", &s.packing, "Packs.");
    table.add("train.threads", &s.threads, "Threads.", at_least(0));
    table.add("train.seed", &s.seed, "Seed.", at_least(0));
    table.add("train.learning_rate", &s.learning_rate, "Peak rate.", above(0));
    table.add("train.dropout", &s.dropout, "Dropout.", from_to_below(0, 1));
    table
        .add_choice("train.scheduler", s.scheduler, {"linear", "cosine", "constant"},
                    "The schedule.")
        .refused = {{"polynomial", "use linear"}};
    table.add("train.targets", &s.targets, "Targets.");
    table.add("train.bf16", &s.bf16, "bf16.").call_null("auto");
    table.add("train.limit", &s.limit, "Limit.", at_least(1));
    table.add("train.ratio", &s.ratio, "Ratio.", between(0, 1));
    table.add("train.note", &s.note, "Note.");
    table.refuse("fp16", "use train.bf16");
    return table;
}

// The message of the Error that setting key=text gives; "" when it is accepted.
std::string refusal(const std::string& key, const ConfigText& text) {
    Settings settings;
    ConfigTable table = table_of(settings);
    try {
        table.set(key, text, "a.yaml:3");
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}
std::string refusal(const std::string& key, const std::string& text) {
    return refusal(key, ConfigText{ConfigText::Kind::plain, text, {}});
}

TEST(ConfigTable, ReadsEveryType) {
    Settings s;
    ConfigTable table = table_of(s);
    for (const char* argument : {"model=some/folder=x", "train.packing=true", "train.threads=4",
                                 "train.seed=9223372036854775807", "train.learning_rate=1e-4",
                                 "train.dropout=.05", "train.scheduler=cosine", "train.bf16=false",
                                 "train.limit=+3", "train.ratio=1", "train.note="}) {
        table.set_override(argument);
    }
    EXPECT_EQ(s.model, "some/folder=x");
    EXPECT_TRUE(s.packing);
    EXPECT_EQ(s.threads, 4);
    EXPECT_EQ(s.seed, INT64_MAX);
    EXPECT_EQ(s.learning_rate, 1e-4);
    EXPECT_EQ(s.dropout, 0.05);
    EXPECT_EQ(s.scheduler, "cosine");
    EXPECT_EQ(s.bf16, false);
    EXPECT_EQ(s.limit, 3);
    EXPECT_EQ(s.ratio, 1.0);
    EXPECT_EQ(s.note, "");
    EXPECT_EQ(table.find("train.limit")->source, "command line");
    EXPECT_EQ(table.find("train.limit")->default_text, "null");
    EXPECT_EQ(table.find("train.bf16")->default_text, "auto");
}

TEST(ConfigTable, ReadsLists) {
    using Strings = std::vector<std::string>;
    Settings s;
    ConfigTable table = table_of(s);
    table.set_override("train.targets=[ a , \"b\" ]");
    EXPECT_EQ(s.targets, (Strings{"a", "b"}));
    table.set_override("train.targets=a,b");
    EXPECT_EQ(s.targets, (Strings{"a", "b"}));
    table.set_override("train.targets=all-linear");
    EXPECT_EQ(s.targets, Strings{"all-linear"});
    table.set_override("train.targets=[]");
    EXPECT_EQ(s.targets, Strings{});
    table.set("train.targets", ConfigText{ConfigText::Kind::list, "", {"x, y", "z"}}, "f:1");
    EXPECT_EQ(s.targets, (Strings{"x, y", "z"}));
    EXPECT_NE(refusal("train.targets", "a,,b"), "");
    EXPECT_NE(refusal("train.targets", "[a, b"), "");
    EXPECT_NE(refusal("train.targets", "a,"), "");
}

TEST(ConfigTable, MapsOfTexts) {
    TextMap columns = {{"text", "text"}};
    std::vector<double> weights;
    ConfigTable table;
    table.add("data.columns", &columns, "Columns.");
    table.add("data.weights", &weights, "Weights.", above(0));
    const auto refused = [&](const std::string& key, const std::string& text) {
        try {
            table.set(key, text, "a.yaml:3");
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    EXPECT_EQ(table.find("data.columns")->type(), "map of names to texts");
    EXPECT_EQ(table.find("data.columns")->default_text, "{text: text}");
    table.set_override("data.columns={prompt: question, completion: 'a, b: c', x: \"d\\\"e}\"}");
    EXPECT_EQ(columns,
              (TextMap{{"prompt", "question"}, {"completion", "a, b: c"}, {"x", "d\"e}"}}));
    // What is written reads back, whatever it holds.
    const TextMap before = columns;
    const std::string written = table.find("data.columns")->value_text();
    table.set("data.columns", written, "again");
    EXPECT_EQ(columns, before);
    table.reset("data.columns");
    EXPECT_EQ(columns, (TextMap{{"text", "text"}}));
    // One a line: the first takes the place of the default.
    table.set("data.columns.prompt", "ask me", "a.yaml:4");
    table.set("data.columns.prompt", "ask", "a.yaml:5");
    table.set("data.columns.1", "true", "a.yaml:6");
    EXPECT_EQ(columns, (TextMap{{"prompt", "ask"}, {"1", "true"}}));
    EXPECT_NE(table.to_yaml(true).find("columns: {prompt: ask, \"1\": \"true\"}"),
              std::string::npos)
        << table.to_yaml(true);
    // A list counts from 0.
    table.set("data.columns", ConfigText{ConfigText::Kind::list, "", {"ham", "spam"}}, "a.yaml:7");
    EXPECT_EQ(columns, (TextMap{{"0", "ham"}, {"1", "spam"}}));
    table.set_override("data.columns=[no, yes]");
    EXPECT_EQ(columns, (TextMap{{"0", "no"}, {"1", "yes"}}));
    table.set("data.columns", ConfigText{ConfigText::Kind::null, "", {}}, "a.yaml:8");
    EXPECT_TRUE(columns.empty());
    EXPECT_NE(refused("data.columns", "question").find("is no map"), std::string::npos);
    EXPECT_NE(refused("data.columns", "{a, b}").find("'a' is not of the form name: text"),
              std::string::npos);
    EXPECT_NE(refused("data.columns", "{: b}").find("not of the form"), std::string::npos);
    EXPECT_NE(refused("data.columns", "{a: \"\\q\"}").find("a quoted text"), std::string::npos);
    EXPECT_TRUE(columns.empty());

    table.set_override("data.weights=1, 0.5");
    EXPECT_EQ(weights, (std::vector<double>{1, 0.5}));
    EXPECT_EQ(table.find("data.weights")->value_text(), "[1.0, 0.5]");
    EXPECT_EQ(table.find("data.weights")->type(), "list of floats > 0");
    EXPECT_NE(refused("data.weights", "[1, 0]").find("out of range"), std::string::npos);
}

TEST(ConfigTable, ReadsAbsentValues) {
    Settings s;
    s.bf16 = true;
    s.limit = 5;
    ConfigTable table = table_of(s);
    table.set_override("train.bf16=auto");
    EXPECT_FALSE(s.bf16.has_value());
    table.set("train.limit", ConfigText{ConfigText::Kind::null, "", {}}, "f:1");
    EXPECT_FALSE(s.limit.has_value());
    // Quoted text is text.
    table.set("train.note", ConfigText{ConfigText::Kind::quoted, "null", {}}, "f:1");
    EXPECT_EQ(s.note, "null");
    table.set_override("train.note=null");
    EXPECT_FALSE(s.note.has_value());
    EXPECT_NE(refusal("model", "null").find("no value is given"), std::string::npos);
    EXPECT_NE(refusal("train.seed", ConfigText{ConfigText::Kind::null, "", {}}), "");
}

TEST(ConfigTable, RefusesWhatIsNotExactlyOfTheType) {
    for (const auto& [key, text] : std::vector<std::pair<const char*, const char*>>{
             {"train.packing", "yes"},         {"train.packing", "tRUE"},
             {"train.packing", "1"},           {"train.packing", ""},
             {"train.threads", "4.0"},         {"train.threads", "4k"},
             {"train.threads", "99999999999"}, {"train.threads", " 4"},
             {"train.threads", "-1"},          {"train.seed", "9223372036854775808"},
             {"train.seed", "0x10"},           {"train.seed", "+-1"},
             {"train.learning_rate", "1e-4f"}, {"train.learning_rate", "nan"},
             {"train.learning_rate", "inf"},   {"train.learning_rate", "1e999"},
             {"train.learning_rate", "0"},     {"train.dropout", "1"},
             {"train.ratio", "1.0001"},        {"train.scheduler", "Linear"},
             {"train.scheduler", ""},          {"train.limit", "0"}}) {
        EXPECT_NE(refusal(key, text), "") << key << "=" << text;
    }
    EXPECT_NE(refusal("train.seed", ConfigText{ConfigText::Kind::list, "", {"1"}}), "");
}

// Configs of Python programs are full of them, and YAML means the same by them.
TEST(ConfigTable, ReadsTruthAsPythonAndYamlWriteIt) {
    bool packing = false;
    std::string kept = "false";
    std::string name = "auto";
    std::string merge = "auto";
    ConfigTable table;
    table.add("packing", &packing, "A bool.");
    table.add("kept", &kept, "False, true, or a name.");
    table.add("name", &name, "A name.");
    table.add_choice("merge", merge, {"auto", "false"}, "Truth that is not the default.");
    for (const auto& [text, value] : std::vector<std::pair<const char*, bool>>{
             {"True", true}, {"False", false}, {"TRUE", true}, {"FALSE", false}}) {
        table.set_override(std::string("packing=") + text);
        table.set_override(std::string("kept=") + text);
        EXPECT_EQ(packing, value) << text;
        EXPECT_EQ(kept, value ? "true" : "false") << text;
    }
    table.set("kept", ConfigText{ConfigText::Kind::quoted, "True", {}}, "f:1");
    EXPECT_EQ(kept, "True") << "quoted text is text";
    table.set_override("name=True");
    EXPECT_EQ(name, "True") << "a name may be any";
    table.set_override("merge=False");
    EXPECT_EQ(merge, "false");
    EXPECT_THROW(table.set_override("merge=True"), Error);
}

TEST(ConfigTable, ErrorsNameSourceKeyValueAndWhatIsAllowed) {
    EXPECT_EQ(refusal("train.dropout", "1"),
              "a.yaml:3: train.dropout: 1 is out of range, it must be in [0, 1)");
    EXPECT_EQ(refusal("train.learning_rate", "-1"),
              "a.yaml:3: train.learning_rate: -1 is out of range, it must be > 0");
    EXPECT_EQ(refusal("train.bf16", "maybe"),
              "a.yaml:3: train.bf16: 'maybe' is not true or false or auto");
    EXPECT_EQ(
        refusal("train.scheduler", "cosin"),
        "a.yaml:3: train.scheduler: 'cosin' is none of: linear, cosine, constant; did you mean "
        "cosine?");
    EXPECT_EQ(refusal("train.scheduler", "polynomial"),
              "a.yaml:3: train.scheduler: polynomial is not supported: use linear");
}

TEST(ConfigTable, KeysBelowARefusedOneAreRefusedWithItsAdvice) {
    for (const char* key : {"fp16.enabled", "train.fp16.loss_scale.window"}) {
        const std::string error = refusal(key, "1");
        EXPECT_NE(error.find("fp16 is not supported: use train.bf16"), std::string::npos) << error;
    }
    // But where the name itself is known, that is told.
    EXPECT_NE(refusal("fp16.packing", "true").find("did you mean train.packing?"),
              std::string::npos);
}

TEST(ConfigTable, AChoiceMayHaveANumber) {
    std::string start = "true";
    ConfigTable table;
    table.add_choice("start", start, {"true", "rounds", "rounds_N"}, "The start.");
    table.set("start", "rounds_16", "test");
    EXPECT_EQ(start, "rounds_16");
    table.set("start", "rounds", "test");
    EXPECT_EQ(start, "rounds");
    for (const char* text : {"rounds_", "rounds_N", "rounds_-1", "rounds_1.5", "rounds_1234567890"})
        EXPECT_THROW(table.set("start", text, "test"), Error) << text;
}

TEST(ConfigTable, AFailedSetChangesNothing) {
    Settings s;
    ConfigTable table = table_of(s);
    EXPECT_THROW(table.set_override("train.dropout=2"), Error);
    EXPECT_THROW(table.set_override("train.targets=a,,b"), Error);
    EXPECT_EQ(s.dropout, 0.0);
    EXPECT_EQ(s.targets.size(), 2u);
    EXPECT_EQ(table.find("train.dropout")->source, "");
}

TEST(ConfigTable, SuggestsTheNearestKey) {
    const auto suggests = [](const std::string& key, const std::string& near) {
        EXPECT_EQ(refusal(key, "1"),
                  "a.yaml:3: unknown key " + key + ": did you mean " + near + "?");
    };
    suggests("train.learning_rte", "train.learning_rate");
    suggests("train.learnign_rate", "train.learning_rate");
    suggests("learning_rate", "train.learning_rate");
    suggests("lerning_rate", "train.learning_rate");
    suggests("lora.dropout", "train.dropout");
    suggests("trian.seed", "train.seed");
    suggests("modle", "model");
    EXPECT_EQ(refusal("banana", "1"),
              "a.yaml:3: unknown key banana: `garam config` lists the keys");
}

TEST(ConfigTable, OfALongKeyNoPartIsLookedUp) {
    const std::string key(2'000'000, '.');
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(refusal(key, "1"),
              "a.yaml:3: unknown key " + key + ": `garam config` lists the keys");
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(30));
}

TEST(ConfigTable, RefusesKeysOfOtherToolsInAnySection) {
    for (const char* key : {"fp16", "train.fp16", "lora.fp16"})
        EXPECT_EQ(refusal(key, "true"),
                  "a.yaml:3: " + std::string(key) + " is not supported: use train.bf16");
}

TEST(ConfigTable, KnowsSectionsFromKeys) {
    EXPECT_EQ(refusal("train", ConfigText{ConfigText::Kind::null, "", {}}), "");
    EXPECT_EQ(
        refusal("train", "5"),
        "a.yaml:3: train is a section, not a key: set one of its keys, such as train.packing");
}

TEST(ConfigTable, WritesTypesForPeople) {
    Settings s;
    const ConfigTable table = table_of(s);
    EXPECT_EQ(table.find("train.dropout")->type(), "float in [0, 1)");
    EXPECT_EQ(table.find("train.limit")->type(), "int >= 1 or null");
    EXPECT_EQ(table.find("train.bf16")->type(), "bool or auto");
    EXPECT_EQ(table.find("train.scheduler")->type(), "one of: linear, cosine, constant");
    EXPECT_EQ(table.find("train.targets")->type(), "list of strings");
}

TEST(ConfigTable, WritesYaml) {
    Settings s;
    s.model = "C: my model";
    s.note = "true";
    s.learning_rate = 0.1;
    EXPECT_EQ(table_of(s).to_yaml(),
              "model: \"C: my model\"\n"
              "train:\n"
              "  packing: false\n"
              "  threads: 0\n"
              "  seed: 42\n"
              "  learning_rate: 0.1\n"
              "  dropout: 0.0\n"
              "  scheduler: linear\n"
              "  targets: [q_proj, v_proj]\n"
              "  bf16: auto\n"
              "  limit: null\n"
              "  ratio: null\n"
              "  note: \"true\"\n");
    s.learning_rate = 2e-5;
    EXPECT_NE(table_of(s).to_yaml().find("learning_rate: 2.0e-05\n"), std::string::npos);
}

TEST(ConfigTable, WritesSectionsWithinSections) {
    Settings s;
    ConfigTable table;
    table.add("model", &s.model, "");
    table.add("train.seed", &s.seed, "");
    table.add("train.kwargs.ratio", &s.ratio, "");
    table.add("train.kwargs.limit", &s.limit, "");
    table.add("other.deep.note", &s.note, "");
    table.set("train.kwargs.ratio", "0.5", "test");
    table.set("train.kwargs", ConfigText{ConfigText::Kind::null, "", {}}, "test");  // "kwargs: {}"
    const std::string yaml = table.to_yaml();
    EXPECT_EQ(
        yaml.substr(yaml.find("train:")),
        "train:\n  seed: " + std::to_string(s.seed) +
            "\n  kwargs:\n    ratio: 0.5\n    limit: null\nother:\n  deep:\n    note: null\n");
}

TEST(ConfigTable, ScatteredOrRepeatedKeysAreBugs) {
    Settings s;
    ConfigTable table = table_of(s);
    EXPECT_THROW(table.add("device", &s.model, ""), Bug);  // after a section began
    EXPECT_THROW(table.add("train.seed", &s.seed, ""), Bug);
}

TEST(ConfigTable, TellsOverridesFromFiles) {
    EXPECT_TRUE(is_override("lora.r=8"));
    EXPECT_TRUE(is_override("lora.r="));
    EXPECT_FALSE(is_override("spam.yaml"));
    EXPECT_FALSE(is_override("runs/a=b.yaml"));
    EXPECT_FALSE(is_override("=8"));
}

TEST(EditDistance, CountsSwapsOnce) {
    EXPECT_EQ(edit_distance("", "abc"), 3);
    EXPECT_EQ(edit_distance("abc", ""), 3);
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
    EXPECT_EQ(edit_distance("ab", "ba"), 1);
    EXPECT_EQ(edit_distance("ca", "abc"), 3);  // optimal string alignment; unrestricted would be 2
    EXPECT_EQ(edit_distance("same", "same"), 0);
}

}  // namespace
}  // namespace garam
