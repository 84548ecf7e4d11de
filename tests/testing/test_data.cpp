#include "testing/test_data.h"

#include <algorithm>
#include <cstdlib>

namespace garam::testing {

std::filesystem::path source_dir() {
    if (const char* named = std::getenv("GARAM_TEST_SOURCE"); named != nullptr && *named != '\0')
        return named;
    return GARAM_SOURCE_DIR;
}

std::filesystem::path data_dir() {
    if (const char* named = std::getenv("GARAM_TEST_DATA"); named != nullptr && *named != '\0')
        return named;
    return source_dir().parent_path() / "shared" / "data";
}

namespace {

template <typename Keep>
std::vector<std::string> names_in(const std::filesystem::path& folder, Keep keep) {
    std::vector<std::string> names;
    if (!std::filesystem::is_directory(folder)) return names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (keep(entry)) names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

}  // namespace

std::vector<std::string> folders_in(const std::filesystem::path& folder) {
    return names_in(folder, [](const auto& entry) { return entry.is_directory(); });
}

std::vector<std::string> files_in(const std::filesystem::path& folder,
                                  const std::string& extension) {
    return names_in(folder, [&](const auto& entry) {
        return entry.is_regular_file() && entry.path().extension() == extension;
    });
}

}  // namespace garam::testing
