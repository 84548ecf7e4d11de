// A folder of a test's own, removed with everything in it when the scope ends.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace garam::testing {

class TempDir {
  public:
    TempDir();
    ~TempDir();
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;

    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
    // Writes a file with the content given and returns its path.
    std::filesystem::path write(std::string_view name, std::string_view content) const;

  private:
    std::filesystem::path path_;
};

std::string read_file(const std::filesystem::path& path);

}  // namespace garam::testing
