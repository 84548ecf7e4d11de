// garam data ACTION: what is known of the data before training.
#include "garam/app/command.h"
#include "garam/app/data_inspect.h"
#include "garam/core/error.h"

namespace garam {

namespace {

class DataCommand : public Command {
  public:
    std::string name() const override { return "data"; }
    std::string summary() const override {
        return "Look at the data of a run before it is trained on";
    }
    std::string details() const override {
        return R"(Examples:
  garam data inspect spam.yaml
  garam data inspect spam.yaml train.max_length=512 --samples 10
  garam data inspect spam.yaml --html data.html
  garam data inspect spam.yaml --strict --json > data.json

inspect reads the rows as training does and shows how many there are, what the first ones look
like to the model, their lengths, what truncation takes, what batches leave empty, and warns of
what is likely to be a mistake. The model's weights are not needed. Exit status: 0, or 1 with
--strict and a warning.)";
    }
    void declare(Arguments& arguments) override {
        arguments.positional("ACTION", action_, "inspect");
        arguments.positionals("SETTINGS", settings_, "CONFIG.yaml … key=value …");
        inspect_.declare(arguments);
    }
    int run() override {
        if (action_ != "inspect")
            throw Error("garam data " + action_ + ": there is no such action; inspect is one");
        return inspect_.run(settings_);
    }

  private:
    std::string action_;
    std::vector<std::string> settings_;
    DataInspect inspect_;
};

}  // namespace

std::unique_ptr<Command> make_data_command() {
    return std::make_unique<DataCommand>();
}

}  // namespace garam
