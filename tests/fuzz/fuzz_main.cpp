// garam_fuzz [--seconds N] [--seed N] [--jobs N] [--kept FOLDER] [TARGET…]
//     runs the targets (all) for N seconds of wall time in all, prints a line for each, and keeps what it
//     found in FOLDER/findings; exit status 1 if that is something.
// garam_fuzz --run FILE TARGET
//     executes one input in this process and says how it ended.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "fuzz/worker.h"
#include "garam/core/parallel.h"
#include "testing/temp_dir.h"

namespace garam::fuzz {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// More inputs of one target that end a worker tell little more.
constexpr int kMostDeaths = 40;

struct Options {
    double seconds = 300;
    std::uint64_t seed = 0;  // 0: by the clock
    unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
    fs::path kept = "build/fuzz/kept";
    fs::path run;
    std::vector<const Target*> targets;
};

Options parse(int count, char** arguments) {
    Options options;
    for (int i = 1; i < count; ++i) {
        const std::string word = arguments[i];
        const auto value = [&]() -> std::string {
            if (++i >= count) throw std::runtime_error(word + " needs a value");
            return arguments[i];
        };
        if (word == "--seconds") {
            options.seconds = std::stod(value());
        } else if (word == "--seed") {
            options.seed = std::stoull(value());
        } else if (word == "--jobs") {
            options.jobs = static_cast<unsigned>(std::max(1, std::stoi(value())));
        } else if (word == "--kept") {
            options.kept = value();
        } else if (word == "--run") {
            options.run = value();
        } else if (const Target* target = find_target(word); target != nullptr) {
            options.targets.push_back(target);
        } else {
            std::string names;
            for (const Target& known : targets())
                names += " " + known.name;
            throw std::runtime_error("there is no target or option '" + word +
                                     "'; targets:" + names);
        }
    }
    if (options.targets.empty())
        for (const Target& target : targets())
            options.targets.push_back(&target);
    if (options.seed == 0)
        options.seed = static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
    return options;
}

int run_one(const Target& target, const fs::path& file) {
    set_num_threads(1);
    const WorkFolder folder;
    const Result result =
        execute(target, split(testing::read_file(file), target.files), folder.path());
    std::cout << (result.outcome == Outcome::accepted ? "accepted" : "refused: " + result.message)
              << "\n"
              << "at most " << result.peak_bytes << " bytes allocated\n";
    return 0;
}

// What makes two ends of workers the same finding: what was said, and the first place in garam.
std::string signature_of(const std::string& log) {
    std::istringstream lines(log);
    std::string what;
    std::string where;
    for (std::string line; std::getline(lines, line);) {
        const bool tells = line.find("ERROR:") != std::string::npos ||
                           line.find("runtime error:") != std::string::npos ||
                           line.find("garam_fuzz:") != std::string::npos;
        if (what.empty() && tells) what = line;
        const std::size_t in = line.find(" in garam::");
        if (where.empty() && in != std::string::npos &&
            line.find("garam::fuzz") == std::string::npos)
            where = line.substr(in + 4);
    }
    std::string signature = what + " " + where;
    signature.erase(std::remove_if(signature.begin(), signature.end(),
                                   [](unsigned char c) { return std::isdigit(c) != 0; }),
                    signature.end());
    return signature;
}

// One target with its worker, which is started again after each finding until the time is over.
class Campaign {
  public:
    Campaign(const Target& target, const Options& options, double seconds)
        : target_(target), options_(options), seconds_(seconds) {
        void* memory = ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::runtime_error("no memory to share with a worker");
        progress_ = new (memory) Progress;
        fs::create_directories(options_.kept / "log");
        log_ = options_.kept / "log" / (target_.name + ".txt");
    }
    ~Campaign() { ::munmap(progress_, sizeof(Progress)); }
    Campaign(const Campaign&) = delete;
    Campaign& operator=(const Campaign&) = delete;

    void start() {
        if (began_ == Clock::time_point{}) began_ = Clock::now();
        const double left = seconds_ - std::chrono::duration<double>(Clock::now() - began_).count();
        std::cout.flush();
        process_ = ::fork();
        if (process_ < 0) throw std::runtime_error("no process for a worker");
        if (process_ > 0) return;
        const int log = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
        ::dup2(log, STDERR_FILENO);
        run_worker(
            target_,
            {left, options_.seed + static_cast<std::uint64_t>(deaths_),
             options_.kept / "corpus" / target_.name, fs::path(GARAM_FUZZ_SEEDS) / target_.name},
            *progress_);
    }

