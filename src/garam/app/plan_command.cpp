// garam plan CONFIG… [KEY=VALUE…]: what a run will hold in memory, before it holds it.
#include <fmt/format.h>

#include "garam/app/command.h"
#include "garam/app/load_job.h"
#include "garam/app/progress_line.h"
#include "garam/app/standard_output.h"
#include "garam/core/json.h"
#include "garam/train/memory_table.h"
#include "garam/train/prepared_job.h"

namespace garam {

namespace {

// longest: of a sample that fits, or -1: not asked for.
std::string as_text(const PreparedJob& job, const MemoryPlan& plan, std::int64_t longest) {
    std::string text;
    for (const std::string& note : job.notes)
        text += note + "\n";
    text += fmt::format("{}: {} of {} parameters trained, {} steps of at most {} tokens a pass\n",
                        job.config.model, plan.trainable_elements, plan.total_elements,
                        job.max_steps, job.training_bounds.tokens);
    text += memory_table(plan, job.profile.name, memory_limit_bytes(job.config.memory_limit));
    text += fmt::format("one optimiser step: {:.1f} GFLOP\n", plan.step_cost.flops / 1e9);
    if (longest >= 0)
        text += fmt::format(
            "longest sample that fits, alone in a pass: {} tokens (train.max_length)\n", longest);
    return text;
}

std::string as_json(const PreparedJob& job, const MemoryPlan& plan, std::int64_t longest) {
    Json by_purpose;
    for (int i = 0; i < kPurposes; ++i)
        by_purpose.set(name_of(static_cast<Purpose>(i)),
                       plan.by_purpose[static_cast<std::size_t>(i)]);
    Json json;
    json.set("device", job.profile.name);
    json.set("peak_memory_bytes", plan.total_bytes);
    json.set("by_purpose", std::move(by_purpose));
    json.set("load_peak_bytes", plan.load_peak_bytes);
    json.set("resident_projections", plan.resident_projections);
    json.set("streamable_projections", plan.streamable_projections);
    json.set("pinned_bytes", plan.pinned_bytes);
    json.set("mapped_bytes", plan.mapped_bytes);
    json.set("trainable_parameters", plan.trainable_elements);
    json.set("total_parameters", plan.total_elements);
    json.set("max_steps", job.max_steps);
    json.set("tokens_per_pass", job.training_bounds.tokens);
    json.set("flops_per_step", static_cast<double>(plan.step_cost.flops));
    if (longest >= 0) json.set("longest_sample", longest);
    return json.dump(2) + "\n";
}

class PlanCommand : public Command {
  public:
    std::string name() const override { return "plan"; }
    std::string summary() const override {
        return "Tell what a training run will hold in memory, without running it";
    }
    std::string details() const override {
        return R"(Examples:
  garam plan spam.yaml
  garam plan spam.yaml train.per_device_train_batch_size=16
  garam plan spam.yaml train.gradient_checkpointing=true --json
  garam plan spam.yaml load_in_4bit=true train.gradient_checkpointing=auto memory.limit=6GB
  garam plan spam.yaml train.gradient_checkpointing=auto --longest

The plan is the run itself on a device that only counts: the peak is that of the run, to the byte. It
is for the device that the run would take here: the first usable card, else the processor (device).)";
    }
    void declare(Arguments& arguments) override {
        arguments.positionals("SETTINGS", settings_, "CONFIG.yaml … key=value …");
        arguments.option("--json", &json_, "One JSON object instead of text");
        arguments.option("--longest", &longest_,
                         "Tell too how many tokens the longest sample may have, alone in a pass");
    }
    int run() override {
        const std::unique_ptr<PreparedJob> job = [this] {
            ProgressLine progress;
            return prepare(load_job(settings_).config,
                           [&](const ReadingState& state) { progress.show(state.to_string()); });
        }();
        const MemoryPlan plan = job->plan();
        const std::int64_t longest = longest_ ? job->longest_sample() : -1;
        print(json_ ? as_json(*job, plan, longest) : as_text(*job, plan, longest));
        return 0;
    }

  private:
    std::vector<std::string> settings_;
    bool json_ = false;
    bool longest_ = false;
};

}  // namespace

std::unique_ptr<Command> make_plan_command() {
    return std::make_unique<PlanCommand>();
}

}  // namespace garam
