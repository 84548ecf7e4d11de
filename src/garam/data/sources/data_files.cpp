#include "garam/data/sources/data_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>

#include "garam/core/error.h"
#include "garam/data/sources/byte_source.h"
#include "garam/data/sources/data_folder.h"
#include "garam/data/sources/split_names.h"
#include "garam/io/hub_cache.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::string>& formats_by_extension() {
    static const std::map<std::string, std::string> formats = {
        {".jsonl", "jsonl"}, {".ndjson", "jsonl"},  {".jsonlines", "jsonl"}, {".json", "json"},
        {".csv", "csv"},     {".tsv", "tsv"},       {".tab", "tsv"},         {".txt", "text"},
        {".text", "text"},   {".raw", "text"},      {".parquet", "parquet"}, {".pq", "parquet"},
        {".arrow", "arrow"}, {".feather", "arrow"}, {".ipc", "arrow"}};
    return formats;
}

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

// Empty where the name does not tell.
std::string format_by_name(const fs::path& path) {
    const auto& formats = formats_by_extension();
    const auto found = formats.find(lower(without_packing(path).extension().string()));
    return found == formats.end() ? "" : found->second;
}

// The first bytes say what tables are; texts have no mark.
std::string format_by_content(const fs::path& path) {
    std::string head(8, '\0');
    const std::unique_ptr<ByteSource> bytes = open_bytes(path);
    head.resize(bytes->read(head.data(), head.size()));
    if (head.starts_with("PAR1")) return "parquet";
    if (head.starts_with("ARROW1") || head.starts_with("\xFF\xFF\xFF\xFF")) return "arrow";
    return {};
}

std::string format_of(const fs::path& path, const std::string& asked) {
    if (!asked.empty()) return asked;
    std::string format = format_by_name(path);
    if (format.empty()) format = format_by_content(path);
    if (!format.empty()) return format;
    const std::string extension = lower(without_packing(path).extension().string());
    constexpr const char* kTables[] = {".xlsx", ".xls", ".ods"};
    const bool is_table = std::any_of(std::begin(kTables), std::end(kTables),
                                      [&](const char* one) { return extension == one; });
    throw Error(
        path.string() + ": " +
        (is_table ? "spreadsheets are not read: save it as CSV"
         : extension == ".zip" || extension == ".tar" || extension == ".7z"
             ? "archives are not read: unpack it"
             : "its name does not tell what it is: set data.format to jsonl, json, csv, tsv, "
               "text, arrow or parquet"));
}

// What lies beside data in a folder and is none.
bool is_side_file(const fs::path& path) {
    const std::string name = lower(path.filename().string());
    static const std::set<std::string> names = {
        "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json",
        "config.json",       "readme.txt",         "license.txt",       "licence.txt",
        "requirements.txt",  "croissant.json",     "package.json",      "metadata.json"};
    return name.starts_with('.') || name.starts_with('_') || names.contains(name) ||
           (name.starts_with("cache-") && name.ends_with(".arrow"));
}

// What people lay beside data to read or run.
bool is_note(const fs::path& path) {
    static const std::set<std::string> extensions = {".md",   ".rst",  ".py",  ".ipynb", ".sh",
                                                     ".yaml", ".yml",  ".cff", ".bib",   ".toml",
                                                     ".lock", ".html", ".pdf"};
    static const std::set<std::string> names = {"license", "licence", "readme", "notice",
                                                "copying"};
    return extensions.contains(lower(path.extension().string())) ||
           names.contains(lower(path.filename().string()));
}

bool has_glob(const std::string& text) {
    return text.find_first_of("*?[") != std::string::npos;
}

