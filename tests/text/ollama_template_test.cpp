#include "garam/text/ollama_template.h"

#include <gtest/gtest.h>

#include "testing/test_data.h"
#include "tokenizer_data.h"
#include "toy_tokenizer.h"

namespace garam {
namespace {

constexpr const char* kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|im_start|>assistant\\n' }}{% endif %}";

std::unique_ptr<Tokenizer> with_template(const std::string& chat_template, bool adds_bos = false) {
    Json config;
    config.set("eos_token", "<|im_end|>");
    if (adds_bos) config.set("bos_token", "<s>");
    config.set("chat_template", chat_template);
    return testing::load(
        testing::byte_level_json({}, {"<|im_start|>", "<|im_end|>", "<s>"}, adds_bos ? "<s>" : ""),
        config);
}

TEST(OllamaTemplate, ChatMl) {
    const auto made = ollama_template(*with_template(kChatMl));
    ASSERT_TRUE(made);
    EXPECT_EQ(made->go_template,
              "{{ range .Messages }}{{ if eq .Role \"system\" }}<|im_start|>system\n"
              "{{ .Content }}<|im_end|>\n"
              "{{ else if eq .Role \"user\" }}<|im_start|>user\n"
              "{{ .Content }}<|im_end|>\n"
              "{{ else if eq .Role \"assistant\" }}<|im_start|>assistant\n"
              "{{ .Content }}<|im_end|>\n"
              "{{ end }}{{ end }}<|im_start|>assistant\n");
    EXPECT_EQ(made->stops, (std::vector<std::string>{"<|im_end|>", "<|im_start|>"}));
    EXPECT_EQ(ollama_modelfile("./m.gguf", "./a.gguf", made),
              "FROM ./m.gguf\nADAPTER ./a.gguf\nTEMPLATE \"\"\"" + made->go_template +
                  "\"\"\"\nPARAMETER stop \"<|im_end|>\"\nPARAMETER stop \"<|im_start|>\"\n");
    EXPECT_EQ(ollama_modelfile("./m.gguf", "", std::nullopt), "FROM ./m.gguf\n");
}

TEST(OllamaTemplate, ADefaultSystemMessageIsFound) {
    const auto made = ollama_template(*with_template(
        "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' "
        "}}{% endif %}" +
        std::string(kChatMl)));
    ASSERT_TRUE(made);
    EXPECT_TRUE(
        made->go_template.starts_with("{{ if not .System }}<|im_start|>system\nBe "
                                      "kind.<|im_end|>\n{{ end }}{{ range .Messages }}"));
}

TEST(OllamaTemplate, WithoutSystemRoleAndWithBos) {
    const auto made = ollama_template(*with_template(
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') "
        "}}{% endif %}" +
            std::string(kChatMl),
        true));
    ASSERT_TRUE(made);
    EXPECT_EQ(made->go_template.find("system"), std::string::npos);
    // Ollama adds BOS itself.
    EXPECT_TRUE(made->go_template.starts_with("{{ range .Messages }}"));
}

TEST(OllamaTemplate, WhatIsMoreThanWordsAroundMessagesIsLeftOut) {
    EXPECT_FALSE(ollama_template(*with_template("")));
    // Trims, counts, or raises.
    EXPECT_FALSE(ollama_template(*with_template(
        "{% for message in messages %}{{ loop.index }}{{ message['content'] }}{% endfor %}")));
    EXPECT_FALSE(ollama_template(*with_template("{{ raise_exception('never') }}")));
    EXPECT_FALSE(ollama_template(*with_template("{{ messages[0]['content'] }}")));
    EXPECT_FALSE(ollama_template(*with_template(
        "{% for message in messages %}{{ '{{' + message['role'] + '}}' + message['content'] }}{% "
        "endfor %}")));
}

TEST(OllamaTemplate, PublishedTemplates) {
    for (const char* name : {"qwen2.5", "exaone-3.5"}) {
        const Tokenizer* tokenizer = testing::reference_tokenizer(name);
        if (tokenizer == nullptr) GTEST_SKIP() << "reference data is not here: " << name;
        if (tokenizer->chat_template().empty()) continue;
        EXPECT_TRUE(ollama_template(*tokenizer)) << name;
    }
}

}  // namespace
}  // namespace garam
