#include "fuzz/input.h"

#include <algorithm>

namespace garam::fuzz {
namespace {

constexpr std::string_view kMark = "\n=== ";

}  // namespace

std::string join(const InputFiles& files) {
    if (files.size() == 1) return files[0].bytes;
    std::string input;
    for (const InputFile& file : files) {
        input += kMark;
        input += file.name + '\n' + file.bytes;
    }
    return input;
}

InputFiles split(std::string_view input, const std::vector<std::string>& names) {
    if (names.size() == 1) return {{names[0], std::string(input)}};
    InputFiles files;
    for (std::size_t at = input.find(kMark); at != std::string_view::npos;) {
        const std::size_t next = input.find(kMark, at + 1);
        std::string_view part = input.substr(at + kMark.size(), next - at - kMark.size());
        const std::size_t line = part.find('\n');
        at = next;
        if (line == std::string_view::npos) continue;
        const std::string name(part.substr(0, line));
        const auto same = [&](const InputFile& file) { return file.name == name; };
        if (std::find(names.begin(), names.end(), name) == names.end() ||
            std::any_of(files.begin(), files.end(), same))
            continue;
        files.push_back({name, std::string(part.substr(line + 1))});
    }
    return files;
}

}  // namespace garam::fuzz
