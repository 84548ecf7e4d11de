#include "garam/train/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "garam/core/error.h"
#include "garam/core/json.h"
#include "garam/io/atomic_write.h"
#include "garam/train/eval_config.h"

namespace garam {
namespace {

// Lines of an earlier part of the run up to `step`. What cannot be read as an object with a step
// (a line torn by a kill) tells nothing and goes.
std::string lines_up_to(const std::filesystem::path& path, std::int64_t step) {
    std::string kept;
    std::ifstream file(path, std::ios::binary);
    for (std::string line; std::getline(file, line);) {
        // A file of lines that are no objects at all is not worth an exception each.
        if (!line.starts_with('{') || !line.ends_with('}')) continue;
        try {
            const Json entry = Json::parse(line, path.string());
            const Json* at = entry.find("step");
            if (at == nullptr || !at->is_int() || at->integer() > step) continue;
        } catch (const Error&) {
            continue;
        }
        kept += line + "\n";
    }
    return kept;
}

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& path, std::int64_t resumed_step) : path_(path) {
    write_file_atomically(path, resumed_step > 0 ? lines_up_to(path, resumed_step) : std::string());
    file_ = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file_ < 0)
        throw Error(path_.string() + ": cannot be opened for writing: " + std::strerror(errno));
}

MetricsLog::~MetricsLog() {
    close(file_);
}

void MetricsLog::append(std::string line) {
    line += '\n';
    std::size_t done = 0;
    while (done < line.size()) {
        const ssize_t written = write(file_, line.data() + done, line.size() - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0)
            throw Error(path_.string() + ": metrics could not be written: " + std::strerror(errno));
        done += static_cast<std::size_t>(written);
    }
}

void MetricsLog::on_step(const StepReport& report) {
    append(Json(Json::Object{{"step", report.step},
                             {"epoch", report.epoch},
                             {"loss", report.loss},
                             {"grad_norm", report.grad_norm},
                             {"learning_rate", report.learning_rate},
                             {"num_target_tokens", report.num_target_tokens},
                             {"tokens_per_second", report.tokens_per_second},
                             {"peak_memory_bytes", report.peak_memory_bytes}})
               .dump());
}

void MetricsLog::on_evaluation(const EvalReport& report) {
    Json line(Json::Object{{"step", report.step},
                           {"epoch", report.epoch},
                           {"eval_loss", report.eval_loss},
                           {"eval_num_target_tokens", report.num_target_tokens}});
    for (const auto& [name, value] : report.metrics)
        line.set(name, value);
    if (report.confusion) line.set("eval_confusion_matrix", confusion_json(*report.confusion));
    line.set("eval_runtime", report.seconds);
    append(line.dump());
}

}  // namespace garam