// Regular files below `folder`, sorted. Links to files are followed (the Hub's cache is made of them).
std::vector<fs::path> files_below(const fs::path& folder) {
    std::vector<fs::path> files;
    std::error_code error;
    fs::recursive_directory_iterator entry(folder, error);
    if (error) throw Error(folder.string() + ": cannot be read: " + error.message());
    for (const fs::recursive_directory_iterator end; entry != end; entry.increment(error)) {
        if (error) throw Error(folder.string() + ": cannot be read: " + error.message());
        std::error_code ignored;
        if (entry->is_directory(ignored)) {
            const std::string name = entry->path().filename().string();
            if (name.starts_with('.') || name.starts_with("__")) entry.disable_recursion_pending();
        } else if (entry->is_regular_file(ignored)) {
            files.push_back(entry->path());
        }
    }
    std::sort(files.begin(), files.end());
    return files;
}

std::vector<fs::path> matching_files(const std::string& pattern) {
    // The part before the first special character names the folder to look in.
    const std::size_t special = pattern.find_first_of("*?[");
    const std::size_t slash = pattern.rfind('/', special);
    const fs::path folder =
        slash == std::string::npos ? fs::path(".") : fs::path(pattern.substr(0, slash + 1));
    std::error_code ignored;
    if (!fs::is_directory(folder, ignored))
        throw Error(pattern + ": there is no folder " + folder.string());
    const bool is_deep = pattern.find("**") != std::string::npos;
    const std::string relative = slash == std::string::npos ? pattern : pattern.substr(slash + 1);
    // "**/" also stands for no folder at all.
    std::string shallow = relative;
    for (std::size_t at; (at = shallow.find("**/")) != std::string::npos;)
        shallow.erase(at, 3);
    std::vector<fs::path> found;
    for (const fs::path& file : files_below(folder)) {
        const std::string name = file.lexically_relative(folder).string();
        const int flags = is_deep ? 0 : FNM_PATHNAME;
        if (::fnmatch(relative.c_str(), name.c_str(), flags) == 0 ||
            (is_deep && ::fnmatch(shallow.c_str(), name.c_str(), 0) == 0))
            found.push_back(slash == std::string::npos ? fs::path(name) : file);
    }
    return found;
}

// "2 .log, 1 .xlsx" of files that nothing is known of; empty without any.
std::string list_extensions(const std::vector<fs::path>& files) {
    std::map<std::string, std::int64_t> counts;
    for (const fs::path& file : files) {
        const std::string extension = lower(file.extension().string());
        ++counts[extension.empty() ? file.filename().string() : extension];
    }
    constexpr std::size_t kShown = 8;
    std::string list;
    std::size_t shown = 0;
    for (const auto& [extension, count] : counts) {
        list += (list.empty() ? "" : ", ") + std::to_string(count) + " " + extension;
        if (++shown == kShown && counts.size() > kShown) return list + ", …";
    }
    return list;
}

// Files of one format out of many; `unknown` takes those whose names tell none. Throws Error where that takes a
// decision.
std::vector<DataFile> one_format(const std::vector<fs::path>& paths, const std::string& asked,
                                 const std::string& place, std::string& unknown) {
    std::map<std::string, std::vector<DataFile>> kinds;
    std::vector<fs::path> others;
    for (const fs::path& path : paths) {
        if (is_side_file(path)) continue;
        const std::string format = format_by_name(path);
        if (format.empty()) {
            if (!is_note(path)) others.push_back(path);
            continue;
        }
        // JSON Lines often carry the name .json; both are read from either.
        kinds[format].push_back({path, format});
    }
    unknown = list_extensions(others);
    std::string hint;
    if (!unknown.empty() && has_glob(place)) {
        hint = ", but " + unknown + ": set data.format";
    } else if (!unknown.empty()) {
        hint = ", but " + unknown + ": name these with a pattern (" + place + "/*" +
               others.front().extension().string() + ") and data.format";
    }
    if (!asked.empty()) {
        if (const auto found = kinds.find(asked); found != kinds.end()) return found->second;
        std::vector<DataFile> files;
        if (asked == "json" || asked == "jsonl" || asked == "csv" || asked == "text") {
            for (const auto& [format, list] : kinds)
                if ((asked == "csv" && format == "tsv") ||
                    (asked.starts_with("json") && format.starts_with("json")))
                    for (const DataFile& file : list)
                        files.push_back({file.path, asked});
        }
        if (!files.empty()) return files;
        throw Error(place + ": holds no " + asked + " files" + hint);
    }
    if (kinds.empty())
        throw Error(place +
                    ": holds no data files (.jsonl, .json, .csv, .tsv, .txt, .parquet, "
                    ".arrow; or a folder as save_to_disk writes it)" +
                    hint);
    if (kinds.size() == 2 && kinds.contains("json") && kinds.contains("jsonl")) {
        for (const DataFile& file : kinds["json"])
            kinds["jsonl"].push_back({file.path, "json"});
        kinds.erase("json");
    }
    if (kinds.size() > 1) {
        std::string list;
        for (const auto& [format, files] : kinds)
            list += (list.empty() ? "" : ", ") + std::to_string(files.size()) + " " + format;
        throw Error(place + ": holds files of several formats (" + list +
                    "): name one with data.format, or the files with a pattern (" + place +
                    "/*.jsonl)");
    }
    return std::move(kinds.begin()->second);
}

