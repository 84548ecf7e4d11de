// The plan against what the system was really asked for: every mapping that the process makes is counted
// by an mmap of this test's own, not by garam's ledger.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>

#include "train/tiny_job.h"

namespace {

std::mutex lock;
std::map<void*, std::size_t> mappings;
std::size_t mapped = 0;
std::size_t peak = 0;
std::atomic<bool> counting = false;

}  // namespace

// Memory for use (readable and writable, not backed by a file); the planner's address space without
// access and mapped files are not.
extern "C" void* mmap(void* address, size_t length, int protection, int flags, int file,
                      off_t offset) {
    void* const result = reinterpret_cast<void*>(
        syscall(SYS_mmap, address, length, protection, flags, file, offset));
    if (counting && result != MAP_FAILED && file == -1 &&
        (protection & (PROT_READ | PROT_WRITE)) == (PROT_READ | PROT_WRITE)) {
        const std::lock_guard<std::mutex> guard(lock);
        mappings[result] = length;
        mapped += length;
        peak = std::max(peak, mapped);
    }
    return result;
}

extern "C" int munmap(void* address, size_t length) {
    if (counting) {
        const std::lock_guard<std::mutex> guard(lock);
        if (const auto found = mappings.find(address); found != mappings.end()) {
            mapped -= found->second;
            mappings.erase(found);
        }
    }
    return static_cast<int>(syscall(SYS_munmap, address, length));
}

namespace garam {
namespace {

struct Counted {
    EndReport end;
    std::int64_t peak = 0;
};

Counted run_counted(testing::TinyJob& job) {
    {
        const std::lock_guard<std::mutex> guard(lock);
        mappings.clear();
        mapped = peak = 0;
    }
    counting = true;
    Counted result;
    result.end = job.run();
    counting = false;
    result.peak = static_cast<std::int64_t>(peak);
    return result;
}

TEST(MemoryPlan, EqualsWhatTheRunAllocatesToTheByte) {
    int variant = 0;
    for (const auto configure : std::vector<void (*)(JobConfig&)>{
             [](JobConfig&) {},
             [](JobConfig& c) { c.train.gradient_checkpointing = "true"; },
             [](JobConfig& c) { c.train.gradient_checkpointing = "block+tiles"; },
             [](JobConfig& c) { c.train.bf16 = true; },
             [](JobConfig& c) { c.train.packing = true; },
             [](JobConfig& c) { c.train.method = "full"; },
             [](JobConfig& c) {
                 c.train.optim = "sgd";
                 c.lora.lora_dropout = 0;
             },
             [](JobConfig& c) { c.train.per_device_train_batch_size = 5; },
             [](JobConfig& c) {
                 c.lora.target_modules = {"q_proj", "embed_tokens", "lm_head"};
                 c.lora.lora_dropout = 0.1;
             },
             [](JobConfig& c) {
                 c.train.bf16 = true;
                 c.lora.target_modules = {"embed_tokens"};
                 c.lora.modules_to_save = {"lm_head", "input_layernorm"};
             },
             [](JobConfig& c) {
                 c.lora.trainable_token_indices = {256, 257, 5};
             },
             [](JobConfig& c) {
                 c.four_bit.load_in_4bit = true;
                 c.four_bit.use_double_quant = true;
                 c.lora.use_dora = true;
             },
             // Answers that take less than a step, and more.
             [](JobConfig& c) {
                 c.eval.metrics = {"f1"};
                 c.eval.max_new_tokens = 3;
             },
             [](JobConfig& c) {
                 c.eval.metrics = {"f1"};
                 c.eval.max_new_tokens = 400;
             },
         }) {
        // Rows of one length: the largest micro-batch of the plan is one that the run has.
        testing::TinyJob job(std::vector<int>(12, 31));
        configure(job.config);
        const auto prepared = prepare(job.config);
        const MemoryPlan plan = prepared->plan();
        const Counted run = run_counted(job);
        EXPECT_EQ(run.peak, plan.total_bytes) << "variant " << variant;
        EXPECT_EQ(run.end.peak_memory_bytes, plan.total_bytes) << "variant " << variant;
        // The step's memory was not only reserved but needed, purpose by purpose.
        std::int64_t used = 0;
        for (const auto& [purpose, bytes] : run.end.peak_by_purpose)
            used += bytes;
        EXPECT_EQ(used, plan.total_bytes) << "variant " << variant;
        ++variant;
    }
}

// Rows of all lengths: no micro-batch needs more than the plan, whatever the order.
TEST(MemoryPlan, CoversEveryMicroBatch) {
    for (const std::uint64_t seed : {1, 2, 3}) {
        testing::TinyJob job;
        job.config.train.seed = static_cast<std::int64_t>(seed);
        job.config.train.max_steps = 12;
        const MemoryPlan plan = prepare(job.config)->plan();
        const Counted run = run_counted(job);
        EXPECT_EQ(run.peak, plan.total_bytes);
    }
}

TEST(MemoryPlan, RecomputeNeedsLess) {
    testing::TinyJob job;
    const auto kept = prepare(job.config)->plan();
    job.config.train.gradient_checkpointing = "true";
    EXPECT_LT(prepare(job.config)->plan().total_bytes, kept.total_bytes);
}

}  // namespace
}  // namespace garam
