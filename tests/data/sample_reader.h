// What the tests of rows share: a file of the lines given, read with a ByteTokenizer; ids and targets as
// text.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/byte_tokenizer.h"
#include "garam/core/token_batch.h"
#include "garam/data/samples/read_samples.h"
#include "testing/temp_dir.h"

namespace garam::testing {

// The text of the targets; where some lie apart, "|" stands between. Checks that a target is its id.
inline std::string target_text(const Sample& sample, const Tokenizer& tokenizer) {
    EXPECT_EQ(sample.labels.size(), sample.ids.size());
    std::string text;
    std::vector<std::int32_t> run;
    const auto close = [&] {
        if (!run.empty()) text += (text.empty() ? "" : "|") + tokenizer.decode(run, false);
        run.clear();
    };
    for (std::size_t t = 0; t < sample.labels.size(); ++t) {
        if (sample.labels[t] == kIgnore) {
            close();
            continue;
        }
        EXPECT_EQ(sample.labels[t], sample.ids[t]);
        run.push_back(sample.labels[t]);
    }
    close();
    return text;
}

class SampleReader : public ::testing::Test {
  protected:
    SampleSet read(const std::string& content) {
        const ByteTokenizer tokenizer(setup_);
        return read_samples(dir_.write("rows.jsonl", content), config_, settings_, tokenizer);
    }
    Sample read_one(const std::string& line) {
        const SampleSet set = read(line + "\n");
        EXPECT_EQ(set.samples.size(), 1u);
        return set.samples.at(0);
    }
    std::string decoded(const std::vector<std::int32_t>& ids) {
        return ByteTokenizer(setup_).decode(ids, false);
    }
    std::string target_text(const Sample& sample) {
        return testing::target_text(sample, ByteTokenizer(setup_));
    }

    TempDir dir_;
    ByteTokenizer::Setup setup_;
    DataConfig config_;
    EncodingSettings settings_;
};

}  // namespace garam::testing