    // After the end of its process; true when it was started again.
    bool ended(int status) {
        WorkFolder::remove(process_);
        const double spent = std::chrono::duration<double>(Clock::now() - began_).count();
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            ++deaths_;
            note(status);
            if (spent < seconds_ && deaths_ < kMostDeaths) {
                start();
                return true;
            }
        }
        spent_ = spent;
        report();
        return false;
    }

    pid_t process() const { return process_; }
    std::size_t findings() const { return findings_.size(); }
    std::uint64_t executions() const { return progress_->executions; }

  private:
    void note(int status) {
        const std::string log = testing::read_file(log_);
        if (!findings_.insert(signature_of(log)).second) return;
        const std::string_view input(progress_->input, progress_->input_size);
        char name[32];
        std::snprintf(name, sizeof name, "-%016llx",
                      static_cast<unsigned long long>(hash_of(input)));
        const fs::path folder = options_.kept / "findings";
        fs::create_directories(folder);
        const fs::path file = folder / (target_.name + name);
        std::ofstream(file, std::ios::binary) << input;
        std::ofstream(file.string() + ".txt") << log;
        std::cout << "FINDING " << target_.name << ": "
                  << (WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                          : "exit status " + std::to_string(WEXITSTATUS(status)))
                  << ", " << input.size() << " bytes: " << file.string() << "\n  "
                  << log.substr(0, log.find('\n')) << "\n  again: garam_fuzz --run "
                  << file.string() << " " << target_.name << std::endl;
    }

    void report() const {
        std::printf("%-18s %10llu %9.0f %7llu %8zu %8.0f%% %7.0f%% %8zu\n", target_.name.c_str(),
                    static_cast<unsigned long long>(progress_->executions),
                    static_cast<double>(progress_->executions) / spent_,
                    static_cast<unsigned long long>(progress_->corpus),
                    progress_->coverage.entries(),
                    100.0 * static_cast<double>(progress_->accepted) /
                        static_cast<double>(std::max<std::uint64_t>(progress_->executions, 1)),
                    100.0 * progress_->largest_share, findings_.size());
        std::fflush(stdout);
    }

    const Target& target_;
    const Options& options_;
    double seconds_;
    Progress* progress_ = nullptr;
    fs::path log_;
    pid_t process_ = -1;
    Clock::time_point began_{};
    double spent_ = 1;
    int deaths_ = 0;
    std::set<std::string> findings_;
};

int run_all(const Options& options) {
    const auto count = static_cast<double>(options.targets.size());
    const double jobs = std::min<double>(options.jobs, count);
    const double each = options.seconds * jobs / count;
    std::printf("%zu targets, %.1f s each, %.0f at once; seed %llu\n", options.targets.size(), each,
                jobs, static_cast<unsigned long long>(options.seed));
    std::printf("%-18s %10s %9s %7s %8s %9s %8s %8s\n", "target", "executions", "inputs/s",
                "corpus", "branches", "accepted", "memory", "findings");
    std::fflush(stdout);
    std::map<pid_t, std::unique_ptr<Campaign>> running;
    std::size_t next = 0;
    std::size_t findings = 0;
    std::uint64_t executions = 0;
    while (next < options.targets.size() || !running.empty()) {
        while (next < options.targets.size() && static_cast<double>(running.size()) < jobs) {
            auto campaign = std::make_unique<Campaign>(*options.targets[next++], options, each);
            campaign->start();
            const pid_t process = campaign->process();
            running[process] = std::move(campaign);
        }
        int status = 0;
        const pid_t process = ::waitpid(-1, &status, 0);
        const auto found = running.find(process);
        if (found == running.end()) continue;
        std::unique_ptr<Campaign> campaign = std::move(found->second);
        running.erase(found);
        if (campaign->ended(status)) {
            const pid_t again = campaign->process();
            running[again] = std::move(campaign);
        } else {
            findings += campaign->findings();
            executions += campaign->executions();
        }
    }
    std::printf("%llu executions, %zu findings\n", static_cast<unsigned long long>(executions),
                findings);
    return findings == 0 ? 0 : 1;
}

}  // namespace
}  // namespace garam::fuzz

int main(int count, char** arguments) {
    using namespace garam::fuzz;
    try {
        const Options options = parse(count, arguments);
        if (options.run.empty()) return run_all(options);
        if (options.targets.size() != 1) throw std::runtime_error("--run FILE takes one target");
        return run_one(*options.targets[0], options.run);
    } catch (const std::exception& error) {
        std::cerr << "garam_fuzz: " << error.what() << "\n";
        return 2;
    }
}
