#include "garam/app/command.h"

namespace garam {

std::vector<std::unique_ptr<Command>> all_commands() {
    std::vector<std::unique_ptr<Command>> commands;
    commands.push_back(make_config_command());
    return commands;
}

}  // namespace garam
