#include "garam/train/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <set>

#include "garam/core/error.h"
#include "testing/temp_dir.h"
#include "train/run_state.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using testing::contents_of;
using testing::RunTensors;
using testing::state_at;
using testing::TempDir;

template <typename Call>
std::string error_of(Call call) {
    try {
        call();
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

std::set<std::string> names_in(const fs::path& folder) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder))
        names.insert(entry.path().filename().string());
    return names;
}

// The pattern of a message: a file's name, and a word that tells what is wrong with it.
void expect_names(const std::string& message, const std::string& file, const std::string& what) {
    EXPECT_NE(message.find(file), std::string::npos) << message;
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(Checkpoint, EverythingComesBackBitForBit) {
    const TempDir dir;
    const RunTensors run(0.1f);
    const fs::path folder = save_checkpoint(dir / "out", contents_of(run, 12));
    EXPECT_EQ(folder, dir / "out" / "checkpoint-12");
    EXPECT_EQ(names_in(dir / "out"), std::set<std::string>{"checkpoint-12"});
    EXPECT_EQ(names_in(folder),
              (std::set<std::string>{"adapter_config.json", "adapter_model.safetensors",
                                     "optimizer.safetensors", "trainer_state.json"}));
    RunTensors resumed(9.0f);
    const Checkpoint checkpoint = Checkpoint::open(folder);
    EXPECT_EQ(checkpoint.state(), state_at(12));
    checkpoint.restore(resumed.masters, resumed.optimizer);
    EXPECT_EQ(resumed.memory, run.memory);
}

TEST(Checkpoint, MastersOfABf16ModelGetAFileOfTheirOwn) {
    const TempDir dir;
    const RunTensors run(0.1f);
    CheckpointContents contents = contents_of(run, 3);
    contents.masters_file.clear();
    contents.write_model = [](const fs::path& folder) {
        std::ofstream(folder / "model.safetensors") << "bf16 weights";
    };
    const fs::path folder = save_checkpoint(dir.path(), contents);
    EXPECT_TRUE(fs::exists(folder / "masters.safetensors"));
    RunTensors resumed(9.0f);
    Checkpoint::open(folder).restore(resumed.masters, resumed.optimizer);
    EXPECT_EQ(resumed.memory, run.memory);
}

TEST(Checkpoint, AnOptimiserWithoutStatesNeedsNoFile) {
    const TempDir dir;
    const RunTensors run(0.5f);
    CheckpointContents contents = contents_of(run, 1);
    contents.optimizer.clear();
    const fs::path folder = save_checkpoint(dir.path(), contents);
    EXPECT_FALSE(fs::exists(folder / "optimizer.safetensors"));
    RunTensors resumed(9.0f);
    const Checkpoint checkpoint = Checkpoint::open(folder);
    checkpoint.restore(resumed.masters, {});
    EXPECT_EQ(resumed.memory[0], run.memory[0]);
    // A run whose optimiser has states cannot go on from it as if nothing had happened.
    expect_names(error_of([&] { checkpoint.restore(resumed.masters, resumed.optimizer); }),
                 "checkpoint-1", "train.optim");
}

TEST(Checkpoint, SavingAStepAgainReplacesIt) {
    const TempDir dir;
    RunTensors run(1.0f);
    save_checkpoint(dir.path(), contents_of(run, 5));
    run.set(2.0f);
    const fs::path folder = save_checkpoint(dir.path(), contents_of(run, 5));
    RunTensors resumed(9.0f);
    Checkpoint::open(folder).restore(resumed.masters, resumed.optimizer);
    EXPECT_EQ(resumed.memory, run.memory);
    EXPECT_EQ(names_in(dir.path()), std::set<std::string>{"checkpoint-5"});
}

TEST(Checkpoint, AModelFileThatIsNotTheMastersIsABug) {
    const TempDir dir;
    const RunTensors run(1.0f);
    const RunTensors other(1.5f);
    CheckpointContents contents = contents_of(run, 5);
    contents.masters = other.masters;
    EXPECT_THROW(save_checkpoint(dir.path(), contents), Bug);
    EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(Checkpoint, NothingNonFiniteIsEverWritten) {
    const TempDir dir;
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        for (const bool in_state : {false, true}) {
            RunTensors run(1.0f);
            const auto& [name, tensor] = in_state ? run.optimizer[3] : run.masters[1];
            tensor.data<float>()[14] = bad;  // the last one
            expect_names(error_of([&] { save_checkpoint(dir.path(), contents_of(run, 5)); }),
                         name + "[14] is ", "not written");
            EXPECT_TRUE(names_in(dir.path()).empty());
        }
    }
}

TEST(Checkpoint, NothingNonFiniteIsEverRead) {
    const TempDir dir;
    RunTensors run(1.0f);
    // Such a file comes from elsewhere: written with a sound checksum by another program.
    const fs::path folder = save_checkpoint(dir.path(), contents_of(run, 5));
    run.masters[0].second.data<float>()[2] = std::numeric_limits<float>::quiet_NaN();
    write_safetensors(folder / "adapter_model.safetensors", run.masters);
    StateFile stored = read_state_file(folder);
    stored.files["adapter_model.safetensors"] = record_file(folder / "adapter_model.safetensors");
    write_state_file(folder, stored);
    RunTensors resumed(9.0f);
    const auto before = resumed.memory;
    const Checkpoint checkpoint = Checkpoint::open(folder);
    expect_names(error_of([&] { checkpoint.restore(resumed.masters, resumed.optimizer); }),
                 "lora_A.weight[2]", "not finite");
    EXPECT_EQ(resumed.memory, before);
}

// CASES 12: whatever file is gone, cut or changed, the checkpoint is refused and the file named.
TEST(Checkpoint, AnyMissingShortOrChangedFileIsRefusedByName) {
    const TempDir dir;
    const RunTensors run(1.0f);
    const fs::path folder = save_checkpoint(dir / "good", contents_of(run, 5));
    const auto files = names_in(folder);
    ASSERT_EQ(files.size(), 4u);
    for (const std::string& name : files) {
        const fs::path copy = dir / "bad" / "checkpoint-5";
        const auto fresh = [&] {
            fs::remove_all(copy);
            fs::create_directories(copy.parent_path());
            fs::copy(folder, copy);
        };
        const std::string content = testing::read_file(folder / name);
        fresh();
        fs::remove(copy / name);
        expect_names(error_of([&] { Checkpoint::open(copy); }), name, "missing");
        EXPECT_FALSE(find_last_checkpoint(dir / "bad").folder);

        fresh();
        std::ofstream(copy / name, std::ios::binary) << content.substr(0, content.size() / 2);
        expect_names(error_of([&] { Checkpoint::open(copy); }), name, "");
        EXPECT_FALSE(find_last_checkpoint(dir / "bad").folder);
        EXPECT_EQ(find_last_checkpoint(dir / "bad").passed_over.size(), 1u);

        // One flipped bit, at many places.
        for (std::size_t at = 0; at < content.size(); at += 1 + content.size() / 97) {
            std::string changed = content;
            changed[at] = static_cast<char>(changed[at] ^ 0x04);
            fresh();
            std::ofstream(copy / name, std::ios::binary) << changed;
            // White space between the members of the state file carries nothing.
            if (name == kStateFileName && (content[at] == ' ' || content[at] == '\n')) continue;
            expect_names(error_of([&] { Checkpoint::open(copy); }), name, "");
        }
    }
}

TEST(Checkpoint, TheStateFileMayBeHostile) {
    const TempDir dir;
    const RunTensors run(1.0f);
    const fs::path folder = save_checkpoint(dir.path(), contents_of(run, 5));
    const StateFile good = read_state_file(folder);
    const auto refused = [&](auto change) {
        StateFile stored = good;
        change(stored);
        write_state_file(folder, stored);
        return error_of([&] { Checkpoint::open(folder); });
    };
    expect_names(refused([](StateFile& s) {
                     s.files["../../etc/passwd"] = {1, "0"};
                 }),
                 "trainer_state.json", "out of the checkpoint");
    expect_names(refused([](StateFile& s) {
                     s.files["/etc/passwd"] = {1, "0"};
                 }),
                 "trainer_state.json", "out of the checkpoint");
    expect_names(refused([](StateFile& s) { s.masters_file = "../x.safetensors"; }),
                 "trainer_state.json", "not listed");
    expect_names(refused([](StateFile& s) { s.state.global_step = -1; }), "global_step",
                 "negative");
    expect_names(refused([](StateFile& s) { s.files["optimizer.safetensors"].bytes = 1; }),
                 "optimizer.safetensors", "bytes");
    for (const char* text :
         {"", "[]", "{}", "null", "{\"format\": 3}", "{\"format\": \"garam checkpoint\"}",
          "{\"global_step\": 5, \"epoch\": 1.0}"}) {
        std::ofstream(folder / kStateFileName) << text;
        expect_names(error_of([&] { Checkpoint::open(folder); }), "trainer_state.json", "");
    }
    // Many members, which no reader may look up one by one.
    std::string text = R"({"format": "garam checkpoint", "format_version": 1, "checksum": "0")";
    for (int i = 0; i < 300'000; ++i)
        text += ",\"key" + std::to_string(i) + "\":0";
    std::ofstream(folder / kStateFileName) << text << "}";
    const auto begun = std::chrono::steady_clock::now();
    expect_names(error_of([&] { Checkpoint::open(folder); }), "trainer_state.json", "damaged");
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(30));
}

TEST(Checkpoint, ACheckpointOfAnotherRunIsRefusedAndNothingChanges) {
    const TempDir dir;
    const RunTensors run(1.0f);
    const Checkpoint checkpoint =
        Checkpoint::open(save_checkpoint(dir.path(), contents_of(run, 5)));
    const auto refused = [&](RunTensors& other) {
        const auto before = other.memory;
        const std::string message =
            error_of([&] { checkpoint.restore(other.masters, other.optimizer); });
        EXPECT_EQ(other.memory, before);
        return message;
    };
    RunTensors wider(2.0f, 6);
    expect_names(refused(wider), "[3, 5]", "[3, 6]");
    RunTensors fewer(2.0f);
    fewer.masters.pop_back();
    expect_names(refused(fewer), "lora_B.weight", "not trained by this run");
    RunTensors more(2.0f);
    more.masters[0].first = "base_model.model.k_proj.lora_A.weight";
    expect_names(refused(more), "k_proj.lora_A.weight", "missing");
    RunTensors other_optimizer(2.0f);
    other_optimizer.optimizer[3].first = "momentum_buffer";  // masters alone would fit
    expect_names(refused(other_optimizer), "optimizer.safetensors", "train.optim");
}

TEST(Checkpoint, DifferencesOfTwoRunsAreToldInTheUsersWords) {
    const RunIdentity stored = state_at(1).identity;
    EXPECT_TRUE(differences(stored, stored).empty());
    RunIdentity now = stored;
    now.max_length = 1024;
    now.packing = false;
    now.data_fingerprint = "d2";
    const auto found = differences(now, stored);
    ASSERT_EQ(found.size(), 3u);
    EXPECT_EQ(found[0], "train.max_length is 1024, the checkpoint has 512");
    EXPECT_EQ(found[1], "train.packing is false, the checkpoint has true");
    EXPECT_NE(found[2].find("data.train"), std::string::npos);
    RunIdentity rate = stored;
    RunIdentity other_rate = stored;
    rate.config_fingerprint = R"({"model": "a", "train.optim": "sgd", "lora.r": 8})";
    other_rate.config_fingerprint = R"({"model": "b", "train.optim": "sgd"})";
    EXPECT_EQ(differences(rate, other_rate),
              (std::vector<std::string>{"model is another one than the checkpoint's",
                                        "lora.r is 8, the checkpoint has none"}));
    for (auto change : {+[](RunIdentity& r) { r.seed = 1; },
                        +[](RunIdentity& r) { r.per_device_train_batch_size = 1; },
                        +[](RunIdentity& r) { r.gradient_accumulation_steps = 1; },
                        +[](RunIdentity& r) { r.config_fingerprint = "x"; }}) {
        RunIdentity changed = stored;
        change(changed);
        EXPECT_EQ(differences(changed, stored).size(), 1u);
    }
}

TEST(Checkpoint, TheLastOneIsTheHighestCompleteStep) {
    const TempDir dir;
    EXPECT_FALSE(find_last_checkpoint(dir / "absent").folder);
    EXPECT_FALSE(find_last_checkpoint(dir.path()).folder);
    const RunTensors run(1.0f);
    for (const std::int64_t step : {9, 10, 100})
        save_checkpoint(dir.path(), contents_of(run, step));
    dir.write(".checkpoint-200.tmp-1/trainer_state.json", "{}");
    dir.write("checkpoint-300x/trainer_state.json", "{}");
    dir.write("checkpoint--5/trainer_state.json", "{}");
    dir.write("checkpoint-400", "a file");
    LastCheckpoint last = find_last_checkpoint(dir.path());
    EXPECT_EQ(last.folder, dir / "checkpoint-100");
    EXPECT_TRUE(last.passed_over.empty());
    // Passed over, but not without a word.
    fs::remove(dir / "checkpoint-100" / "optimizer.safetensors");
    dir.write("checkpoint-500/trainer_state.json", R"({"global_step": 500, "log_history": []})");
    last = find_last_checkpoint(dir.path());
    EXPECT_EQ(last.folder, dir / "checkpoint-10");
    ASSERT_EQ(last.passed_over.size(), 2u);
    expect_names(last.passed_over[0], "checkpoint-500", "not written by garam");
    expect_names(last.passed_over[1], "optimizer.safetensors", "missing");
}

TEST(Checkpoint, RotationKeepsTheNewestAndTheBest) {
    const RunTensors run(1.0f);
    const auto left = [&](std::int64_t limit, const std::string& best) {
        const TempDir dir;
        for (const std::int64_t step : {2, 4, 6, 10, 8})
            save_checkpoint(dir.path(), contents_of(run, step));
        dir.write("checkpoint-3/model.bin", "somebody else's");
        dir.write(".checkpoint-1.tmp-77/optimizer.safetensors", "killed");
        dir.write("keep.txt", "");
        rotate_checkpoints(dir.path(), limit, best);
        auto names = names_in(dir.path());
        EXPECT_EQ(names.erase("checkpoint-3"), 1u);
        EXPECT_EQ(names.erase("keep.txt"), 1u);
        std::string text;
        for (const auto& name : names)
            text += name.substr(name.find('-') + 1) + " ";
        return text;
    };
    EXPECT_EQ(left(0, ""), "10 2 4 6 8 ");
    EXPECT_EQ(left(9, ""), "10 2 4 6 8 ");
    EXPECT_EQ(left(2, ""), "10 8 ");
    EXPECT_EQ(left(1, ""), "10 ");
    EXPECT_EQ(left(2, "checkpoint-4"), "10 4 ");
    EXPECT_EQ(left(3, "checkpoint-4"), "10 4 8 ");
    EXPECT_EQ(left(1, "checkpoint-4"), "10 4 ");  // both must stay
    EXPECT_EQ(left(2, "checkpoint-8"), "10 8 ");
    EXPECT_EQ(left(1, "checkpoint-10"), "10 ");
}

TEST(Checkpoint, AFolderThatIsBeingWrittenIsNoLeftover) {
    const TempDir dir;
    const RunTensors run(1.0f);
    CheckpointContents contents = contents_of(run, 5);
    const auto write_model = contents.write_model;
    contents.write_model = [&](const fs::path& folder) {
        write_model(folder);
        rotate_checkpoints(dir.path(), 1, "");  // of another process in the same output folder
    };
    Checkpoint::open(save_checkpoint(dir.path(), contents));
}

}  // namespace
}  // namespace garam
