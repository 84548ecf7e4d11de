#include "garam/train/vocabulary.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "garam/core/error.h"
#include "garam/models/vocabulary_size.h"
#include "train/tiny_job.h"

namespace garam {
namespace {

using testing::read_file;
using testing::TinyJob;

// Rows that have the new tokens, on a model of 260 rows and a tokenizer of 259 tokens.
void add_tokens(TinyJob& job, bool tied, const std::vector<std::string>& tokens) {
    testing::TinyModel tiny;
    tiny.tied = tied;
    write_tiny_model(job.config.model, tiny);
    std::ofstream rows(job.config.data.train.front());
    for (int i = 0; i < 8; ++i) {
        Json row;
        row.set("prompt", tokens.back() + "what");
        row.set("completion", tokens.front() + std::string(static_cast<std::size_t>(3 + i), 'x'));
        rows << row.dump() << '\n';
    }
    job.config.data.add_special_tokens = tokens;
    job.config.lora.target_modules = {"q_proj", "v_proj"};
}

const AdapterTensor* find(const PeftAdapter& adapter, std::string_view end) {
    for (const AdapterTensor& tensor : adapter.tensors)
        if (tensor.name.ends_with(end)) return &tensor;
    return nullptr;
}

std::string refusal(const JobConfig& config) {
    try {
        prepare(config);
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

bool has_note(const PreparedJob& job, std::string_view part) {
    return std::any_of(job.notes.begin(), job.notes.end(), [&](const std::string& note) {
        return note.find(part) != std::string::npos;
    });
}

TEST(Vocabulary, NewTokensAreTrainedAndNothingElseOfTheTable) {
    for (const bool tied : {true, false}) {
        for (const bool grows : {false, true}) {
            SCOPED_TRACE(std::string(tied ? "tied" : "untied") + (grows ? " grows" : " spare"));
            TinyJob job;
            const std::vector<std::string> tokens =
                grows ? std::vector<std::string>{"<|a|>", "<|b|>", "<|c|>"}
                      : std::vector<std::string>{"<|a|>"};
            add_tokens(job, tied, tokens);
            const auto prepared = prepare(job.config);
            EXPECT_EQ(vocabulary_size(prepared->files), grows ? 262 : 260);
            EXPECT_TRUE(has_note(*prepared, grows ? "grows from 260 to 262" : "has rows for them"));
            EXPECT_EQ(has_note(*prepared, "does not learn to say them"), !tied);
            job.run();
            const PeftAdapter adapter = read_peft_adapter(job.output() / "adapter");
            const std::vector<std::int64_t> ids =
                grows ? std::vector<std::int64_t>{259, 260, 261} : std::vector<std::int64_t>{259};
            EXPECT_EQ(adapter.settings.trainable_token_indices, ids);
            const AdapterTensor* rows = find(adapter, ".trainable_tokens_delta");
            ASSERT_NE(rows, nullptr);
            // Where each began.
            std::vector<float> table(static_cast<std::size_t>(
                prepared->files.at("model.embed_tokens.weight").shape.elements()));
            read_tensor(prepared->files.at("model.embed_tokens.weight"), table.data());
            std::size_t moved = 0;
            for (std::size_t i = 0; i < rows->values.size(); ++i)
                moved += rows->values[i] != table[259 * 24 + i];
            EXPECT_GT(moved, rows->values.size() / 4);
            EXPECT_EQ(adapter.tensors.size(), 2u * 2 * 2 + 1);
            const auto tokenizer = load_tokenizer(job.output() / "adapter");
            EXPECT_EQ(tokenizer->vocab_size(), 259 + static_cast<std::int64_t>(tokens.size()));
            EXPECT_EQ(tokenizer->encode_ids(tokens.back(), {}).size(), 1u);

            // The adapter goes on, and its tokens are known.
            TinyJob more;
            more.config = job.config;
            more.config.adapter = (job.output() / "adapter").string();
            more.config.train.output_dir = (more.dir() / "run").string();
            more.config.train.max_steps = 2;
            more.run();
            EXPECT_EQ(read_peft_adapter(more.output() / "adapter").settings.trainable_token_indices,
                      ids);
            more.config.data.add_special_tokens.emplace_back("<|new|>");
            EXPECT_NE(refusal(more.config).find("garam merge"), std::string::npos);
        }
    }
}

TEST(Vocabulary, ResumedIsBitEqual) {
    TinyJob whole;
    TinyJob stopped;
    for (TinyJob* job : {&whole, &stopped}) {
        add_tokens(*job, false, {"<|a|>", "<|b|>", "<|c|>"});
        job->config.lora.modules_to_save = {"lm_head"};
        job->config.train.save_steps = 4;
    }
    whole.run();
    stopped.run();
    std::filesystem::remove_all(stopped.output() / "checkpoint-8");
    std::filesystem::remove_all(stopped.output() / "adapter");
    stopped.config.train.resume_from_checkpoint = (stopped.output() / "checkpoint-4").string();
    stopped.run();
    const auto bytes = [](const TinyJob& job) {
        return read_file(job.output() / "adapter" / "adapter_model.safetensors");
    };
    EXPECT_EQ(bytes(whole), bytes(stopped));
    const PeftAdapter adapter = read_peft_adapter(whole.output() / "adapter");
    const AdapterTensor* head = find(adapter, "lm_head.weight");
    ASSERT_NE(head, nullptr);
    EXPECT_EQ(head->shape[0], 262);
}

TEST(Vocabulary, WholeCopiesAndAllWeightsNeedNoRowsOfTheirOwn) {
    TinyJob saved;
    add_tokens(saved, true, {"<|a|>", "<|b|>", "<|c|>"});
    saved.config.lora.modules_to_save = {"embed_tokens", "lm_head"};
    saved.run();
    const PeftAdapter adapter = read_peft_adapter(saved.output() / "adapter");
    EXPECT_TRUE(adapter.settings.trainable_token_indices.empty());
    EXPECT_EQ(find(adapter, "embed_tokens.weight")->shape[0], 262);

    TinyJob full;
    add_tokens(full, true, {"<|a|>", "<|b|>", "<|c|>"});
    full.config.train.method = "full";
    full.run();
    const ModelFiles model = ModelFiles::open(full.output() / "model");
    EXPECT_EQ(vocabulary_size(model), 262);
    EXPECT_EQ(model.at("model.embed_tokens.weight").shape[0], 262);
    EXPECT_EQ(load_tokenizer(full.output() / "model")->vocab_size(), 262);
}

TEST(Vocabulary, WhatContradictsItIsRefused) {
    TinyJob job;
    add_tokens(job, true, {"<|a|>"});
    JobConfig config = job.config;
    config.lora.target_modules = {"q_proj", "embed_tokens"};
    EXPECT_NE(refusal(config).find("lora.target_modules with embed_tokens"), std::string::npos);
    config = job.config;
    config.data.add_special_tokens = {"<|a|>", "<|a|>"};
    EXPECT_NE(refusal(config).find("comes twice"), std::string::npos);
    config.data.add_special_tokens = {""};
    EXPECT_NE(refusal(config).find("a token is empty"), std::string::npos);
    config.data.add_special_tokens = {"<|im_end|>"};
    EXPECT_TRUE(has_note(*prepare(config), "in the vocabulary already"));
    EXPECT_TRUE(prepare(config)->config.lora.trainable_token_indices.empty());
}

// PEFT saves what an adapter of the embedding is beside; of the base's size it is the base's own.
TEST(Vocabulary, AnAdapterOfTheEmbeddingGoesOnBesideItsSavedBase) {
    TinyJob first;
    first.config.lora.target_modules = {"q_proj", "embed_tokens"};
    first.config.train.max_steps = 1;
    first.run();
    PeftAdapter adapter = read_peft_adapter(first.output() / "adapter");
    TinyJob second;
    const auto go_on = [&](std::int64_t rows) {
        std::vector<float> base(static_cast<std::size_t>(rows * testing::TinyModel().hidden_size));
        std::vector<std::pair<std::string, Tensor>> tensors;
        for (AdapterTensor& tensor : adapter.tensors)
            tensors.emplace_back(tensor.name, Tensor(tensor.values.data(), DType::f32, tensor.shape,
                                                     DeviceKind::cpu));
        tensors.emplace_back("base_model.model.model.embed_tokens.base_layer.weight",
                             Tensor(base.data(), DType::f32,
                                    {rows, testing::TinyModel().hidden_size}, DeviceKind::cpu));
        second.config.adapter = (second.dir() / std::to_string(rows)).string();
        std::filesystem::create_directory(second.config.adapter);
        write_peft_adapter(second.config.adapter, adapter.settings, tensors);
        return refusal(second.config);
    };
    EXPECT_EQ(go_on(testing::TinyModel().vocab_size), "accepted");
    EXPECT_NE(go_on(270).find("vocabulary that was resized"), std::string::npos);
}

}  // namespace
}  // namespace garam
