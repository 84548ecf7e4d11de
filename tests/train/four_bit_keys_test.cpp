// The keys of a base in 4 bits by whole jobs: what is refused before anything is trained, and what a base that is in
// 4 bits already makes of them.
#include <gtest/gtest.h>

#include <filesystem>

#include "garam/core/error.h"
#include "garam/io/peft_adapter.h"
#include "garam/models/quantize_model.h"
#include "train/tiny_job.h"

namespace garam {
namespace {

using testing::TinyJob;

class FourBitJob : public TinyJob {
  public:
    FourBitJob() {
        config.four_bit.load_in_4bit = true;
        config.four_bit.quant_type = "nf4";
        config.train.max_steps = 2;
    }
    // The model's own folder in fp4 takes its place.
    void quantise_on_disk(std::vector<std::string> skipped = {}) {
        const std::filesystem::path out = dir() / "fp4";
        const ModelFiles files = ModelFiles::open(config.model);
        for (const auto& entry : std::filesystem::directory_iterator(config.model))
            if (entry.path().filename().string().starts_with("tokenizer")) {
                std::filesystem::create_directories(out);
                std::filesystem::copy(entry.path(), out / entry.path().filename());
            }
        QuantizeModelOptions options;
        options.base.skip_modules = std::move(skipped);
        write_four_bit_model(files, out, options);
        config.model = out.string();
    }
};

std::string refusal(TinyJob& job) {
    try {
        job.run();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

std::string notes_of(const TinyJob& job) {
    std::string text;
    const auto prepared = prepare(job.config);
    for (const std::string& note : prepared->notes)
        text += note + "\n";
    return text;
}

// Else a slip of the pen quantises what was to stay as it is, without a word.
TEST(FourBitKeys, SkippedModulesMustBeThere) {
    FourBitJob job;
    job.config.four_bit.skip_modules = {"down_porj"};
    EXPECT_NE(refusal(job).find("skipped module down_porj is none of"), std::string::npos);
    job.config.four_bit.skip_modules = {"model.layers"};
    EXPECT_NE(refusal(job).find("nothing is left to quantise"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(job.output()));
    // Lists of Transformers name the head, which stays anyhow.
    job.config.four_bit.skip_modules = {"lm_head", "down_proj"};
    EXPECT_EQ(refusal(job), "");
}

// Transformers' default is fp4, and a forgotten load_in_4bit trains over 16 bits: what a base becomes is said.
TEST(FourBitKeys, WhatTheBaseBecomesIsSaid) {
    FourBitJob job;
    job.config.four_bit.use_double_quant = true;
    EXPECT_NE(notes_of(job).find(
                  "load_in_4bit: the base's linears become nf4, blocks of 64, scales in 8 bits\n"),
              std::string::npos)
        << notes_of(job);
    job.config.four_bit.load_in_4bit = false;
    EXPECT_NE(notes_of(job).find("bnb_4bit_quant_type changes nothing without load_in_4bit=true"),
              std::string::npos)
        << notes_of(job);
    job.config.four_bit = {};
    EXPECT_EQ(notes_of(job).find("4bit"), std::string::npos) << notes_of(job);
}

// Its own settings count, those of the linears that it left out too, and are what the adapter tells of.
TEST(FourBitKeys, ABaseInFourBitsIsUsedAsItIs) {
    std::vector<double> losses;
    for (const bool load_in_4bit : {true, false}) {
        FourBitJob job;
        job.quantise_on_disk({"down_proj"});
        job.config.four_bit.load_in_4bit = load_in_4bit;
        EXPECT_EQ(notes_of(job).find("load_in_4bit changes nothing") != std::string::npos,
                  load_in_4bit)
            << notes_of(job);
        struct Recorder : TrainObserver {
            double loss = 0;
            void on_step(const StepReport& report) override { loss = report.loss; }
        } recorder;
        job.run({&recorder});
        losses.push_back(recorder.loss);
        const auto told = read_peft_adapter(job.output() / "adapter").base_quantization;
        ASSERT_TRUE(told.has_value());
        EXPECT_EQ(in_words(*told), "fp4, blocks of 64");
        EXPECT_EQ(told->skip_modules, (std::vector<std::string>{"model.layers.0.mlp.down_proj",
                                                                "model.layers.1.mlp.down_proj"}));
    }
    EXPECT_EQ(losses[0], losses[1]);
}

TEST(FourBitKeys, GoingOnOverOtherValuesIsWarnedOf) {
    FourBitJob first;
    first.run();
    for (const bool same : {true, false}) {
        FourBitJob second;
        second.config.model = first.config.model;
        second.config.adapter = (first.output() / "adapter").string();
        second.config.four_bit.load_in_4bit = same;
        EXPECT_EQ(notes_of(second).find("was trained over nf4, blocks of 64, this run goes on over "
                                        "the weights as they are") == std::string::npos,
                  same)
            << notes_of(second);
    }
}

TEST(FourBitKeys, LoftqNeedsWhatQuantisingTakesAway) {
    FourBitJob job;
    job.quantise_on_disk();
    job.config.init_lora_weights = "loftq";
    EXPECT_NE(refusal(job).find("is in 4 bits already: give the model that it was made from"),
              std::string::npos)
        << refusal(job);
}

TEST(FourBitKeys, ACheckpointOverFourBitsIsNotResumedWithout) {
    FourBitJob job;
    job.run();
    job.config.train.resume_from_checkpoint = "true";
    job.config.four_bit.load_in_4bit = false;
    EXPECT_NE(refusal(job).find("load_in_4bit is not set, the checkpoint has true"),
              std::string::npos)
        << refusal(job);
}

}  // namespace
}  // namespace garam
