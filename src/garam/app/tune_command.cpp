// garam tune CONFIG… [KEY=VALUE…]: which algorithms multiply the products of a job fastest on this card.
#include <fmt/format.h>

#include <algorithm>

#include "garam/app/command.h"
#include "garam/app/load_job.h"
#include "garam/app/progress_line.h"
#include "garam/app/standard_output.h"
#include "garam/core/error.h"
#include "garam/io/atomic_write.h"
#include "garam/train/tuned_products.h"

namespace garam {
namespace {

std::string line(const std::string& shape, const TunedProduct& tuned) {
    const std::string how = tuned.two_products ? "two products"
                            : tuned.algorithm  ? fmt::format("algorithm {}", tuned.algorithm->id)
                                               : "";
    return fmt::format("{:<46} {:>7.1f} {:>10.1f} {:>10.1f} {:>6.1f} %  {}\n", shape, tuned.calls,
                       tuned.heuristic_us, tuned.tuned_us,
                       100 * (1 - tuned.tuned_us / std::max(tuned.heuristic_us, 1e-9)), how);
}

// What takes the most of a step first.
std::string as_text(const ProductTable& table) {
    std::vector<std::pair<ProductShape, TunedProduct>> rows(table.products.begin(),
                                                            table.products.end());
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
        return a.second.calls * a.second.heuristic_us > b.second.calls * b.second.heuristic_us;
    });
    std::string text =
        fmt::format("{:<46} {:>7} {:>10} {:>10} {:>8}\n", "product (m x n x k, op(a) op(b))",
                    "calls", "heuristic", "best us", "gain");
    double heuristic = 0;
    double best = 0;
    for (const auto& [shape, tuned] : rows) {
        text += line(shape.to_string(), tuned);
        heuristic += tuned.calls * tuned.heuristic_us;
        best += tuned.calls * tuned.tuned_us;
    }
    return text + fmt::format(
                      "products of a step: {:.3f} ms as the heuristic chooses, {:.3f} ms "
                      "tuned\n",
                      heuristic * 1e-3, best * 1e-3);
}

class TuneCommand : public Command {
  public:
    std::string name() const override { return "tune"; }
    std::string summary() const override {
        return "Find the fastest matrix products for a run on this card";
    }
    std::string details() const override {
        return R"(Examples:
  garam tune spam.yaml
  garam tune spam.yaml train.per_device_train_batch_size=16 --out h100.json
  garam train spam.yaml train.tuned_products=products.json

Times each product of the run's first steps, as the run would cut them, with the choices that
cuBLASLt offers, and writes those that are clearly faster than its first to a file. The file is
for this kind of card and this cuBLASLt only. It may change results by rounding: checkpoints keep
a copy, so that a resumed run goes on with the same bits.)";
    }
    void declare(Arguments& arguments) override {
        arguments.positionals("SETTINGS", settings_, "CONFIG.yaml … key=value …");
        arguments.option("--out", &out_, "The file to write");
    }
    int run() override {
        if (out_.empty()) throw Error("--out is empty: name a file");
        JobConfig config = load_job(settings_).config;
        config.train.tuned_products.clear();  // what is to be found
        const std::unique_ptr<PreparedJob> job = prepare(config);
        if (!job->profile.is_cuda())
            throw Error("garam tune needs a card: products are tuned on cards only (device=" +
                        config.device + ")");
        job->plan();
        for (const std::string& note : job->notes)
            print(note + "\n");
        const ProductCounts counts =
            count_products(job->profile, job->files, job->engine, first_steps(*job));
        const auto device = make_device(job->profile);
        ProductTable table;
        {
            ProgressLine progress_line;
            table = tune_products(*device, counts, {}, [&](const TuningProgress& progress) {
                progress_line.show(fmt::format("{} of {} products, the last: {}", progress.done,
                                               progress.total, progress.shape->to_string()));
            });
        }
        write_file_atomically(out_, table.to_text());
        print(as_text(table) + "written to " + out_ + ": use it with train.tuned_products=" + out_ +
              "\n");
        return 0;
    }

  private:
    std::vector<std::string> settings_;
    std::string out_ = kProductTableFile;
};

}  // namespace

std::unique_ptr<Command> make_tune_command() {
    return std::make_unique<TuneCommand>();
}

}  // namespace garam
