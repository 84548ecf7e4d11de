// garam train CONFIG… [KEY=VALUE…]
#include "garam/app/command.h"
#include "garam/app/load_job.h"
#include "garam/train/progress.h"
#include "garam/train/trainer.h"

namespace garam {

namespace {

constexpr int kSignalled = 128;  // plus the signal's number, as shells count

class TrainCommand : public Command {
  public:
    std::string name() const override { return "train"; }
    std::string summary() const override {
        return "Fine-tune a model: a LoRA adapter, or all weights";
    }
    std::string details() const override {
        return R"(Examples:
  garam train spam.yaml
  garam train spam.yaml lora.r=32 train.learning_rate=2e-4 train.output_dir=runs/r32
  garam train model=SmolLM2 data.train=chats.jsonl train.max_steps=100
  garam train spam.yaml train.resume_from_checkpoint=true

garam config lists the keys. Paths are taken from the current directory. Ctrl-C finishes the
step, saves a checkpoint and ends with status 130 (SIGTERM does the same with 143).)";
    }
    void declare(Arguments& arguments) override {
        arguments.positionals("SETTINGS", settings_, "CONFIG.yaml … key=value …");
    }
    int run() override {
        const LoadedJob job = load_job(settings_);
        ConsoleProgress progress;
        const EndReport report = train(job.config, job.yaml, {&progress});
        return report.signal != 0 ? kSignalled + report.signal : 0;
    }

  private:
    std::vector<std::string> settings_;
};

}  // namespace

std::unique_ptr<Command> make_train_command() {
    return std::make_unique<TrainCommand>();
}

}  // namespace garam
