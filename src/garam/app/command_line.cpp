#include "garam/app/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <new>
#include <system_error>

#include "garam/app/standard_output.h"
#include "garam/core/error.h"
#include "garam/io/interruptible_writing.h"
#include "garam/text/unicode.h"

namespace garam {

namespace {

constexpr int kUserError = 2;
constexpr int kSignalled = 128;                 // plus the signal's number, as shells count
constexpr int kOutputClosed = kSignalled + 13;  // as a shell reports a tool that SIGPIPE ended

constexpr const char* kExamples = R"(Examples:
  garam plan spam.yaml                    the memory that a run will take
  garam train spam.yaml lora.r=16         a LoRA adapter
  garam chat model --adapter adapter      talk to the result
  garam config                            every key of a config: type, default, meaning
  garam COMMAND --help                    what a command takes

Settings are written as key=value and override the config file. Paths are taken from the
current directory.)";

constexpr std::pair<const char*, const char*> kGroups[] = {
    {"data", "Look at data as training sees it, and at what is kept of it"},
};

// "data" of "data cache"; else empty.
std::string group_of(const std::string& name) {
    const auto space = name.find(' ');
    return space == std::string::npos ? "" : name.substr(0, space);
}

// A subcommand with what CLI11 puts its values into, before they are read by their tables.
struct Declared {
    Command* command = nullptr;
    Arguments arguments;
    CLI::App* app = nullptr;
    std::vector<std::vector<std::string>> option_texts;
    std::vector<std::string> single_positionals;
    std::vector<std::vector<std::string>> open_positionals;
};

// CLI11 takes an argument in brackets apart, as a list; with this before it, it is a text like any other.
constexpr char kGuard = '\x01';

std::string guarded(const std::string& argument) {
    return argument.starts_with('[') && argument.ends_with(']') ? kGuard + argument : argument;
}

std::string unguarded(const std::string& argument) {
    const bool was = argument.starts_with(std::string{kGuard, '['}) && argument.ends_with(']');
    return was ? argument.substr(1) : argument;
}

std::vector<std::string> unguarded(std::vector<std::string> arguments) {
    for (std::string& argument : arguments)
        argument = unguarded(argument);
    return arguments;
}

bool is_flag(const ConfigTable::Entry& entry) {
    return std::holds_alternative<bool*>(entry.target);
}

bool is_list(const ConfigTable::Entry& entry) {
    return std::holds_alternative<std::vector<std::string>*>(entry.target);
}

CLI::App& group_app(CLI::App& app, const std::string& name) {
    for (CLI::App* known :
         app.get_subcommands([&](const CLI::App* a) { return a->get_name() == name; }))
        return *known;
    std::string summary;
    for (const auto& [group, meaning] : kGroups)
        if (name == group) summary = meaning;
    CLI::App& made = *app.add_subcommand(name, summary);
    made.footer(std::string());
    return made;
}

std::unique_ptr<Declared> declare(CLI::App& app, Command& command) {
    auto declared = std::make_unique<Declared>();
    declared->command = &command;
    command.declare(declared->arguments);
    const std::string group = group_of(command.name());
    const std::string name = command.name().substr(group.empty() ? 0 : group.size() + 1);
    declared->app =
        (group.empty() ? app : group_app(app, group)).add_subcommand(name, command.summary());
    declared->app->footer(command.details());
    // What is left over is refused here, with the nearest option.
    declared->app->allow_extras();

    const auto& options = declared->arguments.options().entries();
    declared->option_texts.resize(options.size());
    for (std::size_t i = 0; i < options.size(); ++i) {
        const ConfigTable::Entry& entry = options[i];
        if (is_flag(entry)) {
            declared->app->add_flag(entry.key, declared->option_texts[i], entry.meaning);
            continue;
        }
        CLI::Option* option =
            declared->app->add_option(entry.key, declared->option_texts[i], entry.meaning);
        option->type_name(entry.type());
        // One value after each mention; what follows is the next argument.
        option->expected(1)->allow_extra_args(false);
        if (is_list(entry)) {
            option->take_all();
        } else {
            option->take_last();
        }
        const bool says_something = entry.default_text != "\"\"" && entry.default_text != "[]";
        if (says_something) option->default_str(entry.default_text);
    }
    const auto& positionals = declared->arguments.positionals();
    declared->single_positionals.resize(positionals.size());
    declared->open_positionals.resize(positionals.size());
    for (std::size_t i = 0; i < positionals.size(); ++i) {
        const Arguments::Positional& positional = positionals[i];
        CLI::Option* option =
            positional.many != nullptr
                ? declared->app->add_option(positional.name, declared->open_positionals[i],
                                            positional.meaning)
                : declared->app->add_option(positional.name, declared->single_positionals[i],
                                            positional.meaning);
        option->type_name(" ");
        if (positional.required) option->required();
    }
    return declared;
}

void refuse_leftovers(Declared& declared) {
    const std::vector<std::string> rest = declared.app->remaining();
    if (rest.empty()) return;
    const std::string given = unguarded(rest.front());
    const std::string name = declared.command->name();
    if (!given.starts_with('-'))
        throw Error("garam " + name + ": '" + given + "' is one argument too many");
    const auto dashes = given.find_first_not_of('-');
    if (dashes != std::string::npos && is_override(given.substr(dashes)))
        throw Error("unknown option " + given + ": settings are written without dashes, " +
                    given.substr(dashes));
    std::vector<std::string> known = {"--help"};
    for (const auto& entry : declared.arguments.options().entries())
        known.push_back(entry.key);
    const std::string near = nearest(given, known);
    throw Error("unknown option " + given + ": " +
                (near.empty() ? "see garam " + name + " --help" : "did you mean " + near + "?"));
}

// Moves what CLI11 collected into the command's fields.
void read_values(Declared& declared) {
    ConfigTable& table = declared.arguments.options();
    for (std::size_t i = 0; i < declared.option_texts.size(); ++i) {
        const ConfigTable::Entry& entry = table.entries()[i];
        if (declared.app->get_option(entry.key)->count() == 0) continue;
        const std::vector<std::string> texts = unguarded(declared.option_texts[i]);
        if (is_list(entry)) {
            table.set(entry.key, ConfigText{ConfigText::Kind::list, "", texts}, "command line");
        } else {
            table.set(entry.key, is_flag(entry) ? std::string("true") : texts.back(),
                      "command line");
        }
    }
    const auto& positionals = declared.arguments.positionals();
    for (std::size_t i = 0; i < positionals.size(); ++i) {
        if (declared.app->get_option(positionals[i].name)->count() == 0) continue;
        if (positionals[i].many != nullptr) {
            *positionals[i].many = unguarded(declared.open_positionals[i]);
        } else {
            *positionals[i].one = unguarded(declared.single_positionals[i]);
        }
    }
}

void refuse_unknown_command(const std::vector<std::unique_ptr<Command>>& commands,
                            const std::string& given, const std::string& group = "") {
    std::vector<std::string> names;
    for (const auto& command : commands) {
        const std::string own = group_of(command->name());
        if (!group.empty() && own == group) names.push_back(command->name().substr(own.size() + 1));
        if (group.empty()) names.push_back(own.empty() ? command->name() : own);
    }
    if (std::find(names.begin(), names.end(), given) != names.end()) return;
    const std::string near = nearest(given, names);
    const std::string start = group.empty() ? "" : group + " ";
    throw Error("unknown command " + start + given + ": " +
                (near.empty() ? "garam " + start + "--help lists the commands"
                              : "did you mean " + start + near + "?"));
}

// Null where `name` is no group.
const CLI::App* group_named(const std::vector<std::unique_ptr<Command>>& commands,
                            const CLI::App& app, const std::string& name) {
    for (const auto& command : commands)
        if (group_of(command->name()) == name) return app.get_subcommand(name);
    return nullptr;
}

// "help" and "help train" as "--help" and "train --help".
std::vector<std::string> with_help_as_option(std::vector<std::string> arguments) {
    if (arguments.empty() || arguments[0] != "help") return arguments;
    arguments.erase(arguments.begin());
    arguments.push_back("--help");
    return arguments;
}

int dispatch(const std::vector<std::unique_ptr<Command>>& commands,
             const std::vector<std::string>& given) {
    const std::vector<std::string> arguments = with_help_as_option(given);
    CLI::App app{"garam fine-tunes and runs transformer models.", "garam"};
    app.set_version_flag("--version", "garam " GARAM_VERSION);
    app.footer(kExamples);
    std::vector<std::unique_ptr<Declared>> declared;
    for (const auto& command : commands)
        declared.push_back(declare(app, *command));

    if (arguments.empty()) {
        std::fputs(app.help().c_str(), stderr);
        return kUserError;
    }
    if (!arguments[0].starts_with('-')) refuse_unknown_command(commands, arguments[0]);
    if (const CLI::App* group = group_named(commands, app, arguments[0]); group != nullptr) {
        if (arguments.size() == 1) {
            std::fputs(group->help("garam").c_str(), stderr);
            return kUserError;
        }
        if (!arguments[1].starts_with('-'))
            refuse_unknown_command(commands, arguments[1], arguments[0]);
    }
    try {
        // CLI11 takes the arguments from the back.
        std::vector<std::string> reversed;
        std::transform(arguments.rbegin(), arguments.rend(), std::back_inserter(reversed), guarded);
        app.parse(reversed);
    } catch (const CLI::CallForHelp&) {
        const CLI::App* chosen = &app;
        std::string before;
        while (!chosen->get_subcommands().empty()) {
            before += (before.empty() ? "" : " ") + chosen->get_name();
            chosen = chosen->get_subcommands().front();
        }
        print(chosen->help(before));
        return 0;
    } catch (const CLI::CallForVersion&) {
        print(std::string("garam ") + GARAM_VERSION + "\n");
        return 0;
    } catch (const CLI::ParseError& error) {
        throw Error(std::string(error.what()) + " (garam --help, garam COMMAND --help)");
    }
    for (const auto& candidate : declared) {
        if (!candidate->app->parsed()) continue;
        refuse_leftovers(*candidate);
        read_values(*candidate);
        return candidate->command->run();
    }
    throw Error("no command is given: garam --help lists them");
}

int fail(const std::string& message) {
    std::fputs(("garam: error: " + one_line(message) + "\n").c_str(), stderr);
    return kUserError;
}

}  // namespace

