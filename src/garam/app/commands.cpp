#include "garam/app/command.h"

namespace garam {

std::vector<std::unique_ptr<Command>> all_commands() {
    std::vector<std::unique_ptr<Command>> commands;
    commands.push_back(make_train_command());
    commands.push_back(make_plan_command());
    commands.push_back(make_tune_command());
    commands.push_back(make_data_inspect_command());
    commands.push_back(make_data_cache_command());
    commands.push_back(make_eval_command());
    commands.push_back(make_generate_command());
    commands.push_back(make_chat_command());
    commands.push_back(make_tokenize_command());
    commands.push_back(make_merge_command());
    commands.push_back(make_export_command());
    commands.push_back(make_quantize_command());
    commands.push_back(make_config_command());
    commands.push_back(make_import_config_command());
    return commands;
}

}  // namespace garam
