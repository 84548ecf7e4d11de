// garam config [CONFIG…] [KEY=VALUE…]: the table of keys, for reading.
#include <algorithm>

#include "garam/app/command.h"
#include "garam/app/load_job.h"
#include "garam/app/standard_output.h"

namespace garam {

namespace {

constexpr std::size_t kWidth = 92;

// `text` broken at spaces, each line after `indent` spaces.
std::string wrap(const std::string& text, std::size_t indent) {
    const std::string margin(indent, ' ');
    std::string lines;
    std::string line = margin;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find(' ', begin), text.size());
        const std::string word = text.substr(begin, end - begin);
        if (line.size() > indent && line.size() + 1 + word.size() > kWidth) {
            lines += line + "\n";
            line = margin;
        }
        line += (line.size() > indent ? " " : "") + word;
        begin = end + 1;
    }
    return lines + line + "\n";
}

std::string describe(const ConfigTable::Entry& entry) {
    std::string text = entry.key + " = " + entry.value_text() + "\n";
    std::string facts = entry.type();
    if (!entry.source.empty())
        facts += "; default " + entry.default_text + "; set by " + entry.source;
    return text + wrap("(" + facts + ")", 4) + wrap(entry.meaning, 4) + "\n";
}

class ConfigCommand : public Command {
  public:
    std::string name() const override { return "config"; }
    std::string summary() const override {
        return "List every key with its value, type and meaning, or check a config";
    }
    std::string details() const override {
        return R"(Examples:
  garam config                          every key with its default
  garam config spam.yaml lora.r=16      the values of a config, where each was set, and whether
                                        they go together
  garam config --yaml > mine.yaml       a config with every default, to start from)";
    }
    void declare(Arguments& arguments) override {
        arguments.positionals("SETTINGS", settings_, "CONFIG.yaml … key=value …", false);
        arguments.option("--yaml", &yaml_, "Print the resolved config as YAML instead");
    }

    int run() override {
        JobConfig job;
        ConfigTable table = garam::describe(job);
        read_settings(settings_, table);
        const bool has_file = !std::all_of(settings_.begin(), settings_.end(),
                                           [](const std::string& s) { return is_override(s); });
        if (yaml_) {
            print(table.to_yaml());
        } else {
            for (const ConfigTable::Entry& entry : table.entries())
                print(describe(entry));
        }
        if (has_file) validate(job);
        return 0;
    }

  private:
    std::vector<std::string> settings_;
    bool yaml_ = false;
};

}  // namespace

std::unique_ptr<Command> make_config_command() {
    return std::make_unique<ConfigCommand>();
}

}  // namespace garam
