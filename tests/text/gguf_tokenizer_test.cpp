// Tokenizers from the keys of GGUF files.
#include <gtest/gtest.h>

#include <bit>

#include "garam/core/error.h"
#include "garam/core/json.h"
#include "garam/text/bpe_model.h"
#include "garam/text/sentencepiece_model.h"
#include "garam/text/tokenizer.h"
#include "garam/text/unicode.h"
#include "testing/test_data.h"
#include "tokenizer_data.h"
#include "toy_tokenizer.h"

namespace garam {
namespace {

using testing::TempDir;
using Ids = std::vector<std::int32_t>;

// A GGUF file (version 3) with keys and no tensors.
class GgufWriter {
  public:
    void text(std::string_view key, std::string_view value) {
        begin(key, 8);
        put_text(value);
    }
    void number(std::string_view key, std::uint32_t value) {
        begin(key, 4);
        put(value);
    }
    void flag(std::string_view key, bool value) {
        begin(key, 7);
        bytes_ += static_cast<char>(value);
    }
    void texts(std::string_view key, const std::vector<std::string>& values) {
        begin(key, 9);
        put(std::uint32_t{8});
        put(std::uint64_t{values.size()});
        for (const std::string& value : values)
            put_text(value);
    }
    void numbers(std::string_view key, const std::vector<std::int32_t>& values) {
        begin(key, 9);
        put(std::uint32_t{5});
        put(std::uint64_t{values.size()});
        for (const std::int32_t value : values)
            put(static_cast<std::uint32_t>(value));
    }
    void floats(std::string_view key, const std::vector<float>& values) {
        begin(key, 9);
        put(std::uint32_t{6});
        put(std::uint64_t{values.size()});
        for (const float value : values)
            put(std::bit_cast<std::uint32_t>(value));
    }
    std::filesystem::path write(const TempDir& folder) const {
        GgufWriter file;
        file.bytes_ = "GGUF";
        file.put(std::uint32_t{3});
        file.put(std::uint64_t{0});
        file.put(std::uint64_t{keys_});
        return folder.write("model.gguf", file.bytes_ + bytes_);
    }

  private:
    template <typename Integer>
    void put(Integer value) {
        for (std::size_t i = 0; i < sizeof(value); ++i)
            bytes_ += static_cast<char>(value >> (8 * i) & 0xFF);
    }
    void put_text(std::string_view value) {
        put(std::uint64_t{value.size()});
        bytes_ += value;
    }
    void begin(std::string_view key, std::uint32_t type) {
        put_text(key);
        put(type);
        ++keys_;
    }
    std::string bytes_;
    std::uint64_t keys_ = 0;
};

struct Toy {
    std::string model = "gpt2";
    std::string pre = "gpt-2";
    std::vector<std::string> tokens;
    std::vector<std::int32_t> types;
    std::vector<std::string> merges;
    std::vector<float> scores;
    int bos = -1;
    int eos = -1;

    static Toy byte_level() {
        Toy toy;
        for (std::size_t byte = 0; byte < 256; ++byte) {
            std::string spelled;
            append_utf8(spelled, byte_characters()[byte]);
            toy.tokens.push_back(spelled);
        }
        for (const char* token : {"ab", "Ġ1", "12"})
            toy.tokens.emplace_back(token);
        toy.types.assign(toy.tokens.size(), 1);
        toy.tokens.emplace_back("<|bos|>");
        toy.types.push_back(3);
        toy.tokens.emplace_back("user defined");
        toy.types.push_back(4);
        toy.merges = {"a b", "Ġ 1", "1 2"};
        toy.bos = 259;
        toy.eos = 259;
        return toy;
    }
    static Toy sentencepiece() {
        Toy toy;
        toy.model = "llama";
        toy.tokens = {"<unk>", "<s>", "</s>", "<0xEA>", "<0xB0>", "<0x80>"};
        toy.types = {2, 3, 3, 6, 6, 6};
        toy.scores = {0, 0, 0, 0, 0, 0};
        const std::vector<std::pair<const char*, float>> pieces = {
            {"▁", -100}, {"h", -101}, {"i", -102}, {"t", -103},
            {"hi", -2},  {"it", -1},  {"▁h", -3},  {"▁hi", -4}};
        for (const auto& [token, score] : pieces) {
            toy.tokens.emplace_back(token);
            toy.types.push_back(1);
            toy.scores.push_back(score);
        }
        toy.bos = 1;
        toy.eos = 2;
        return toy;
    }

