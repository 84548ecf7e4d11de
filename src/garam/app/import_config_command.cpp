// garam import-config FILE: the config of another trainer in our keys.
#include <cstdio>
#include <filesystem>

#include "garam/app/command.h"
#include "garam/app/command_line.h"
#include "garam/app/config_import.h"
#include "garam/app/standard_output.h"
#include "garam/core/error.h"
#include "garam/io/atomic_write.h"

namespace garam {
namespace {

class ImportConfigCommand : public Command {
  public:
    std::string name() const override { return "import-config"; }
    std::string summary() const override {
        return "Turn a config of TRL, axolotl, LLaMA-Factory or Unsloth into one of garam";
    }
    std::string details() const override {
        return R"(Whose config it is shows in its keys. What has no equivalent is listed in comments at the head of
the result, line by line with the reason.

Examples:
  garam import-config axolotl.yml
  garam import-config sft.yaml --out mine.yaml
  garam plan mine.yaml)";
    }
    void declare(Arguments& arguments) override {
        arguments.positional("FILE", file_, "YAML file of the other trainer");
        arguments.option("--out", &out_, "File to write instead of the standard output");
    }
    int run() override {
        const ImportedConfig imported =
            import_config(read_yaml_config(file_, YamlLists::of_maps), file_);
        const std::string text = imported.to_text(file_);
        if (out_.empty()) {
            print(text);
            return 0;
        }
        if (std::filesystem::exists(out_))
            throw Error(out_ + " exists already: name a file that does not");
        write_file_atomically(out_, text);
        print(out_ + ": from a config of " + name_of(imported.dialect) + ", " +
              std::to_string(imported.left_out.size()) +
              " keys not carried over (listed at its head)\n");
        if (!imported.missing.empty())
            std::fputs(("garam: still missing: " + one_line(imported.missing) + "\n").c_str(),
                       stderr);
        return 0;
    }

  private:
    std::string file_;
    std::string out_;
};

}  // namespace

std::unique_ptr<Command> make_import_config_command() {
    return std::make_unique<ImportConfigCommand>();
}

}  // namespace garam
