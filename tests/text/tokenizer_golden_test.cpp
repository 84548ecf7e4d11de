// Ids and texts of the reference implementations, for every vector file that the reference data holds.
#include <gtest/gtest.h>

#include <sstream>

#include "garam/core/json.h"
#include "garam/text/tokenizer.h"
#include "testing/test_data.h"
#include "tokenizer_data.h"

namespace garam {
namespace {

using testing::data_dir;
using testing::read_file;
using Ids = std::vector<std::int32_t>;

Ids ids_of(const Json& list) {
    Ids ids;
    for (const Json& id : list.array())
        ids.push_back(static_cast<std::int32_t>(id.integer()));
    return ids;
}

std::vector<Json> lines_of(const std::filesystem::path& path) {
    std::vector<Json> rows;
    std::istringstream lines(read_file(path));
    for (std::string line; std::getline(lines, line);)
        if (!line.empty()) rows.push_back(Json::parse(line, path.string()));
    return rows;
}

class TokenizerVectors : public ::testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TokenizerVectors);

TEST_P(TokenizerVectors, IdsAndTexts) {
    const std::string& name = GetParam();
    GARAM_SKIP_UNSUPPORTED(const Tokenizer* tokenizer, testing::reference_tokenizer(name));
    if (tokenizer == nullptr) GTEST_SKIP() << "no tokenizer files for " << name;
    std::size_t rows = 0;
    for (const Json& row : lines_of(data_dir() / "golden/tokenizers" / (name + ".jsonl"))) {
        const std::string& text = row.at("text").string();
        SCOPED_TRACE(text);
        ++rows;
        if (const Json* ids = row.find("ids")) {
            const Encoding got = tokenizer->encode(text, {});
            EXPECT_EQ(got.ids, ids_of(*ids));
            EXPECT_EQ(got.ids.size(), got.spans.size());
            EXPECT_EQ(tokenizer->decode(ids_of(*ids), false), row.at("decoded").string());
        }
        if (const Json* ids = row.find("ids_with_special")) {
            EXPECT_EQ(tokenizer->encode_ids(text, {.add_special_tokens = true}), ids_of(*ids));
            if (row.find("ids") == nullptr) {
                EXPECT_EQ(tokenizer->decode(ids_of(*ids), true), row.at("decoded").string());
            }
        } else {
            EXPECT_EQ(tokenizer->encode_ids(text, {.add_special_tokens = true}),
                      ids_of(row.at("ids")));
        }
        if (const Json* tokens = row.find("tokens")) {
            std::vector<std::string> got;
            std::vector<std::string> want;
            for (const std::int32_t id : tokenizer->encode_ids(text, {}))
                got.push_back(tokenizer->token_of(id));
            for (const Json& token : tokens->array())
                want.push_back(token.string());
            EXPECT_EQ(got, want);
        }
    }
    EXPECT_GT(rows, 0u);
}

INSTANTIATE_TEST_SUITE_P(Golden, TokenizerVectors,
                         ::testing::ValuesIn(testing::golden_tokenizers()), testing::case_name);

// Texts between "__ggml_vocab_test__" lines; ids a line.
TEST(TokenizerGolden, LlamaCppVectors) {
    GARAM_REQUIRE_DATA("tokenizers/ggml-vectors");
    const std::vector<std::pair<std::string, std::string>> cases = {{"llama-bpe", "llama-3.1"},
                                                                    {"qwen2", "qwen2.5"}};
    for (const auto& [vectors, name] : cases) {
        SCOPED_TRACE(vectors);
        const std::filesystem::path base =
            data_dir() / "tokenizers/ggml-vectors" / ("ggml-vocab-" + vectors + ".gguf");
        const Tokenizer* tokenizer = testing::reference_tokenizer(name);
        ASSERT_NE(tokenizer, nullptr);
        const std::string input = read_file(base.string() + ".inp");
        std::istringstream output(read_file(base.string() + ".out"));
        const std::string mark = "\n__ggml_vocab_test__\n";
        std::size_t count = 0;
        for (std::size_t at = 0; at < input.size(); ++count) {
            const std::size_t end = std::min(input.find(mark, at), input.size());
            const std::string text = input.substr(at, end - at);
            at = end + mark.size();
            SCOPED_TRACE(text);
            std::string line;
            ASSERT_TRUE(std::getline(output, line));
            std::istringstream numbers(line);
            Ids want;
            for (std::int32_t id; numbers >> id;)
                want.push_back(id);
            EXPECT_EQ(tokenizer->encode_ids(text, {}), want);
        }
        EXPECT_GE(count, 40u);
    }
}

TEST(TokenizerGolden, LongTexts) {
    GARAM_REQUIRE_DATA("tokenizers/vectors");
    const std::pair<const char*, const char*> cases[] = {{"gpt2_encoded_tokens.json", "gpt2"},
                                                         {"llama_3.2_encoded.json", "llama-3.1"},
                                                         {"llama_encoded.json", "llama-2"}};
    for (const auto& [file, name] : cases) {
        SCOPED_TRACE(file);
        const Json row = Json::parse_file(data_dir() / "tokenizers/vectors" / file);
        const Tokenizer* tokenizer = testing::reference_tokenizer(name);
        ASSERT_NE(tokenizer, nullptr);
        const std::string& text = row.at("text").string();
        const Ids ids = tokenizer->encode_ids(text, {});
        std::vector<std::string> tokens;
        std::vector<std::string> want;
        for (const std::int32_t id : ids)
            tokens.push_back(tokenizer->token_of(id));
        for (const Json& token : row.at("bpe_tokens").array())
            want.push_back(token.string());
        EXPECT_EQ(tokens, want);
        EXPECT_EQ(tokenizer->encode_ids(text, {.add_special_tokens = true}),
                  ids_of(row.at("token_ids")));
        EXPECT_EQ(tokenizer->decode(ids, true), text);
    }
}

}  // namespace
}  // namespace garam