    std::filesystem::path write(const TempDir& folder) const {
        GgufWriter file;
        file.text("general.architecture", "llama");
        file.text("tokenizer.ggml.model", model);
        if (!pre.empty() && model == "gpt2") file.text("tokenizer.ggml.pre", pre);
        file.texts("tokenizer.ggml.tokens", tokens);
        if (!types.empty()) file.numbers("tokenizer.ggml.token_type", types);
        if (!merges.empty()) file.texts("tokenizer.ggml.merges", merges);
        if (!scores.empty()) file.floats("tokenizer.ggml.scores", scores);
        if (bos >= 0) file.number("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(bos));
        if (eos >= 0) file.number("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(eos));
        file.text("tokenizer.chat_template", "{{ bos_token }}template");
        return file.write(folder);
    }
    std::unique_ptr<Tokenizer> load() const {
        const TempDir folder;
        return load_tokenizer(write(folder));
    }
    std::string error() const {
        try {
            load();
        } catch (const Error& error) {
            return error.what();
        }
        return {};
    }
};

TEST(GgufTokenizer, ByteLevel) {
    const auto tokenizer = Toy::byte_level().load();
    EXPECT_EQ(tokenizer->encode_ids("ab 12", {}), (Ids{256, 257, '2'}));
    EXPECT_EQ(tokenizer->encode_ids("<|bos|>user defined", {}), (Ids{259, 260}));
    EXPECT_TRUE(tokenizer->is_special(259));
    EXPECT_FALSE(tokenizer->is_special(260));
    EXPECT_FALSE(tokenizer->adds_bos());
    EXPECT_EQ(tokenizer->bos_id(), 259);
    EXPECT_EQ(tokenizer->chat_template(), "{{ bos_token }}template");
}

TEST(GgufTokenizer, PreTokenizersDiffer) {
    Toy toy = Toy::byte_level();
    const auto ids = [&](const char* pre) {
        toy.pre = pre;
        return toy.load()->encode_ids(" 1212", {});
    };
    EXPECT_EQ(ids("gpt-2"), (Ids{257, '2', 258}));
    const Ids single{32, '1', '2', '1', '2'};  // each digit alone
    for (Ids ids_of_pre : {ids("smollm"), ids("exaone"), ids("qwen2")}) {
        ids_of_pre[0] = 32;  // the space's own token
        EXPECT_EQ(ids_of_pre, single);
    }
    EXPECT_EQ(ids("llama-bpe"), (Ids{32, 258, '1', '2'}));  // three digits at once
    EXPECT_EQ(ids("default"), (Ids{32, 258, '1', '2'}));
    toy.pre = "llama-bpe";
    EXPECT_TRUE(toy.load()->adds_bos());
}

TEST(GgufTokenizer, SentencePieceMergesByScore) {
    const auto tokenizer = Toy::sentencepiece().load();
    const auto tokens = [&](std::string_view text) {
        std::vector<std::string> out;
        for (const std::int32_t id : tokenizer->encode_ids(text, {.add_special_tokens = true}))
            out.push_back(tokenizer->token_of(id));
        return out;
    };
    using Tokens = std::vector<std::string>;
    EXPECT_EQ(tokens("hi"), (Tokens{"<s>", "▁hi"}));
    EXPECT_EQ(tokens("hit"), (Tokens{"<s>", "▁h", "it"}));  // "it" scores best
    EXPECT_EQ(tokens("가"), (Tokens{"<s>", "▁", "<0xEA>", "<0xB0>", "<0x80>"}));
    EXPECT_EQ(tokens("é"), (Tokens{"<s>", "▁", "<unk>"}));
    EXPECT_EQ(tokenizer->decode(tokenizer->encode_ids("hi 가 hit", {}), true), "hi 가 hit");
    EXPECT_TRUE(tokenizer->adds_bos());
}

TEST(GgufTokenizer, SavesWhatOthersCanRead) {
    for (const Toy& toy : {Toy::byte_level(), Toy::sentencepiece()}) {
        SCOPED_TRACE(toy.model);
        const auto tokenizer = toy.load();
        const TempDir folder;
        tokenizer->save(folder.path());
        const auto again = load_tokenizer(folder.path());
        for (std::uint64_t seed = 0; seed < 100; ++seed) {
            const std::string text = testing::random_text(seed, 50) + "hit <s> 12<|bos|>";
            const Tokenizer::EncodeOptions options{.add_special_tokens = true};
            EXPECT_EQ(again->encode_ids(text, options), tokenizer->encode_ids(text, options));
            const Ids ids = tokenizer->encode_ids(text, options);
            EXPECT_EQ(again->decode(ids, true), tokenizer->decode(ids, true));
        }
        EXPECT_EQ(again->chat_template(), tokenizer->chat_template());
        EXPECT_EQ(again->bos_id(), tokenizer->bos_id());
        EXPECT_EQ(again->eos_id(), tokenizer->eos_id());
        EXPECT_EQ(again->adds_bos(), tokenizer->adds_bos());
        EXPECT_EQ(again->vocab_size(), tokenizer->vocab_size());
    }
}

TEST(GgufTokenizer, WrongKeysAreNamed) {
    const auto expect = [](const Toy& toy, const std::string& part) {
        const std::string message = toy.error();
        EXPECT_NE(message.find(part), std::string::npos) << "got: " << message;
        EXPECT_NE(message.find("model.gguf"), std::string::npos) << "got: " << message;
    };
    Toy toy = Toy::byte_level();
    toy.model = "bert";
    expect(toy, "\"bert\" is not supported");
    toy = Toy::byte_level();
    toy.pre = "tekken";
    expect(toy, "\"tekken\" is not supported");
    toy = Toy::byte_level();
    toy.merges.clear();
    expect(toy, "tokenizer.ggml.merges is missing");
    toy = Toy::byte_level();
    toy.types.pop_back();
    expect(toy, "token_type has 260 entries for 261 tokens");
    toy = Toy::byte_level();
    toy.bos = 4000;
    expect(toy, "bos_token_id is 4000");
    toy = Toy::byte_level();
    toy.tokens[3] = "\xFF\xFE";
    EXPECT_FALSE(toy.error().empty());
    toy = Toy::byte_level();
    toy.tokens[3] = toy.tokens[4];
    expect(toy, "two ids");
    toy = Toy::byte_level();
    toy.merges.emplace_back("x\xFFy z");
    EXPECT_FALSE(toy.error().empty());
    toy = Toy::byte_level();
    toy.merges.emplace_back("only");
    expect(toy, "merges[3]");
    toy = Toy::sentencepiece();
    toy.scores.clear();
    expect(toy, "tokenizer.ggml.scores is missing");
    toy = Toy::sentencepiece();
    toy.scores.pop_back();
    expect(toy, "scores has 13 entries for 14 tokens");
    toy = Toy::sentencepiece();
    toy.bos = -1;
    expect(toy, "bos_token_id is missing");
}

// The tiny GGUF of the reference data: its tokenizer is a toy too, but written by others.
TEST(GgufTokenizer, ReferenceFile) {
    GARAM_REQUIRE_DATA("golden/gguf/llama-f32.gguf");
    const auto tokenizer = load_tokenizer(testing::data_dir() / "golden/gguf/llama-f32.gguf");
    EXPECT_EQ(tokenizer->vocab_size(), 96);
    EXPECT_EQ(tokenizer->bos_id(), 1);
    EXPECT_EQ(tokenizer->eos_id(), 2);
    EXPECT_FALSE(tokenizer->encode_ids("hello 가", {.add_special_tokens = true}).empty());
}

// What llama.cpp keeps of a Unigram model says the same as the tokenizer.model.
TEST(GgufTokenizer, UnigramModelsAreTheirSentencePieceModels) {
    const std::filesystem::path file =
        testing::source_dir() / "tests" / "text" / "files" / "t5-unigram.model";
    const SentencePieceModel model = read_sentencepiece_model(file);
    GgufWriter gguf;
    std::vector<std::string> tokens;
    std::vector<float> scores;
    std::vector<std::int32_t> types;
    for (const SentencePieceModel::Piece& piece : model.pieces) {
        tokens.push_back(piece.text);
        scores.push_back(piece.score);
        types.push_back(static_cast<std::int32_t>(piece.type));
    }
    std::vector<std::int32_t> charsmap;
    for (const char byte : model.precompiled_charsmap)
        charsmap.push_back(static_cast<unsigned char>(byte));
    gguf.text("general.architecture", "t5");
    gguf.text("tokenizer.ggml.model", "t5");
    gguf.texts("tokenizer.ggml.tokens", tokens);
    gguf.floats("tokenizer.ggml.scores", scores);
    gguf.numbers("tokenizer.ggml.token_type", types);
    gguf.numbers("tokenizer.ggml.precompiled_charsmap", charsmap);
    gguf.number("tokenizer.ggml.eos_token_id", 1);
    gguf.number("tokenizer.ggml.unknown_token_id", 2);
    gguf.flag("tokenizer.ggml.add_space_prefix", true);
    gguf.flag("tokenizer.ggml.remove_extra_whitespaces", true);
    gguf.flag("tokenizer.ggml.add_eos_token", true);
    const TempDir folder;
    const auto tokenizer = load_tokenizer(gguf.write(folder));
    const Json golden = Json::parse_file(file.parent_path() / "t5-unigram.vectors.json");
    for (const Json& row : golden.at("vectors").array()) {
        Ids want;
        for (const Json& id : row.at("ids").array())
            want.push_back(static_cast<std::int32_t>(id.integer()));
        EXPECT_EQ(tokenizer->encode_ids(row.at("text").string(), {}), want);
        want.push_back(1);
        EXPECT_EQ(tokenizer->encode_ids(row.at("text").string(), {.add_special_tokens = true}),
                  want);
    }
}

}  // namespace
}  // namespace garam
