#include "tokenizer_data.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>

#include "testing/test_data.h"

namespace garam::testing {
namespace {

namespace fs = std::filesystem;

// Copies `from` under the name given; "x.json.gz" becomes x.json.
void place(const fs::path& from, std::string name, const TempDir& folder) {
    const bool packed = fs::path(name).extension() == ".gz";
    if (packed) name.resize(name.size() - 3);
    const fs::path to = folder / name;
    if (packed) {
        const std::string command = "gzip -dc '" + from.string() + "' > '" + to.string() + "'";
        if (std::system(command.c_str()) != 0)
            throw std::runtime_error("gzip failed on " + from.string());
    } else {
        fs::copy_file(from, to, fs::copy_options::overwrite_existing);
        fs::permissions(to, fs::perms::owner_write, fs::perm_options::add);
    }
}

}  // namespace

bool collect_tokenizer_files(const std::string& name, const TempDir& folder) {
    bool found = false;
    const auto take = [&](const fs::path& from, const std::string& as) {
        if (from.filename() == "model.safetensors" ||
            from.filename() == "greedy_golden.safetensors")
            return;
        place(from, as, folder);
        found = true;
    };
    for (const fs::path& source :
         {data_dir() / "tokenizers" / name, data_dir() / "golden" / (name + "-hf")}) {
        if (!fs::is_directory(source)) continue;
        for (const auto& entry : fs::directory_iterator(source))
            if (entry.is_regular_file()) take(entry.path(), entry.path().filename().string());
    }
    const fs::path flat = data_dir() / "tokenizers";
    if (fs::is_directory(flat)) {
        for (const auto& entry : fs::directory_iterator(flat)) {
            const std::string file = entry.path().filename().string();
            if (entry.is_regular_file() && file.compare(0, name.size() + 1, name + ".") == 0)
                take(entry.path(), file.substr(name.size() + 1));
        }
    }
    return found;
}

const Tokenizer* reference_tokenizer(const std::string& name) {
    static std::map<std::string, std::unique_ptr<Tokenizer>> loaded;
    if (const auto known = loaded.find(name); known != loaded.end()) return known->second.get();
    const TempDir folder;
    std::unique_ptr<Tokenizer> tokenizer;
    if (collect_tokenizer_files(name, folder)) tokenizer = load_tokenizer(folder.path());
    return (loaded[name] = std::move(tokenizer)).get();
}

namespace {

std::vector<std::string> names_of_vectors(const fs::path& folder) {
    std::vector<std::string> names;
    for (const std::string& file : files_in(folder, ".jsonl"))
        names.push_back(file.substr(0, file.size() - 6));
    return names;
}

}  // namespace

std::vector<std::string> golden_tokenizers() {
    return names_of_vectors(data_dir() / "golden" / "tokenizers");
}

std::vector<std::string> golden_templates() {
    return names_of_vectors(data_dir() / "golden" / "chat");
}

std::string case_name(const ::testing::TestParamInfo<std::string>& info) {
    std::string name = info.param;
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    return name;
}

}  // namespace garam::testing
