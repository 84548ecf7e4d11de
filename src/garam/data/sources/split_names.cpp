#include "garam/data/sources/split_names.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>
#include <utility>

#include "garam/core/error.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

constexpr std::pair<std::string_view, std::string_view> kWords[] = {
    {"train", "train"},      {"training", "train"}, {"validation", "validation"},
    {"valid", "validation"}, {"dev", "validation"}, {"val", "validation"},
    {"test", "test"},        {"testing", "test"},   {"eval", "test"},
    {"evaluation", "test"}};

// The first word of a name that is one of the above.
std::string split_in(const std::string& name) {
    std::size_t at = 0;
    while (at < name.size()) {
        std::size_t end = at;
        while (end < name.size() && std::isalpha(static_cast<unsigned char>(name[end])) != 0)
            ++end;
        for (const auto& [word, split] : kWords)
            if (std::string_view(name).substr(at, end - at) == word) return std::string(split);
        at = std::max(end, at + 1);
    }
    return {};
}

bool is_digits(std::string_view text, std::size_t at_least) {
    return text.size() >= at_least && std::all_of(text.begin(), text.end(), [](unsigned char c) {
               return std::isdigit(c) != 0;
           });
}

// "anything" of "anything-00000-of-00002.parquet".
std::string shard_stem(const std::string& name) {
    const std::string stem = name.substr(0, name.find('.'));
    const std::size_t of = stem.rfind("-of-");
    if (of == std::string::npos || !is_digits(std::string_view(stem).substr(of + 4), 5)) return {};
    const std::size_t dash = stem.rfind('-', of - 1);
    if (of == 0 || dash == std::string::npos ||
        !is_digits(std::string_view(stem).substr(dash + 1, of - dash - 1), 5))
        return {};
    return stem.substr(0, dash);
}

}  // namespace

std::string split_of_name(const fs::path& relative) {
    const std::string name = relative.filename().string();
    const std::string stem = shard_stem(name);
    std::string split = split_in(stem.empty() ? name.substr(0, name.find('.')) : stem);
    if (!stem.empty() && split != stem) {
        const bool is_name = std::all_of(stem.begin(), stem.end(), [](unsigned char c) {
            return std::isalnum(c) != 0 || c == '_' || c == '.';
        });
        // "data-00000-of-00001" names nothing.
        if (is_name && stem != "data" && stem != "part") return stem;
    }
    if (!split.empty()) return split;
    for (const fs::path& part : relative.parent_path()) {
        split = split_in(part.string());
        if (!split.empty()) return split;
    }
    return {};
}

void check_one_data_set(const std::string& name, const fs::path& root, const std::string& split,
                        const std::vector<DataFile>& files) {
    if (split.empty()) return;
    std::set<std::string> sets;
    for (const DataFile& file : files) {
        const fs::path relative = file.path.lexically_relative(root);
        if (!relative.has_parent_path()) continue;
        const std::string top = relative.begin()->string();
        if (split_in(top).empty()) sets.insert(top);
    }
    if (sets.size() < 2) return;
    std::string list;
    for (const std::string& one : sets)
        list += (list.empty() ? "" : ", ") + one;
    throw Error(name + ": holds several data sets (" + list + "): give the folder of one");
}

}  // namespace garam
