// What one execution gets: a file, or several that belong together.
//
// An input of one file is that file. An input of several is text and bytes end to end, each file behind a line
// "=== name"; so a finding can be read and edited. Names that the target does not know are left out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace garam::fuzz {

struct InputFile {
    std::string name;
    std::string bytes;
};
using InputFiles = std::vector<InputFile>;

std::string join(const InputFiles& files);
// `names` are those that the target reads; a file that the input lacks is absent in the result.
InputFiles split(std::string_view input, const std::vector<std::string>& names);

}  // namespace garam::fuzz
