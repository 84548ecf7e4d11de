// What a subcommand of `garam` is: one thin file each, which turns arguments into a config struct
// of the room that does the work.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "garam/core/config_table.h"

namespace garam {

// The arguments that a subcommand takes. Values are read as those of a config key are (strictly,
// with the same errors); the fields must outlive the parsing.
class Arguments {
  public:
    struct Positional {
        std::string name;  // CONFIG
        std::string meaning;
        std::string* one = nullptr;  // exactly one of these two is set
        std::vector<std::string>* many = nullptr;
        bool required = true;
    };

    void positional(std::string name, std::string& value, std::string meaning,
                    bool required = true) {
        positionals_.push_back({std::move(name), std::move(meaning), &value, nullptr, required});
    }
    // All that remain, in the order given.
    void positionals(std::string name, std::vector<std::string>& values, std::string meaning,
                     bool required = true) {
        positionals_.push_back({std::move(name), std::move(meaning), nullptr, &values, required});
    }
    // `name` with its dashes: "--max-new-tokens". A bool is a flag without value; a list takes one
    // item each time that the option is given.
    ConfigTable::Entry& option(std::string name, ConfigTable::Target target, std::string meaning,
                               Range range = {}) {
        return options_.add(std::move(name), target, std::move(meaning), range);
    }

    const std::vector<Positional>& positionals() const { return positionals_; }
    ConfigTable& options() { return options_; }

  private:
    std::vector<Positional> positionals_;
    ConfigTable options_;
};

class Command {
  public:
    virtual ~Command() = default;
    // "train"; of a group's, the group first: "data cache".
    virtual std::string name() const = 0;
    virtual std::string summary() const = 0;            // one line
    virtual std::string details() const { return ""; }  // end of its help: examples
    virtual void declare(Arguments& arguments) = 0;
    // After the arguments were read. Returns the exit status; throws Error for what the user can
    // mend.
    virtual int run() = 0;
};

// Every subcommand, in the order of `garam --help`.
std::vector<std::unique_ptr<Command>> all_commands();

std::unique_ptr<Command> make_chat_command();
std::unique_ptr<Command> make_config_command();
std::unique_ptr<Command> make_data_cache_command();
std::unique_ptr<Command> make_data_inspect_command();
std::unique_ptr<Command> make_eval_command();
std::unique_ptr<Command> make_export_command();
std::unique_ptr<Command> make_generate_command();
std::unique_ptr<Command> make_import_config_command();
std::unique_ptr<Command> make_merge_command();
std::unique_ptr<Command> make_plan_command();
std::unique_ptr<Command> make_quantize_command();
std::unique_ptr<Command> make_tokenize_command();
std::unique_ptr<Command> make_train_command();
std::unique_ptr<Command> make_tune_command();

}  // namespace garam
