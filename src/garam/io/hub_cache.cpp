#include "garam/io/hub_cache.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <system_error>
#include <vector>

#include "garam/core/error.h"

namespace garam {

namespace fs = std::filesystem;

namespace {

// The hub's rule for each half of a name: letters, digits, '-', '_', '.', with none of the last ones
// at its ends, nor "--" or "..".
bool is_half(std::string_view text) {
    const auto is_inner = [](char c) { return c == '-' || c == '.'; };
    if (text.empty() || text.size() > 96 || is_inner(text.front()) || is_inner(text.back()))
        return false;
    if (text.find("--") != std::string_view::npos || text.find("..") != std::string_view::npos)
        return false;
    return std::all_of(text.begin(), text.end(), [&](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || is_inner(c);
    });
}

// A relative path that stays where it begins ("main", "refs/pr/3").
bool is_revision(std::string_view text) {
    if (text.empty() || text.size() > 200 || text.front() == '/' || text.back() == '/')
        return false;
    if (text.find("..") != std::string_view::npos || text.find("//") != std::string_view::npos)
        return false;
    return std::all_of(text.begin(), text.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' ||
               c == '.' || c == '/';
    });
}

// A variable of the environment, "" where it is not set; a leading ~ stands for HOME.
std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    if (value == nullptr) return {};
    std::string text = value;
    if (text == "~" || text.starts_with("~/")) {
        const char* const home = std::getenv("HOME");
        if (home != nullptr) text.replace(0, 1, home);
    }
    return text;
}

bool is_folder(const fs::path& path) {
    std::error_code ignored;
    return fs::is_directory(path, ignored);
}

// The commit that a file under refs/ names, or "".
std::string read_ref(const fs::path& file) {
    std::ifstream stream(file);
    std::string commit(65, '\0');
    stream.read(commit.data(), static_cast<std::streamsize>(commit.size()));
    commit.resize(static_cast<std::size_t>(std::max<std::streamsize>(stream.gcount(), 0)));
    while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back())) != 0)
        commit.pop_back();
    const bool is_hex = std::all_of(commit.begin(), commit.end(),
                                    [](unsigned char c) { return std::isxdigit(c) != 0; });
    return is_hex && commit.size() <= 64 ? commit : "";
}

// Branches and tags whose snapshot is there, sorted.
std::vector<std::string> cached_revisions(const fs::path& repository) {
    std::vector<std::string> revisions;
    std::error_code ignored;
    const fs::path refs = repository / "refs";
    for (fs::recursive_directory_iterator entry(refs, ignored), end; entry != end;
         entry.increment(ignored)) {
        std::error_code error;
        if (!entry->is_regular_file(error)) continue;
        const std::string commit = read_ref(entry->path());
        if (!commit.empty() && is_folder(repository / "snapshots" / commit))
            revisions.push_back(entry->path().lexically_relative(refs).string());
    }
    std::sort(revisions.begin(), revisions.end());
    return revisions;
}

// Empty where the cache does not hold it.
fs::path find_snapshot(const fs::path& repository, const std::string& revision) {
    const fs::path snapshots = repository / "snapshots";
    const std::string commit = read_ref(repository / "refs" / revision);
    if (!commit.empty() && is_folder(snapshots / commit)) return snapshots / commit;
    if (revision.find('/') == std::string::npos && is_folder(snapshots / revision))
        return snapshots / revision;
    return {};
}

}  // namespace

std::optional<HubName> parse_hub_name(std::string_view text) {
    HubName name;
    if (const std::size_t at = text.find('@'); at != std::string_view::npos) {
        name.revision = text.substr(at + 1);
        if (!is_revision(name.revision)) return std::nullopt;
        text = text.substr(0, at);
    }
    const std::size_t slash = text.find('/');
    if (slash == std::string_view::npos || !is_half(text.substr(0, slash)) ||
        !is_half(text.substr(slash + 1)) || text.ends_with(".gguf"))
        return std::nullopt;
    name.repository = text;
    return name;
}

fs::path hub_cache_folder() {
    for (const char* const name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
        if (const std::string folder = variable(name); !folder.empty()) return folder;
    }
    if (const std::string home = variable("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
    if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty())
        return fs::path(cache) / "huggingface" / "hub";
    return fs::path(variable("HOME")) / ".cache" / "huggingface" / "hub";
}

fs::path find_hub_snapshot(const std::string& given, HubKind kind) {
    const std::optional<HubName> name = parse_hub_name(given);
    GARAM_CHECK(name, "no name of the hub: " + given);
    std::string folder = (kind == HubKind::model ? "models--" : "datasets--") + name->repository;
    folder.replace(folder.find('/'), 1, "--");
    const fs::path cache = hub_cache_folder();
    const std::string revision = name->revision.empty() ? "main" : name->revision;
    const fs::path snapshot = find_snapshot(cache / folder, revision);
    if (!snapshot.empty()) return snapshot;

    std::string others;
    for (const std::string& other : cached_revisions(cache / folder))
        others += (others.empty() ? "" : ", ") + name->repository + "@" + other;
    throw Error(given + ": is no file or folder, and the Hugging Face cache (" + cache.string() +
                ") does not hold it" + (others.empty() ? "" : " (it holds " + others + ")") +
                "; if it is on the hub, download it with: hf download " + name->repository +
                (kind == HubKind::data_set ? " --repo-type dataset" : "") +
                (name->revision.empty() ? "" : " --revision " + name->revision));
}

FoundFiles find_model_path(const fs::path& given) {
    std::error_code error;
    if (fs::exists(given, error) || error) return {given, ""};
    const std::optional<HubName> name = parse_hub_name(given.string());
    if (!name) return {given, ""};
    return {find_hub_snapshot(given.string(), HubKind::model), name->repository};
}

}  // namespace garam
