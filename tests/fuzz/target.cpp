#include "fuzz/target.h"

#include <unistd.h>

#include <fstream>
#include <stdexcept>

#include "fuzz/limits.h"
#include "garam/core/error.h"

namespace garam::fuzz {
namespace {

namespace fs = std::filesystem;

fs::path work_folder_of(int process) {
    const fs::path memory = "/dev/shm";
    const bool is_there = ::access(memory.c_str(), W_OK) == 0;
    return (is_there ? memory : fs::temp_directory_path()) /
           ("garam-fuzz-" + std::to_string(process));
}

}  // namespace

std::string_view Execution::bytes(std::string_view name) const {
    for (const InputFile& file : files)
        if (file.name == name) return file.bytes;
    return {};
}

const std::vector<Target>& targets() {
    static const std::vector<Target> all = [] {
        std::vector<Target> list;
        for (auto part : {model_file_targets(), text_targets(), source_targets(), job_targets()})
            list.insert(list.end(), part.begin(), part.end());
        return list;
    }();
    return all;
}

const Target* find_target(std::string_view name) {
    for (const Target& target : targets())
        if (target.name == name) return &target;
    return nullptr;
}

WorkFolder::WorkFolder() : path_(work_folder_of(::getpid())) {
    fs::create_directories(path_);
}

WorkFolder::~WorkFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

void WorkFolder::remove(int process) {
    std::error_code ignored;
    fs::remove_all(work_folder_of(process), ignored);
}

Result execute(const Target& target, const InputFiles& files, const fs::path& folder) {
    std::size_t size = 0;
    for (const std::string& name : target.files) {
        const fs::path path = folder / name;
        ::unlink(path.c_str());
        for (const InputFile& file : files) {
            if (file.name != name) continue;
            size += file.bytes.size();
            std::ofstream out(path, std::ios::binary);
            out << file.bytes;
            out.close();
            if (!out) throw std::runtime_error("cannot write " + path.string());
        }
    }
    Result result;
    const Execution execution{files, folder};
    const LimitedRun limited({target.bytes + target.bytes_per_byte * size, target.cpu_seconds});
    try {
        target.run(execution);
    } catch (const Error& error) {
        result.outcome = Outcome::refused;
        result.message = error.what();
    }
    result.peak_bytes = LimitedRun::peak_bytes();
    return result;
}

void expect(bool condition, const char* what) {
    if (!condition) throw std::logic_error(what);
}

}  // namespace garam::fuzz
