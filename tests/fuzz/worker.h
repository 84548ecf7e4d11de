// A process that executes inputs of one target until its time is over or an input ends it. What it did so far
// is in memory shared with the process that started it.
#pragma once

#include <cstdint>
#include <filesystem>

#include "fuzz/coverage.h"
#include "fuzz/target.h"

namespace garam::fuzz {

constexpr int kException = 77;  // the exit status after an exception that is no garam::Error

struct Progress {
    static constexpr std::size_t kLargest = std::size_t{2} << 20;

    CoverageMap coverage;
    std::uint64_t executions = 0;
    std::uint64_t accepted = 0;
    std::uint64_t corpus = 0;  // inputs, seeds included
    std::uint64_t seeds_begun =
        0;  // an input of the corpus that ends the worker is passed over by the next
    double largest_share = 0;    // of the memory that the limit allows
    std::size_t input_size = 0;  // of the input under way
    char input[kLargest] = {};
};

struct WorkerOptions {
    double seconds = 0;
    std::uint64_t seed = 0;
    std::filesystem::path corpus;  // folder of inputs that showed something new; grows
    std::filesystem::path seeds;   // folder of inputs kept with the sources
};

// Runs in a process of its own.
[[noreturn]] void run_worker(const Target& target, const WorkerOptions& options,
                             Progress& progress);

std::uint64_t hash_of(std::string_view bytes);

}  // namespace garam::fuzz
