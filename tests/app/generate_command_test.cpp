// `garam generate` as a user runs it.
#include <gtest/gtest.h>

#include "app/run_garam.h"
#include "garam/core/json.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::data_dir;
using testing::run_garam;
using testing::run_shell;
using testing::RunResult;
using testing::TempDir;
using testing::write_tiny_model;

std::string stories() {
    return (data_dir() / "golden/stories260K-hf").string();
}

void expect_refused(const RunResult& result, const std::string& part) {
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(result.err.starts_with("garam: error: ")) << result.err;
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
}

TEST(GenerateStories, GreedyTextIsTheReferences) {
    GARAM_REQUIRE_DATA("golden/stories260K-hf");
    const RunResult result = run_garam(
        {"generate", stories(), "--prompt", "", "--dtype", "f32", "--max-new-tokens", "257"});
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.err, "");
    // Both end with the line end that closes the output.
    EXPECT_EQ(result.out, testing::read_file(data_dir() / "stories260K/greedy_257.txt"));
}

TEST(GenerateStories, AnAdapterChangesTheText) {
    GARAM_REQUIRE_DATA("golden/peft/case3_rslora_r8_all");
    const std::vector<std::string> plain = {"generate", stories(),          "--prompt",
                                            "Once",     "--json",           "--dtype",
                                            "f32",      "--max-new-tokens", "24"};
    std::vector<std::string> adapted = plain;
    adapted.insert(adapted.end(),
                   {"--adapter", (data_dir() / "golden/peft/case3_rslora_r8_all").string()});
    const RunResult one = run_garam(plain);
    const RunResult two = run_garam(adapted);
    ASSERT_EQ(one.status, 0) << one.err;
    ASSERT_EQ(two.status, 0) << two.err;
    EXPECT_EQ(two.err, "");  // its base's name is this model's: no warning
    const std::string text = Json::parse(one.out, "out").at("text").string();
    EXPECT_NE(text, Json::parse(two.out, "out").at("text").string());
    // The prompt's text goes on: its tokenizer would drop the space at the start of a text of its own.
    EXPECT_TRUE(text.starts_with(" upon a time, there was")) << text;
}

TEST(GenerateStories, AnAdapterOfAnotherBaseIsRefused) {
    GARAM_REQUIRE_DATA("golden/families/llama-llama3rope-tied/adapter");
    expect_refused(
        run_garam({"generate", stories(), "--prompt", "x", "--adapter",
                   (data_dir() / "golden/families/llama-llama3rope-tied/adapter").string()}),
        "another base");
}