std::string one_line(const std::string& message) {
    std::string line;
    for (const char c : message) {
        if (c == '\n') {
            line += ' ';
        } else {
            line += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
        }
    }
    return line;
}

std::string begin_of(std::string_view text) {
    constexpr std::size_t kShown = 200;
    if (text.size() <= kShown) return std::string(text);
    std::size_t end = kShown;
    while (end > 0 && is_utf8_continuation(text[end]))
        --end;
    return std::string(text.substr(0, end)) + "…";
}

void warn(const std::string& sentence) {
    std::fputs(("garam: warning: " + one_line(sentence) + "\n").c_str(), stderr);
}

int run_command_line(const std::vector<std::unique_ptr<Command>>& commands,
                     const std::vector<std::string>& arguments) {
    try {
        const int status = dispatch(commands, arguments);
        flush_output();
        return status;
    } catch (const OutputClosed&) {
        return kOutputClosed;
    } catch (const WritingInterrupted& interrupted) {
        std::fputs("\ngaram: interrupted, nothing was written\n", stderr);
        return kSignalled + interrupted.signal;
    } catch (const Error& error) {
        return fail(error.what());
    } catch (const std::bad_alloc&) {
        return fail("out of memory: use a smaller batch, train.max_length or model");
    } catch (const std::system_error& error) {
        return fail(error.what());
    }
}

}  // namespace garam
