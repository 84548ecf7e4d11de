#include "app/run_garam.h"

#include <sys/wait.h>

#include <cstdlib>

#include "garam/core/json.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam::testing {

namespace {

std::string quote(const std::string& text) {
    std::string quoted = "'";
    for (const char c : text)
        quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
}

}  // namespace

RunResult run_shell(const std::string& command, const std::string& folder) {
    const TempDir temp;
    const std::string line = (folder.empty() ? "" : "cd " + quote(folder) + " && ") +
                             "export XDG_CACHE_HOME=" + quote(temp / "cache") +
                             " && GARAM=" + quote(GARAM_BINARY) + " && { " + command + " ; } >" +
                             quote(temp / "out") + " 2>" + quote(temp / "err") + " </dev/null";
    const int raw = std::system(line.c_str());
    RunResult result;
    result.status = WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
    result.out = read_file(temp / "out");
    result.err = read_file(temp / "err");
    return result;
}

RunResult run_garam(const std::vector<std::string>& arguments, const std::string& folder) {
    std::string command = "\"$GARAM\"";
    for (const std::string& argument : arguments)
        command += " " + quote(argument);
    return run_shell(command, folder);
}

std::string path_of(const char* relative) {
    return (data_dir() / relative).string();
}

std::string text_of(const std::vector<std::string>& model) {
    std::vector<std::string> arguments = {"generate"};
    arguments.insert(arguments.end(), model.begin(), model.end());
    arguments.insert(arguments.end(), {"--prompt", "Once upon", "--dtype", "f32", "--temperature",
                                       "0", "--json", "--max-new-tokens", "60"});
    const RunResult result = run_garam(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return Json::parse(result.out, "out").at("text").string();
}

}  // namespace garam::testing
