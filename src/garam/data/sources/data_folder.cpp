#include "garam/data/sources/data_folder.h"

#include <algorithm>
#include <set>
#include <vector>

#include "garam/core/error.h"
#include "garam/core/json.h"
#include "garam/io/hub_cache.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored);
}

// A name in a file that someone else wrote stays within its folder.
fs::path inside(const fs::path& folder, const std::string& name, const fs::path& from) {
    const fs::path relative(name);
    const bool leaves = std::any_of(relative.begin(), relative.end(),
                                    [](const fs::path& part) { return part == ".."; });
    if (name.empty() || relative.is_absolute() || leaves)
        throw Error(from.string() + ": \"" + name + "\" is no name of a file in its folder");
    return folder / relative;
}

std::vector<fs::path> listed_files(const Json& list, const fs::path& folder, const fs::path& from,
                                   const char* key) {
    std::vector<fs::path> files;
    for (const Json& entry : list.array(from.string() + ": " + key)) {
        const std::string& name =
            entry.at("filename", from.string() + ": " + key).string(from.string() + ": filename");
        files.push_back(inside(folder, name, from));
        if (!is_file(files.back()))
            throw Error(files.back().string() + ": is missing, and " + from.string() + " names it");
    }
    return files;
}

DataSplit read_data_set(const fs::path& folder) {
    const fs::path file = folder / "state.json";
    const Json state = Json::parse_file(file);
    if (!state.is_object()) throw Error(file.string() + ": holds no object");
    DataSplit split;
    if (const Json* name = state.find("_split"); name != nullptr && !name->is_null())
        split.name = name->string(file.string() + ": _split");
    std::string features;
    if (const fs::path info_file = folder / "dataset_info.json"; is_file(info_file)) {
        const Json info = Json::parse_file(info_file);
        if (const Json* found = info.find("features"); found != nullptr && found->is_object())
            features = found->dump();
    }
    const Json& list = state.at("_data_files", file.string());
    const std::vector<fs::path> tables = listed_files(list, folder, file, "_data_files");
    std::vector<fs::path> indices;
    if (const Json* found = state.find("_indices_data_files");
        found != nullptr && !found->is_null())
        indices = listed_files(*found, folder, file, "_indices_data_files");
    if (!indices.empty()) {
        split.files.push_back({folder, "arrow", features, tables, indices});
        return split;
    }
    for (const fs::path& table : tables)
        split.files.push_back({table, "arrow", features});
    if (tables.empty()) throw Error(file.string() + ": names no data file");
    return split;
}

}  // namespace

std::optional<DataPlace> find_saved_data_set(const std::string& name, const fs::path& folder) {
    DataPlace place{name, {}, {}};
    if (is_file(folder / "state.json")) {
        place.splits.push_back(read_data_set(folder));
        return place;
    }
    std::vector<std::string> names;
    const fs::path dict_file = folder / "dataset_dict.json";
    if (is_file(dict_file)) {
        const Json dict = Json::parse_file(dict_file);
        for (const Json& split :
             dict.at("splits", dict_file.string()).array(dict_file.string() + ": splits")) {
            names.push_back(split.string(dict_file.string() + ": splits"));
            if (!is_file(inside(folder, names.back(), dict_file) / "state.json"))
                throw Error((folder / names.back() / "state.json").string() + ": is missing, and " +
                            dict_file.string() + " names the split");
        }
        if (names.empty()) throw Error(dict_file.string() + ": names no split");
    } else {
        std::error_code error;
        for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
             entry.increment(error)) {
            if (is_file(entry->path() / "state.json"))
                names.push_back(entry->path().filename().string());
            if (is_file(entry->path() / "dataset_dict.json"))
                throw Error(name + ": the data set lies deeper: give " + entry->path().string());
        }
        std::sort(names.begin(), names.end());
    }
    if (names.empty()) return std::nullopt;
    for (const std::string& split : names) {
        place.splits.push_back(read_data_set(folder / split));
        place.splits.back().name = split;
    }
    return place;
}

fs::path find_hub_data_set(const std::string& name) {
    return find_hub_snapshot(name, HubKind::data_set);
}

}  // namespace garam
