#include "garam/text/sentencepiece_model.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"
#include "garam/core/philox.h"
#include "garam/text/precompiled_charsmap.h"
#include "garam/text/tokenizer.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

using testing::read_file;
using testing::TempDir;

std::string bytes_of(const char* name) {
    return read_file(testing::source_dir() / "tests" / "text" / "files" / name);
}

std::string error_of(std::string_view bytes) {
    try {
        parse_sentencepiece_model(bytes, "tokenizer.model");
    } catch (const Error& error) {
        return error.what();
    }
    return {};
}

TEST(SentencePieceModel, ReadsPiecesAndSettings) {
    const SentencePieceModel gemma = parse_sentencepiece_model(bytes_of("gemma-bpe.model"), "m");
    EXPECT_EQ(gemma.kind, SentencePieceModel::Kind::bpe);
    EXPECT_EQ(gemma.unk_id, 3);
    EXPECT_EQ(gemma.pad_id, 0);
    EXPECT_TRUE(gemma.byte_fallback);
    EXPECT_FALSE(gemma.add_dummy_prefix);
    EXPECT_FALSE(gemma.remove_extra_whitespaces);
    EXPECT_TRUE(gemma.escape_whitespaces);
    EXPECT_EQ(gemma.pieces[0].text, "<pad>");
    EXPECT_EQ(gemma.pieces[0].type, SentencePieceModel::Type::control);
    EXPECT_EQ(gemma.pieces[3].type, SentencePieceModel::Type::unknown);
    const SentencePieceModel t5 = parse_sentencepiece_model(bytes_of("t5-unigram.model"), "m");
    EXPECT_EQ(t5.kind, SentencePieceModel::Kind::unigram);
    EXPECT_TRUE(t5.add_dummy_prefix);
    EXPECT_TRUE(t5.remove_extra_whitespaces);
    EXPECT_FALSE(t5.precompiled_charsmap.empty());
    EXPECT_EQ(t5.bos_id, -1);
    EXPECT_LT(t5.pieces.back().score, 0);
}

TEST(SentencePieceModel, WhatIsNoneIsRefused) {
    EXPECT_NE(error_of("").find("holds no pieces"), std::string::npos);
    EXPECT_NE(error_of("x").find("no SentencePiece model"), std::string::npos);
    EXPECT_NE(error_of("IQ== 0\nIg== 1\n").find("no SentencePiece model"), std::string::npos);
    // A piece that claims more than the file has.
    EXPECT_NE(error_of("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F").find("cut off"),
              std::string::npos);
    EXPECT_NE(error_of(std::string("\x0A") + std::string(11, '\xFF')).find("more than 64 bits"),
              std::string::npos);
    EXPECT_NE(error_of(std::string("\x0A\x02\x18\x07", 4)).find("unknown type 7"),
              std::string::npos);
    EXPECT_NE(error_of(std::string("\x0A\x03\x0A\x01\xFF", 5)).find("not valid UTF-8"),
              std::string::npos);
    EXPECT_NE(error_of(std::string("\x0A\x02\x10\x01", 4)).find("no float"), std::string::npos);
}

// Cut off or changed files end in an Error or in a tokenizer, never in anything else.
TEST(SentencePieceModel, DamagedFilesDoNoHarm) {
    Random random(5);
    int loaded = 0;
    for (const char* name : {"gemma-bpe.model", "t5-unigram.model"}) {
        const std::string good = bytes_of(name);
        for (int round = 0; round < 200; ++round) {
            std::string bytes = good;
            if (round % 2 == 0) {
                bytes.resize(random.below(bytes.size()));
            } else {
                for (int i = 0; i < 3; ++i) {
                    const std::size_t tail = random.below(2) * (bytes.size() * 9 / 10);
                    bytes[tail + random.below(bytes.size() - tail)] =
                        static_cast<char>(random.below(256));
                }
            }
            const TempDir folder;
            folder.write("tokenizer.model", bytes);
            try {
                const auto tokenizer = load_tokenizer(folder.path());
                tokenizer->decode(tokenizer->encode_ids("ab \uAC00 \uFB01e\u0301</s>", {}), false);
                ++loaded;
            } catch (const Error& error) {
                EXPECT_STRNE(error.what(), "");
            }
        }
    }
    EXPECT_GT(loaded, 0);
    EXPECT_LT(loaded, 400);
}

TEST(PrecompiledCharsmap, ReplacesAsTheReference) {
    const SentencePieceModel t5 = parse_sentencepiece_model(bytes_of("t5-unigram.model"), "m");
    const PrecompiledCharsmap charsmap(t5.precompiled_charsmap, "m");
    const auto applied = [&](const std::string& text) {
        return charsmap.apply(AlignedText(text, 0)).text();
    };
    EXPECT_EQ(applied("plain"), "plain");
    EXPECT_EQ(applied("\uFB01ne \u2167"), "fine VIII");
    EXPECT_EQ(applied("a\tb\uFEFF"), "a b");
    EXPECT_EQ(applied("e\u0301"), "\u00E9");
    // A cluster of less than 6 bytes goes by its shortest beginning: the line feed is lost.
    EXPECT_EQ(applied("a\r\nb"), "a b");
    const AlignedText text = charsmap.apply(AlignedText("x\uFB01y", 0));
    EXPECT_EQ(text.text(), "xfiy");
    EXPECT_EQ(text.source(1, 2).begin, 1u);
    EXPECT_EQ(text.source(2, 3).end, 4u);  // all of the character
    EXPECT_EQ(text.source(3, 4).begin, 4u);
}

TEST(PrecompiledCharsmap, HostileBlobsDoNoHarm) {
    Random random(3);
    for (int round = 0; round < 500; ++round) {
        std::string blob(4 + 4 * (1 + random.below(300)), '\0');
        const std::size_t units = (blob.size() - 4) / 4;
        for (char& byte : blob)
            byte = static_cast<char>(random.below(256));
        const std::size_t trie = 4 * units;
        for (std::size_t i = 0; i < 4; ++i)
            blob[i] = static_cast<char>(trie >> 8 * i & 0xFF);
        blob += std::string("abc\0de\0", 7);
        const PrecompiledCharsmap charsmap(blob, "m");
        for (int i = 0; i < 20; ++i) {
            std::string text;
            for (int j = 0; j < 10; ++j)
                text += static_cast<char>(1 + random.below(127));
            static_cast<void>(charsmap.apply(AlignedText(text, 0)));
        }
    }
    EXPECT_THROW(PrecompiledCharsmap(std::string("\x08\0\0\0abcd", 8), "m"), Error);
    EXPECT_THROW(PrecompiledCharsmap(std::string("\x04\0\0\0abcd\xFF", 9), "m"), Error);
    EXPECT_THROW(
        PrecompiledCharsmap(std::string("\x04\0\0\0abcd", 8) + std::string(2000, 'x'), "m"), Error);
}

TEST(Base64, BothWays) {
    for (std::size_t size = 0; size < 10; ++size) {
        std::string bytes;
        for (std::size_t i = 0; i < size; ++i)
            bytes += static_cast<char>(200 + i * 31);
        EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
    }
    EXPECT_EQ(to_base64("Man"), "TWFu");
    EXPECT_EQ(to_base64("M"), "TQ==");
    EXPECT_EQ(from_base64("TQ"), "M");
    EXPECT_EQ(from_base64("T?=="), std::nullopt);
}

}  // namespace
}  // namespace garam