class GenerateTest : public ::testing::Test {
  protected:
    void SetUp() override { write_tiny_model(dir_ / "model"); }
    RunResult generate(std::vector<std::string> more) const {
        std::vector<std::string> arguments = {"generate", (dir_ / "model").string(), "--dtype",
                                              "f32",      "--max-new-tokens",        "16"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run_garam(arguments);
    }
    TempDir dir_;
};

TEST_F(GenerateTest, ThePromptComesFromAnywhere) {
    const RunResult text = generate({"--prompt", "Hello"});
    ASSERT_EQ(text.status, 0) << text.err;
    EXPECT_TRUE(text.out.ends_with('\n'));
    dir_.write("prompt.txt", "Hello\n");
    EXPECT_EQ(generate({"--prompt-file", (dir_ / "prompt.txt").string()}).out, text.out);
    EXPECT_EQ(run_shell("echo Hello | \"$GARAM\" generate model --dtype f32 --max-new-tokens 16",
                        dir_.path().string())
                  .out,
              text.out);
}

TEST_F(GenerateTest, JsonSaysHowItWent) {
    const RunResult result = generate({"--prompt", "Hello", "--json"});
    ASSERT_EQ(result.status, 0) << result.err;
    const Json json = Json::parse(result.out, "out");
    EXPECT_EQ(json.at("text").string() + "\n", generate({"--prompt", "Hello"}).out);
    EXPECT_EQ(json.at("prompt_tokens").integer(), 5);
    const std::string reason = json.at("finish_reason").string();
    EXPECT_TRUE(reason == "length" || reason == "stop") << reason;
    EXPECT_EQ(static_cast<std::int64_t>(json.at("ids").array().size()),
              json.at("completion_tokens").integer());
    EXPECT_GT(json.at("timings").at("decode_seconds").number(), 0);
    EXPECT_GT(json.at("timings").at("prefill_tokens_per_second").number(), 0);
}

TEST_F(GenerateTest, ASeedFixesADraw) {
    const std::vector<std::string> drawn = {"--prompt", "Hello", "--temperature", "1.5", "--seed"};
    const auto with_seed = [&](const std::string& seed) {
        std::vector<std::string> arguments = drawn;
        arguments.push_back(seed);
        return generate(arguments).out;
    };
    EXPECT_EQ(with_seed("3"), with_seed("3"));
    EXPECT_NE(with_seed("3"), with_seed("4"));
    EXPECT_NE(with_seed("3"), generate({"--prompt", "Hello"}).out);
}

TEST_F(GenerateTest, StopStringsEndTheText) {
    const std::string whole =
        Json::parse(generate({"--prompt", "Hello", "--json"}).out, "out").at("text").string();
    // Two letters that are whole characters.
    std::size_t at = 0;
    const auto ascii = [&](std::size_t i) { return static_cast<unsigned char>(whole[i]) < 0x80; };
    while (at + 2 < whole.size() && !(ascii(at) && ascii(at + 1)))
        ++at;
    ASSERT_LT(at + 2, whole.size()) << whole;
    const std::string stop = whole.substr(at, 2);
    const RunResult result =
        generate({"--prompt", "Hello", "--json", "--stop", "never there", "--stop", stop});
    const Json json = Json::parse(result.out, "out");
    EXPECT_EQ(json.at("text").string(), whole.substr(0, whole.find(stop)));
    EXPECT_EQ(json.at("finish_reason").string(), "stop");
}

TEST_F(GenerateTest, ChatAppliesTheTemplate) {
    const RunResult chat = generate({"--chat", "--prompt", "Hello", "--system", "S", "--json"});
    ASSERT_EQ(chat.status, 0) << chat.err;
    const RunResult raw = generate({"--json", "--prompt",
                                    "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHello"
                                    "<|im_end|>\n<|im_start|>assistant\n"});
    EXPECT_EQ(Json::parse(chat.out, "out").at("text").string(),
              Json::parse(raw.out, "out").at("text").string());
    EXPECT_EQ(Json::parse(chat.out, "out").at("prompt_tokens").integer(),
              Json::parse(raw.out, "out").at("prompt_tokens").integer());
}

TEST_F(GenerateTest, MistakesAreOneLine) {
    expect_refused(run_garam({"generate", (dir_ / "absent").string(), "--prompt", "x"}), "absent");
    expect_refused(generate({"--prompt", "x", "--prompt-file", "y"}), "--prompt-file");
    expect_refused(generate({"--prompt", ""}), "empty");
    expect_refused(generate({"--prompt", "x", "--system", "S"}), "--chat");
    expect_refused(generate({"--prompt", "x", "--device", "gpu"}), "auto, cpu, cuda, cuda:N");
    expect_refused(generate({"--prompt", "x", "--dtype", "f64"}), "bf16");
    expect_refused(generate({"--prompt", "x", "--temperature", "-1"}), "temperature");
    expect_refused(generate({"--prompt", "x", "--top-p", "0"}), "top-p");
    expect_refused(generate({"--prompt", "x", "--stop", ""}), "stop");
    expect_refused(generate({"--prompt", "x", "--tempature", "1"}), "--temperature");
    expect_refused(generate({"--prompt", std::string(600, 'x')}), "512");
    expect_refused(generate({"--prompt-file", (dir_ / "absent").string()}), "absent");
}

}  // namespace
}  // namespace garam
