#include "garam/train/tensorboard_log.h"

namespace garam {

void TensorboardLog::on_step(const StepReport& report) {
    file_.scalar("train/loss", report.loss, report.step);
    file_.scalar("train/grad_norm", report.grad_norm, report.step);
    file_.scalar("train/learning_rate", report.learning_rate, report.step);
    file_.scalar("train/epoch", report.epoch, report.step);
    file_.scalar("train/tokens_per_second", report.tokens_per_second, report.step);
}

void TensorboardLog::on_evaluation(const EvalReport& report) {
    file_.scalar("eval/loss", report.eval_loss, report.step);
    // Transformers' names there: eval/f1 for eval_f1.
    for (const auto& [name, value] : report.metrics)
        file_.scalar("eval/" + name.substr(std::string("eval_").size()), value, report.step);
    file_.scalar("eval/runtime", report.seconds, report.step);
}

}  // namespace garam
