// garam data inspect CONFIG… [KEY=VALUE…]: what a person should see of the data before training.
#include <unistd.h>

#include <cstdlib>

#include "garam/app/command.h"
#include "garam/app/load_job.h"
#include "garam/app/progress_line.h"
#include "garam/app/standard_output.h"
#include "garam/data/inspection/inspection_json.h"
#include "garam/data/inspection/inspection_page.h"
#include "garam/data/inspection/inspection_text.h"
#include "garam/io/atomic_write.h"
#include "garam/train/inspect_job.h"

namespace garam {
namespace {

bool output_has_colour() {
    const char* no_colour = std::getenv("NO_COLOR");
    const char* terminal = std::getenv("TERM");
    return isatty(STDOUT_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0') &&
           terminal != nullptr && std::string(terminal) != "dumb";
}

// The page is named after the first config file.
std::string title_of(const std::vector<std::string>& settings) {
    for (const std::string& setting : settings)
        if (!is_override(setting)) return setting;
    return "garam data inspect";
}

class DataInspectCommand : public Command {
  public:
    std::string name() const override { return "data inspect"; }
    std::string summary() const override {
        return "Show the data of a run as the model sees it, and what is wrong with it";
    }
    std::string details() const override {
        return R"(Reads the rows as training does and shows how many there are, what the first ones look like to
the model, their lengths, what truncation takes and what batches leave empty; it warns of what is
likely to be a mistake, with a row and the key to change. Only tokenizer and config of the model are
needed. Exit status: 0, or 1 with --strict and a warning.

Examples:
  garam data inspect spam.yaml
  garam data inspect spam.yaml train.max_length=512 --samples 10
  garam data inspect spam.yaml --html data.html
  garam data inspect spam.yaml --strict --json > data.json)";
    }
    void declare(Arguments& arguments) override {
        arguments.positionals("SETTINGS", settings_, "CONFIG.yaml … key=value …");
        arguments.option("--json", &json_, "One JSON object instead of text");
        arguments.option("--html", &html_,
                         "Also write a page that any browser shows, without a network");
        arguments.option("--samples", &samples_, "First rows to show", between(0, 1000));
        arguments.option("--strict", &strict_, "Exit with status 1 when there are warnings");
    }
    int run() override {
        const Inspection found = [&] {
            ProgressLine progress;
            return inspect_data(
                load_job(settings_).config, samples_,
                [&](const ReadingState& state) { progress.show(state.to_string()); });
        }();
        if (!html_.empty())
            write_file_atomically(html_, inspection_page(found, title_of(settings_)));
        print(json_ ? inspection_json(found).dump(2) + "\n"
                    : inspection_text(found, output_has_colour()));
        flush_output();
        return strict_ && !found.warnings.empty() ? 1 : 0;
    }

  private:
    std::vector<std::string> settings_;
    bool json_ = false;
    std::string html_;
    std::int64_t samples_ = 3;
    bool strict_ = false;
};

}  // namespace

std::unique_ptr<Command> make_data_inspect_command() {
    return std::make_unique<DataInspectCommand>();
}

}  // namespace garam
