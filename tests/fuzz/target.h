// One reader of files that the fuzzer drives, and how an input is executed on it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/input.h"

namespace garam::fuzz {

struct Execution {
    const InputFiles& files;
    std::filesystem::path folder;  // holds exactly these files

    std::filesystem::path operator/(std::string_view name) const { return folder / name; }
    // Its content; empty when the input lacks it.
    std::string_view bytes(std::string_view name) const;
};

struct Target {
    std::string name;
    std::vector<std::string> files;  // that it reads
    // Live allocations stay below bytes + bytes_per_byte * (bytes of the files).
    std::size_t bytes = 0;
    std::size_t bytes_per_byte = 0;
    double cpu_seconds = 1;  // under the sanitizers, which take several times as long
    std::vector<std::string> words;
    std::function<std::vector<InputFiles>()> seeds;
    // Reads the files as the program does. Returns, or throws garam::Error; anything else is a finding.
    std::function<void(const Execution&)> run;
    // Changes an input so that checks which no change passes (checksums) hold again; may be empty.
    std::function<void(InputFiles&)> mend;
};

const std::vector<Target>& targets();
const Target* find_target(std::string_view name);

// The lists that make it up.
std::vector<Target> model_file_targets();  // safetensors, GGUF, configs, adapters
std::vector<Target> text_targets();        // tokenizers, templates, rows
std::vector<Target> source_targets();      // CSV, JSON documents, Arrow, Parquet, packed files
std::vector<Target> job_targets();         // YAML, run folders, checkpoints, tables, event files

// Where inputs are written for execution: memory-backed if there is such a file system.
class WorkFolder {
  public:
    WorkFolder();
    ~WorkFolder();
    WorkFolder(const WorkFolder&) = delete;
    WorkFolder& operator=(const WorkFolder&) = delete;
    // What another process made and could not remove.
    static void remove(int process);

    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

enum class Outcome { accepted, refused };
struct Result {
    Outcome outcome = Outcome::accepted;
    std::string message;  // of the refusal
    std::size_t peak_bytes = 0;
};
// Writes the files, runs the target under its limits. What is neither success nor garam::Error goes on to the
// caller, if it is an exception; so does a file that cannot be written.
Result execute(const Target& target, const InputFiles& files, const std::filesystem::path& folder);

// A check of the fuzzer's own, as of a round trip.
void expect(bool condition, const char* what);

}  // namespace garam::fuzz
