#include <gtest/gtest.h>

#include "garam/core/philox.h"
#include "garam/text/tokenizer.h"
#include "tokenizer_data.h"
#include "toy_tokenizer.h"

namespace garam {
namespace {

using testing::byte_level_json;
using testing::load;
using testing::random_text;
using testing::sentencepiece_json;
using Ids = std::vector<std::int32_t>;

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip) {
    StreamDecoder stream(tokenizer, skip);
    std::string text;
    for (const std::int32_t id : ids) {
        const std::string part = stream.push(id);
        // Never half a character.
        EXPECT_TRUE(part.empty() || (static_cast<unsigned char>(part[0]) & 0xC0) != 0x80);
        text += part;
    }
    return text + stream.flush();
}

TEST(StreamDecoder, GivesWholeCharacters) {
    const auto bytes = load(byte_level_json({}, {"<s>"}));
    StreamDecoder stream(*bytes);
    EXPECT_EQ(stream.push('a'), "a");
    EXPECT_EQ(stream.push(0xEA), "");
    EXPECT_EQ(stream.push(0xB0), "");
    EXPECT_EQ(stream.push(0x80), "가");
    EXPECT_EQ(stream.push(256), "");  // special
    EXPECT_EQ(stream.push(0xC3), "");
    EXPECT_EQ(stream.flush(), "\uFFFD");
    EXPECT_EQ(stream.flush(), "");
}

TEST(StreamDecoder, KeepsSpacesBetweenPieces) {
    const auto pieces = load(sentencepiece_json({"▁", "h", "i", "▁h"}, {{"▁", "h"}, {"▁h", "i"}}));
    const Ids ids = pieces->encode_ids("hi hi 가 hi", {.add_special_tokens = true});
    EXPECT_EQ(streamed(*pieces, ids, true), "hi hi 가 hi");
}

TEST(StreamDecoder, AgreesWithDecodeOnAnyIds) {
    const auto bytes = load(byte_level_json({{"a", "e"}, {"Ġ", "a"}}, {"<s>"}));
    Random random(5);
    for (int round = 0; round < 300; ++round) {
        Ids ids;
        for (int i = 0; i < 40; ++i)
            ids.push_back(static_cast<std::int32_t>(round % 2 == 0 ? 0x80 + random.below(0x80)
                                                                   : random.below(260)));
        for (const bool skip : {false, true})
            EXPECT_EQ(streamed(*bytes, ids, skip), bytes->decode(ids, skip));
    }
    for (const char* name : {"gpt2", "llama-3.1", "llama-2", "stories260K", "qwen2.5"}) {
        const Tokenizer* tokenizer = testing::reference_tokenizer(name);
        if (tokenizer == nullptr) continue;
        SCOPED_TRACE(name);
        for (std::uint64_t seed = 0; seed < 60; ++seed) {
            const Ids ids = tokenizer->encode_ids(random_text(seed, 60), {});
            EXPECT_EQ(streamed(*tokenizer, ids, true), tokenizer->decode(ids, true));
        }
    }
}

}  // namespace
}  // namespace garam