DataPlace place_of(const std::string& name, const fs::path& root, std::vector<DataFile> files) {
    DataPlace place{name, {}, {}};
    std::map<std::string, std::vector<DataFile>> splits;
    for (DataFile& file : files) {
        const std::string split = split_of_name(file.path.lexically_relative(root));
        splits[split].push_back(std::move(file));
    }
    if (splits.size() > 1 && splits.contains("")) {
        std::string named;
        for (const auto& [split, list] : splits)
            if (named.empty() && !split.empty()) named = list.front().path.filename().string();
        throw Error(name + ": some files belong to a split by their names (" + named +
                    ") and others to none (" + splits[""].front().path.filename().string() +
                    "): name the wanted ones with a pattern");
    }
    for (auto& [split, list] : splits) {
        check_one_data_set(name, root, split, list);
        place.splits.push_back({split, std::move(list)});
    }
    return place;
}

DataPlace find_in_folder(const std::string& name, const fs::path& folder,
                         const std::string& format) {
    if (std::optional<DataPlace> saved = find_saved_data_set(name, folder)) return *saved;
    std::string unknown;
    DataPlace place =
        place_of(name, folder, one_format(files_below(folder), format, name, unknown));
    place.unknown = std::move(unknown);
    return place;
}

}  // namespace

const DataSplit& DataPlace::split(const std::string& wanted) const {
    if (wanted.empty() && splits.size() == 1) return splits.front();
    std::string names;
    for (const DataSplit& split : splits) {
        if (split.name == wanted && !wanted.empty()) return split;
        names += (names.empty() ? "" : ", ") + split.name;
    }
    if (splits.size() == 1 && splits.front().name.empty()) {
        if (wanted == "train") return splits.front();
        throw Error(name + ": has no splits, so none is called \"" + wanted + "\"");
    }
    if (wanted.empty())
        throw Error(name + ": has the splits " + names +
                    ": name one with data.train_split or data.validation_split");
    throw Error(name + ": has no split \"" + wanted + "\"; it has " + names);
}

DataPlace find_data(const std::string& path, const std::string& format) {
    if (path.empty()) throw Error("the path of a data set is empty");
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (fs::is_directory(status)) return find_in_folder(path, path, format);
    if (fs::exists(status)) return {path, {{"", {{path, format_of(path, format)}}}}, {}};
    if (has_glob(path)) {
        const std::vector<fs::path> files = matching_files(path);
        if (files.empty()) throw Error(path + ": no file matches");
        DataPlace place{path, {{"", {}}}, {}};
        if (!format.empty()) {
            for (const fs::path& file : files)
                place.splits[0].files.push_back({file, format});
        } else {
            place.splits[0].files = one_format(files, format, path, place.unknown);
        }
        return place;
    }
    if (parse_hub_name(path)) return find_in_folder(path, find_hub_data_set(path), format);
    throw Error(path + ": no such file or folder");
}

}  // namespace garam
