#include "garam/app/load_job.h"

#include "garam/app/yaml_config.h"
#include "garam/core/error.h"

namespace garam {

void read_settings(const std::vector<std::string>& arguments, ConfigTable& table) {
    for (const std::string& argument : arguments) {
        if (is_override(argument)) continue;
        if (!argument.empty() && (argument[0] == '+' || argument[0] == '~') &&
            is_override(argument.substr(1)))
            throw Error("command line: " + argument + ": keys cannot be added or removed, write " +
                        argument.substr(1));
        for (const ConfigLine& line : read_yaml_config(argument))
            table.set(line.key, line.value, line.source);
    }
    for (const std::string& argument : arguments)
        if (is_override(argument)) table.set_override(argument);
}

LoadedJob load_job(const std::vector<std::string>& arguments) {
    LoadedJob job;
    ConfigTable table = describe(job.config);
    read_settings(arguments, table);
    validate(job.config);
    job.yaml = table.to_yaml();
    return job;
}

}  // namespace garam
