#include "garam/train/tuned_products.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>

#include "garam/core/error.h"
#include "garam/io/atomic_write.h"
#include "testing/cards.h"
#include "train/tiny_job.h"

namespace garam {
namespace {

using testing::read_file;
using testing::TinyJob;

DeviceProfile some_card() {
    DeviceProfile profile;
    profile.name = "a card";
    profile.kind = DeviceKind::cuda;
    profile.fast_bf16 = true;
    profile.compute_capability = 80;
    profile.multiprocessors = 108;
    profile.shared_bytes = 99 << 10;
    profile.memory_bytes = profile.free_bytes = std::int64_t{8} << 30;
    return profile;
}

SharedProductTable some_table(std::int64_t tile = 20) {
    ProductTable table;
    table.home = {"a card", 80, 130000};
    ProductShape shape;
    shape.m = shape.n = shape.k = shape.a_pitch = shape.b_pitch = shape.c_pitch = 64;
    table.products[shape].algorithm = ProductAlgorithm{.id = 66, .tile = tile};
    return std::make_shared<const ProductTable>(table);
}

TEST(TunedProducts, AreCountedWithoutACard) {
    TinyJob tiny;
    tiny.config.train.max_steps = 6;
    for (const double dropout : {0.0, 0.1}) {
        tiny.config.lora.lora_dropout = dropout;
        const auto job = prepare(tiny.config);
        job->profile = some_card();
        job->engine.model.compute = DType::bf16;
        job->plan();
        const auto steps = first_steps(*job);
        ASSERT_EQ(steps.size(), 6u);
        EXPECT_EQ(steps[0].size(), 1u);  // the two micro-batches of a step fit into one
        const ProductCounts counts = count_products(job->profile, job->files, job->engine, steps);

        // [x | u] [W | sB]ᵀ of q, k and v (32 + 2 * 16 outputs) and of o, gate with up, and down; the
        // residual stream is added by o and down. Two layers; pads make the shapes few.
        double forward = 0;
        double added = 0;
        double backward_tails = 0;
        bool prompt = false;
        for (const auto& [shape, calls] : counts) {
            EXPECT_TRUE(shape.inputs_are_bf16);
            prompt |= calls == 0 && shape.m == 256;
            if (shape.tail == 0 || calls == 0) continue;
            EXPECT_EQ(shape.tail, 64);
            (shape.transpose_b ? forward : backward_tails) += calls;
            if (shape.addend == ProductAddend::separate) added += calls;
            EXPECT_LT(shape.k - shape.tail, shape.a_pitch);
        }
        EXPECT_NEAR(forward, 2 * 4, 1e-9);
        EXPECT_NEAR(added, 2 * 2, 1e-9);
        // With dropout a mask lies between, so that the gradient's product has no tail.
        EXPECT_EQ(backward_tails > 0, dropout == 0);
        EXPECT_TRUE(prompt);
    }
}

TEST(TunedProducts, AResumedRunGoesOnWithItsCheckpoints) {
    std::vector<std::string> notes;
    const auto chosen = [&](const SharedProductTable& configured, const SharedProductTable& stored,
                            const std::string& misfit = "") {
        notes.clear();
        return products_to_go_on_with(configured, stored, misfit, "run/checkpoint-4", notes);
    };
    const SharedProductTable stored = some_table();
    EXPECT_EQ(chosen(nullptr, nullptr), nullptr);
    EXPECT_EQ(chosen(nullptr, stored), stored);
    EXPECT_EQ(chosen(some_table(), stored), stored);
    EXPECT_TRUE(notes.empty());
    for (const SharedProductTable& other : {stored, SharedProductTable()}) {
        try {
            chosen(some_table(21), other);
            ADD_FAILURE() << "another table was taken";
        } catch (const Error& error) {
            const std::string text = error.what();
            EXPECT_NE(text.find("train.tuned_products"), std::string::npos) << text;
            EXPECT_NE(text.find("run/checkpoint-4"), std::string::npos) << text;
            EXPECT_EQ(text.find('\n'), std::string::npos) << text;
        }
    }
    // Elsewhere its bits cannot continue anyway.
    const SharedProductTable here = some_table(21);
    EXPECT_EQ(chosen(here, stored, "made for another card"), here);
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_NE(notes[0].find("made for another card"), std::string::npos);
    EXPECT_EQ(chosen(nullptr, stored, "made for another card"), nullptr);
}

TEST(TunedProducts, TheProcessorTakesNoNotice) {
    TinyJob tiny;
    tiny.config.train.max_steps = 2;
    tiny.run();
    TinyJob with_key;
    with_key.config.train.max_steps = 2;
    with_key.config.train.tuned_products = "of/another/machine.json";
    struct Messages : TrainObserver {
        std::string all;
        void on_message(std::string_view text) override { all += std::string(text) + "\n"; }
    } messages;
    with_key.run({&messages});
    EXPECT_NE(messages.all.find("of/another/machine.json does not count on the processor"),
              std::string::npos)
        << messages.all;
    EXPECT_FALSE(std::filesystem::exists(with_key.output() / kProductTableFile));
    EXPECT_EQ(read_file(with_key.output() / "adapter" / "adapter_model.safetensors"),
              read_file(tiny.output() / "adapter" / "adapter_model.safetensors"));
}

TEST(TunedProducts, LieInCheckpoints) {
    TinyJob tiny;
    const auto job = prepare(tiny.config);
    job->profile.products = some_table();
    CheckpointContents contents;
    contents.state.global_step = 3;
    contents.write_model = [&](const std::filesystem::path& folder) {
        write_products(*job, folder);
    };
    const auto folder = save_checkpoint(tiny.output(), contents);
    const Checkpoint checkpoint = Checkpoint::open(folder);
    EXPECT_TRUE(checkpoint.holds(kProductTableFile));
    EXPECT_EQ(read_file(folder / kProductTableFile), some_table()->to_text());

    // Read by a run on the processor: told, and not taken.
    job->profile.products = nullptr;
    job->notes.clear();
    go_on_with_products_of(checkpoint, *job);
    EXPECT_EQ(job->profile.products, nullptr);
    ASSERT_EQ(job->notes.size(), 1u);
    EXPECT_NE(job->notes[0].find("computes on the processor"), std::string::npos);

    // Without a table an older copy goes.
    write_products(*job, folder);
    EXPECT_FALSE(std::filesystem::exists(folder / kProductTableFile));
    EXPECT_THROW(Checkpoint::open(folder), Error);
}

class TunedProductsOnCards : public ::testing::TestWithParam<DeviceProfile> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TunedProductsOnCards);
INSTANTIATE_TEST_SUITE_P(Cuda, TunedProductsOnCards, ::testing::ValuesIn(testing::cards()),
                         [](const auto& test) { return testing::card_name(test.param); });

struct Losses : TrainObserver {
    std::vector<double> all;
    void on_step(const StepReport& report) override { all.push_back(report.loss); }
};

TEST_P(TunedProductsOnCards, TrainTheSameWithinRounding) {
    const auto configure = [&](TinyJob& tiny) {
        tiny.config.device = "cuda:" + std::to_string(GetParam().ordinal);
        tiny.config.train.bf16 = true;
    };
    TinyJob plain;
    configure(plain);
    Losses want;
    plain.run({&want});

    const auto job = prepare(plain.config);
    const MemoryPlan plan = job->plan();
    const ProductCounts counts =
        count_products(job->profile, job->files, job->engine, first_steps(*job));
    {
        // The card is asked for the very shapes that the dry device counted, addresses and all.
        const auto device = make_device(job->profile);
        TrainingEngine engine(*device, job->files, job->engine, plan.arena_bytes);
        engine.meter().count_products(true);
        for (const std::vector<TokenBatch>& step : first_steps(*job))
            engine.step(step, 0, 1e-3);
        EXPECT_FALSE(engine.meter().products().empty());
        for (const auto& [shape, calls] : engine.meter().products())
            EXPECT_TRUE(counts.contains(shape)) << shape.to_string();
    }

    // Whatever the library offers beside its heuristic's first, and every tail by itself.
    ProductTable table;
    {
        const auto device = make_device(job->profile);
        TuningOptions options;
        options.rounds = 3;
        options.margin = -100;
        table = tune_products(*device, counts, options);
    }
    bool tails = false;
    for (auto& [shape, tuned] : table.products) {
        if (shape.tail == 0) continue;
        tails = tuned.two_products = true;
        tuned.algorithm.reset();
    }
    EXPECT_TRUE(tails);
    const auto file = plain.dir() / "tuned.json";
    write_file_atomically(file, table.to_text());

    TinyJob first;
    configure(first);
    first.config.train.tuned_products = file.string();
    Losses losses;
    first.run({&losses});
    ASSERT_EQ(losses.all.size(), want.all.size());
    for (std::size_t i = 0; i < want.all.size(); ++i)
        // The first step sees the same weights; then Adam makes steps of small differences.
        EXPECT_NEAR(losses.all[i], want.all[i], (i == 0 ? 0.005 : 0.05) * want.all[i]) << i;
    const auto adapter = [](const TinyJob& tiny) {
        return read_file(tiny.output() / "adapter" / "adapter_model.safetensors");
    };
    EXPECT_EQ(read_file(first.output() / kProductTableFile), table.to_text());
    EXPECT_EQ(read_file(first.output() / "checkpoint-8" / kProductTableFile), table.to_text());
    EXPECT_FALSE(std::filesystem::exists(plain.output() / kProductTableFile));

    TinyJob second;
    configure(second);
    second.config.train.tuned_products = file.string();
    second.run();
    EXPECT_EQ(adapter(second), adapter(first));

    // A resumed run takes the checkpoint's copy, whether it is named or not.
    TinyJob stopped;
    configure(stopped);
    stopped.config.train.tuned_products = file.string();
    struct InterruptAtFour : TrainObserver {
        void on_progress(const ProgressReport& report) override {
            if (report.step == 4) raise(SIGINT);
        }
    } interrupter;
    EXPECT_EQ(stopped.run({&interrupter}).step, 4);
    stopped.config.train.resume_from_checkpoint = "true";
    ProductTable other = table;
    const auto choice = std::find_if(other.products.begin(), other.products.end(),
                                     [](const auto& entry) { return entry.second.is_a_choice(); });
    ASSERT_NE(choice, other.products.end());
    other.products.erase(choice);
    write_file_atomically(plain.dir() / "other.json", other.to_text());
    stopped.config.train.tuned_products = (plain.dir() / "other.json").string();
    EXPECT_THROW(stopped.run(), Error);
    stopped.config.train.tuned_products.clear();
    stopped.run();
    EXPECT_EQ(adapter(stopped), adapter(first));

    // A table of another card is refused before anything is written.
    other = table;
    other.home.card = "another card";
    write_file_atomically(plain.dir() / "other.json", other.to_text());
    TinyJob moved;
    configure(moved);
    moved.config.train.tuned_products = (plain.dir() / "other.json").string();
    try {
        moved.run();
        ADD_FAILURE() << "a table of another card was taken";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("run garam tune again"), std::string::npos);
    }
}

}  // namespace
}  // namespace garam
