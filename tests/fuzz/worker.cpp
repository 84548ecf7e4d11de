#include "fuzz/worker.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <typeinfo>

#include "fuzz/mutate.h"
#include "garam/core/parallel.h"
#include "testing/temp_dir.h"

namespace garam::fuzz {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Slower inputs are not kept: their like would take all the time.
constexpr double kSlow = 0.05;

std::vector<std::string> inputs_in(const fs::path& folder) {
    std::vector<fs::path> paths;
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
        if (it->is_regular_file()) paths.push_back(it->path());
    std::sort(paths.begin(), paths.end());
    std::vector<std::string> inputs;
    for (const fs::path& path : paths)
        inputs.push_back(testing::read_file(path));
    return inputs;
}

std::size_t size_of(const InputFiles& files) {
    std::size_t size = 0;
    for (const InputFile& file : files)
        size += file.bytes.size();
    return size;
}

class Worker {
  public:
    Worker(const Target& target, const WorkerOptions& options, Progress& progress)
        : target_(target), options_(options), progress_(progress), random_(options.seed) {}

    void run() {
        const auto end = Clock::now() + std::chrono::duration<double>(options_.seconds);
        read_corpus();
        while (Clock::now() < end) {
            InputFiles files = choose();
            mutate(files, choose(), target_.words, random_);
            if (target_.mend && random_.below(8) != 0) target_.mend(files);
            if (execute_one(files)) keep(std::move(files));
        }
    }

  private:
    void read_corpus() {
        std::vector<InputFiles> all = target_.seeds();
        for (const fs::path& folder : {options_.seeds, options_.corpus})
            for (const std::string& input : inputs_in(folder))
                all.push_back(split(input, target_.files));
        progress_.corpus = all.size();
        std::uint64_t number = 0;
        for (InputFiles& files : all) {
            if (number++ >= progress_.seeds_begun) {
                ++progress_.seeds_begun;
                execute_one(files);
                if (outcome_ == Outcome::accepted) accepted_.push_back(corpus_.size());
            }
            corpus_.push_back(std::move(files));
        }
        if (corpus_.empty()) corpus_.push_back(split("", target_.files));
    }

    // New inputs are nearer to what has not been seen; those that were accepted, fewer by far, lead deeper.
    const InputFiles& choose() {
        if (!accepted_.empty() && random_.below(2) == 0)
            return corpus_[accepted_[random_.below(accepted_.size())]];
        const std::size_t count = corpus_.size();
        const std::size_t late = random_.below(2) == 0 ? 0 : count - (count + 3) / 4;
        return corpus_[late + random_.below(count - late)];
    }

    // Whether it showed something new and may be kept.
    bool execute_one(const InputFiles& files) {
        const std::string input = join(files);
        outcome_ = Outcome::refused;
        if (input.size() > Progress::kLargest) return false;
        std::memcpy(progress_.input, input.data(), input.size());
        progress_.input_size = input.size();
        const auto begin = Clock::now();
        clear_coverage();
        Result result;
        try {
            result = execute(target_, files, folder_.path());
        } catch (const std::exception& error) {
            std::fprintf(stderr, "garam_fuzz: %s: %s\n", typeid(error).name(), error.what());
            std::fflush(stderr);
            _exit(kException);
        }
        outcome_ = result.outcome;
        ++progress_.executions;
        progress_.accepted += result.outcome == Outcome::accepted;
        const auto allowed =
            static_cast<double>(target_.bytes + target_.bytes_per_byte * size_of(files));
        progress_.largest_share =
            std::max(progress_.largest_share, static_cast<double>(result.peak_bytes) / allowed);
        const bool is_new = progress_.coverage.add_new();
        return is_new && std::chrono::duration<double>(Clock::now() - begin).count() < kSlow;
    }

    void keep(InputFiles files) {
        const std::string input = join(files);
        char name[32];
        std::snprintf(name, sizeof name, "%016llx",
                      static_cast<unsigned long long>(hash_of(input)));
        std::ofstream(options_.corpus / name, std::ios::binary) << input;
        if (outcome_ == Outcome::accepted) accepted_.push_back(corpus_.size());
        corpus_.push_back(std::move(files));
        ++progress_.corpus;
        ++progress_.seeds_begun;  // a worker after this one reads it as run
    }

    const Target& target_;
    const WorkerOptions& options_;
    Progress& progress_;
    Random random_;
    WorkFolder folder_;
    std::vector<InputFiles> corpus_;
    std::vector<std::size_t> accepted_;   // of the corpus, as far as this worker executed it
    Outcome outcome_ = Outcome::refused;  // of the last execution
};

}  // namespace

std::uint64_t hash_of(std::string_view bytes) {
    std::uint64_t hash = 0xcbf29ce484222325ull;
    for (const char byte : bytes)
        hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3ull;
    return hash;
}

void run_worker(const Target& target, const WorkerOptions& options, Progress& progress) {
    set_num_threads(1);
    fs::create_directories(options.corpus);
    try {
        Worker(target, options, progress).run();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "garam_fuzz: the fuzzer itself: %s\n", error.what());
        std::fflush(stderr);
        _exit(kException);
    }
    _exit(0);
}

}  // namespace garam::fuzz
