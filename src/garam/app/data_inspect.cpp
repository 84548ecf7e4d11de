#include "garam/app/data_inspect.h"

#include <unistd.h>

#include <cstdlib>

#include "garam/app/load_job.h"
#include "garam/app/progress_line.h"
#include "garam/app/standard_output.h"
#include "garam/data/inspection_json.h"
#include "garam/data/inspection_page.h"
#include "garam/data/inspection_text.h"
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

}  // namespace

void DataInspect::declare(Arguments& arguments) {
    arguments.option("--json", &json, "One JSON object instead of text");
    arguments.option("--html", &html,
                     "Also write a page that any browser shows, without a network");
    arguments.option("--samples", &samples, "First rows to show", between(0, 1000));
    arguments.option("--strict", &strict, "Exit with status 1 when there are warnings");
}

int DataInspect::run(const std::vector<std::string>& settings) const {
    const Inspection found = [&] {
        ProgressLine progress;
        return inspect_data(load_job(settings).config, samples,
                            [&](const ReadingState& state) { progress.show(state.to_string()); });
    }();
    if (!html.empty()) write_file_atomically(html, inspection_page(found, title_of(settings)));
    print(json ? inspection_json(found).dump(2) + "\n"
               : inspection_text(found, output_has_colour()));
    flush_output();
    return strict && !found.warnings.empty() ? 1 : 0;
}

}  // namespace garam
