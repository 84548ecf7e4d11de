#include "garam/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "garam/core/error.h"
#include "garam/data/prefetching_loader.h"
#include "garam/io/atomic_write.h"
#include "garam/io/hub_cache.h"
#include "garam/optim/schedule.h"
#include "garam/train/checkpoint.h"
#include "garam/train/host_tensors.h"
#include "garam/train/interrupt.h"
#include "garam/train/memory_choice.h"
#include "garam/train/memory_table.h"
#include "garam/train/metrics_log.h"
#include "garam/train/run_folder.h"
#include "garam/train/tensorboard_log.h"
#include "garam/train/training_model.h"
#include "garam/train/tuned_products.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

class Trainer {
  public:
    Trainer(PreparedJob& job, const MemoryPlan& plan, std::vector<TrainObserver*> observers)
        : job_(job),
          train_(job.config.train),
          output_dir_(train_.output_dir),
          device_(make_device(job.profile)),
          engine_(*device_, job.files, job.engine, plan),
          observers_(std::move(observers)),
          memory_(
              memory_table(plan, job.profile.name, memory_limit_bytes(job.config.memory_limit))) {
        schedule_ = train_.schedule(job.max_steps);
        state_.max_steps = job.max_steps;
        state_.identity = job.identity;
        state_.merged_micro_batches = job.merged_micro_batches;
        state_.metric_for_best_model = reported_name(train_.metric_for_best_model);
        state_.greater_is_better =
            train_.greater_is_better.value_or(greater_is_better(train_.metric_for_best_model));
        state_.tile = job.engine.tile;
        if (train_.nvtx_ranges) {
            engine_.meter().name_ranges(true);
            engine_.micro_steps().record_work(false);
        }
        if (job.adapter) engine_.model().load_adapter(*job.adapter, job.config.adapter);
    }

    // Takes everything from a checkpoint, or throws Error and leaves it as it was.
    void resume(const Checkpoint& checkpoint) {
        const auto changed = differences(job_.identity, checkpoint.state().identity);
        if (!changed.empty()) {
            std::string list;
            for (const std::string& difference : changed)
                list += (list.empty() ? "" : "; ") + difference;
            throw Error(checkpoint.folder().string() + " belongs to another run: " + list);
        }
        HostTensors masters(*device_);
        HostTensors states(*device_);
        add_masters(masters, false);
        add_states(states, false);
        checkpoint.restore(masters.named(), states.named());
        masters.write();
        states.write();
        engine_.model().take_out();
        engine_.optimizer().refresh_copies(engine_.stream());
        const TrainerState now = std::exchange(state_, checkpoint.state());
        if (state_.metric_for_best_model != now.metric_for_best_model ||
            state_.greater_is_better != now.greater_is_better) {
            // What was best in one metric says nothing of another.
            state_.metric_for_best_model = now.metric_for_best_model;
            state_.greater_is_better = now.greater_is_better;
            state_.best_metric.reset();
            state_.evaluations_without_gain = 0;
        }
        last_saved_ = state_.global_step;
    }

    std::int64_t steps_done() const { return state_.global_step; }
    void add_observer(TrainObserver* observer) { observers_.push_back(observer); }

    EndReport run() {
        start_ = Clock::now();
        announce();
        const InterruptGuard interrupt;
        PrefetchingLoader loader(*job_.loader, state_.global_step,
                                 std::max(state_.global_step, job_.max_steps),
                                 train_.dataloader_num_workers);
        engine_.meter().clear();
        if (train_.eval_on_start && state_.global_step == 0) evaluate(false);
        std::string reason = "finished";
        while (state_.global_step < job_.max_steps) {
            if (stops_early()) {
                reason = "stopped early";
                break;
            }
            if (interrupt.requested()) {
                reason = "interrupted";
                break;
            }
            one_step(loader);
        }
        read_results(true);
        if (last_saved_ != state_.global_step) save();
        EndReport end = summary(reason);
        if (reason == "interrupted") {
            end.signal = interrupt.signal();
            end.outputs.emplace_back("checkpoint", (output_dir_ / checkpoint_name()).string());
        } else {
            finish(end);
        }
        for (TrainObserver* observer : observers_)
            observer->on_end(end);
        return end;
    }

  private:
    void announce() {
        StartReport report;
        report.model = job_.config.model;
        report.output_dir = output_dir_.string();
        report.first_step = state_.global_step;
        report.max_steps = job_.max_steps;
        report.num_epochs = job_.loader->epoch_at(job_.max_steps - 1);
        report.num_samples = job_.training.size();
        report.samples_per_step =
            train_.per_device_train_batch_size * train_.gradient_accumulation_steps;
        report.trained_parameters = engine_.model().trainable_elements();
        report.total_parameters = engine_.model().total_elements();
        if (engine_.model().lora() != nullptr) report.total_parameters += report.trained_parameters;
        report.memory = memory_;
        for (TrainObserver* observer : observers_)
            observer->on_start(report);
        for (const std::string& note : job_.notes)
            message(note);
    }

    void message(const std::string& text) {
        for (TrainObserver* observer : observers_)
            observer->on_message(text);
    }

    void one_step(PrefetchingLoader& loader) {
        const Clock::time_point begin = Clock::now();
        std::vector<TokenBatch> batches =
            merge_micro_batches(loader.next(), state_.merged_micro_batches);
        data_seconds_ += seconds_since(begin);
        const double rate = learning_rate(schedule_, state_.global_step);
        std::int64_t tokens = 0;
        std::int64_t targets = 0;
        for (const TokenBatch& batch : batches) {
            tokens += batch.tokens();
            targets += batch.num_targets();
        }
        engine_.enqueue_step(std::move(batches), state_.global_step, rate);

        state_.epoch = job_.loader->epoch_at(state_.global_step);
        ++state_.global_step;
        state_.num_input_tokens_seen += tokens;
        state_.num_target_tokens_seen += targets;
        ++state_.unlogged_steps;
        state_.unlogged_target_tokens += targets;
        state_.unlogged_tokens += tokens;
        targets_ += targets;
        tokens_ += tokens;
        tokens_since_log_ += tokens;

        const bool last = state_.global_step == job_.max_steps;
        const bool logs = last || due(train_.logging_steps);
        const bool evaluates =
            !job_.evaluation.empty() && (last || due(train_.resolved_eval_steps()));
        const bool saves = last || due(train_.save_steps);
        // What steps gave is looked at when something is made of it; until then the device is not
        // waited for.
        read_results(logs || evaluates || saves);
        const double seconds = seconds_since(begin);
        unlogged_seconds_ += seconds;
        step_seconds_ += seconds;

        const ProgressReport progress{state_.global_step, job_.max_steps, seconds_since(start_)};
        for (TrainObserver* observer : observers_)
            observer->on_progress(progress);
        if (logs) log(rate);
        if (evaluates) evaluate(true);
        if (saves) save();
    }

    // Adds up what steps gave, as far as it is known, or (wait) all of it.
    void read_results(bool wait) {
        for (const auto& result : engine_.results(wait)) {
            state_.unlogged_loss_sum += result.loss();
            loss_sum_ += result.loss_sum;
            grad_norm_ = result.grad_norm;
        }
    }

    bool due(std::int64_t every) const { return every > 0 && state_.global_step % every == 0; }

    void log(double rate) {
        StepReport report;
        report.step = state_.global_step;
        report.max_steps = job_.max_steps;
        report.epoch = state_.epoch;
        report.loss = state_.unlogged_loss_sum /
                      static_cast<double>(std::max<std::int64_t>(state_.unlogged_steps, 1));
        report.grad_norm = grad_norm_;
        report.learning_rate = rate;
        report.num_target_tokens = state_.unlogged_target_tokens;
        report.num_tokens = state_.unlogged_tokens;
        report.tokens_per_second = static_cast<double>(tokens_since_log_) / unlogged_seconds_;
        report.peak_memory_bytes = device_->memory().peak;
        report.seconds = seconds_since(start_);
        for (TrainObserver* observer : observers_)
            observer->on_step(report);
        state_.unlogged_steps = 0;
        state_.unlogged_loss_sum = 0;
        state_.unlogged_target_tokens = 0;
        state_.unlogged_tokens = 0;
        tokens_since_log_ = 0;
        unlogged_seconds_ = 0;
    }

    // `counts`: for the best model and for stopping early.
    void evaluate(bool counts) {
        const Clock::time_point begin = Clock::now();
        const auto result = engine_.evaluate(job_.evaluation);
        EvalReport report;
        if (job_.judged) judge_answers(report);
        report.step = state_.global_step;
        report.epoch = state_.epoch;
        report.eval_loss = result.loss();
        report.num_target_tokens = result.targets;
        report.seconds = seconds_since(begin);
        const double metric = metric_for_best_model(report);
        report.is_best = counts && (!state_.best_metric || is_better(metric, *state_.best_metric));
        evaluation_seconds_ += report.seconds;
        if (!std::isfinite(report.eval_loss))
            throw Error("evaluation after step " + std::to_string(state_.global_step) +
                        " gave a loss that is not finite; the checkpoints before it stay");
        for (TrainObserver* observer : observers_)
            observer->on_evaluation(report);
        if (report.is_best) {
            state_.best_metric = metric;
            state_.best_model_checkpoint = checkpoint_name();
            state_.evaluations_without_gain = 0;
            const Clock::time_point saving = Clock::now();
            write_folder_atomically(output_dir_ / "best", [&](const fs::path& folder) {
                write_result(job_, engine_.model(), folder);
            });
            save_seconds_ += seconds_since(saving);
        } else if (counts) {
            ++state_.evaluations_without_gain;
        }
    }

    // The answers to validation rows, generated in the memory of a step.
    void judge_answers(EvalReport& report) {
        const Arena::Mark start = engine_.arena().mark();
        TrainingModel model(engine_, *job_.tokenizer, job_.evaluation_bounds.room);
        const Judgement judgement = judge(model, *job_.judged,
                                          {.max_new_tokens = job_.config.eval.max_new_tokens,
                                           .eos_ids = job_.answer_ends,
                                           .scores = job_.config.eval.has("ece")});
        engine_.stream().synchronize();
        engine_.arena().rewind(start);
        report.metrics = metric_values(job_.config.eval, judgement);
        if (job_.config.eval.has("confusion_matrix")) report.confusion = judgement.confusion;
    }

    double metric_for_best_model(const EvalReport& report) const {
        for (const auto& [name, value] : report.metrics)
            if (name == state_.metric_for_best_model) return value;
        return report.eval_loss;
    }

    bool is_better(double metric, double than) const {
        return state_.greater_is_better ? metric > than : metric < than;
    }

    bool stops_early() const {
        return train_.early_stopping_patience &&
               state_.evaluations_without_gain >= *train_.early_stopping_patience;
    }

    std::string checkpoint_name() const {
        return "checkpoint-" + std::to_string(state_.global_step);
    }

    void add_masters(HostTensors& tensors, bool read) {
        for (const Parameter& parameter : engine_.model().parameters())
            tensors.add(parameter.name, parameter.master, read);
        // What PiSSA began with: the base is the files' less these, to the bit on any machine.
        for (const Decoder::TakenOut& taken : engine_.model().taken_out()) {
            const std::string& name = engine_.model().parameters()[taken.parameter].name;
            const std::string path = name.substr(0, name.rfind(".lora_A.weight"));
            tensors.add(path + ".lora_A.start", taken.A, read);
            tensors.add(path + ".lora_B.start", taken.B, read);
        }
    }
    void add_states(HostTensors& tensors, bool read) {
        for (const auto& [name, state] : engine_.optimizer().states())
            tensors.add(name, state, read);
    }

    void save() {
        const Clock::time_point begin = Clock::now();
        CheckpointContents contents;
        contents.state = state_;
        HostTensors masters(*device_);
        HostTensors states(*device_);
        add_masters(masters, true);
        add_states(states, true);
        contents.masters = masters.named();
        contents.optimizer = states.named();
        contents.write_model = [&](const fs::path& folder) {
            write_result(job_, engine_.model(), folder);
            write_products(job_, folder);
        };
        if (!engine_.model().taken_out().empty()) {
            contents.masters_file.clear();  // the adapter's file has what others can use
        } else if (engine_.model().lora() != nullptr) {
            contents.masters_file = "adapter_model.safetensors";
        } else if (engine_.model().compute_dtype() == DType::f32) {
            contents.masters_file = "model.safetensors";
        }
        const fs::path path = save_checkpoint(output_dir_, contents);
        last_saved_ = state_.global_step;
        rotate_checkpoints(output_dir_, train_.save_total_limit.value_or(0),
                           train_.load_best_model_at_end ? state_.best_model_checkpoint : "");
        for (TrainObserver* observer : observers_)
            observer->on_checkpoint(path);
        save_seconds_ += seconds_since(begin);
    }

    // The run's result: the last state, or with load_best_model_at_end the best one.
    void finish(EndReport& end) {
        const std::string name = result_name(job_);
        const fs::path best = output_dir_ / "best";
        const bool take_best = train_.load_best_model_at_end && fs::is_directory(best);
        write_folder_atomically(output_dir_ / name, [&](const fs::path& folder) {
            if (take_best) {
                fs::copy(best, folder, fs::copy_options::recursive);
            } else {
                write_result(job_, engine_.model(), folder);
            }
        });
        end.outputs.emplace_back(name, (output_dir_ / name).string());
        if (fs::is_directory(best)) end.outputs.emplace_back("best", best.string());
        end.outputs.emplace_back("metrics", (output_dir_ / "metrics.jsonl").string());
    }

    EndReport summary(const std::string& reason) {
        EndReport end;
        end.reason = reason;
        end.step = state_.global_step;
        end.max_steps = job_.max_steps;
        end.epoch = state_.epoch;
        end.train_loss = targets_ == 0 ? 0 : loss_sum_ / static_cast<double>(targets_);
        end.num_target_tokens = targets_;
        end.num_tokens = tokens_;
        end.seconds = seconds_since(start_);
        end.tokens_per_second =
            step_seconds_ > 0 ? static_cast<double>(tokens_) / step_seconds_ : 0;
        end.peak_memory_bytes = device_->memory().peak;

        std::map<std::string, double> phases{{"data", data_seconds_},
                                             {"evaluation", evaluation_seconds_},
                                             {"saving", save_seconds_}};
        double known = data_seconds_ + evaluation_seconds_ + save_seconds_;
        for (const auto& [key, entry] : engine_.meter().table()) {
            // Parts of evaluation.
            if (key.first == "evaluate" || key.first == "prefill" || key.first == "decode")
                continue;
            phases[key.first.empty() ? "other" : key.first] += entry.seconds;
            known += entry.seconds;
        }
        phases["other"] += std::max(0.0, end.seconds - known);
        end.seconds_by_phase.assign(phases.begin(), phases.end());
        std::sort(end.seconds_by_phase.begin(), end.seconds_by_phase.end(),
                  [](const auto& a, const auto& b) { return a.second > b.second; });

        auto purposes = device_->memory().current_by;
        purposes[static_cast<std::size_t>(Purpose::scratch)] -= engine_.arena().capacity();
        for (std::size_t p = 0; p < purposes.size(); ++p) {
            purposes[p] += engine_.arena().peak_by()[p];
            if (purposes[p] > 0)
                end.peak_by_purpose.emplace_back(name_of(static_cast<Purpose>(p)), purposes[p]);
        }
        if (device_->pinned().peak > 0)
            end.peak_by_purpose.emplace_back("pinned host memory", device_->pinned().peak);
        return end;
    }

    PreparedJob& job_;
    const TrainConfig& train_;
    fs::path output_dir_;
    std::unique_ptr<Device> device_;
    TrainingEngine engine_;
    std::vector<TrainObserver*> observers_;
    std::string memory_;  // the table of the plan
    ScheduleOptions schedule_;
    TrainerState state_;
    std::int64_t last_saved_ = -1;
    Clock::time_point start_;
    double grad_norm_ = 0;  // of the last step whose result was read
    double unlogged_seconds_ = 0;
    std::int64_t tokens_since_log_ = 0;  // of this process
    // Of this process, for the summary.
    double loss_sum_ = 0;
    std::int64_t targets_ = 0;
    std::int64_t tokens_ = 0;
    double step_seconds_ = 0;
    double data_seconds_ = 0;
    double evaluation_seconds_ = 0;
    double save_seconds_ = 0;
};

// The checkpoint that the config asks to go on with; empty: a new run.
fs::path checkpoint_to_resume(const TrainConfig& train, std::vector<std::string>& notes) {
    const std::string& wanted = train.resume_from_checkpoint;
    if (wanted == "false") return {};
    if (wanted != "true") return wanted;
    const LastCheckpoint last = find_last_checkpoint(train.output_dir);
    for (const std::string& reason : last.passed_over)
        notes.push_back("warning: " + reason);
    if (!last.folder)
        throw Error("train.resume_from_checkpoint: " + train.output_dir +
                    " holds no complete checkpoint; start anew with "
                    "train.resume_from_checkpoint=false");
    return *last.folder;
}

// A model that takes more than a moment: until it is there nothing else can be told.
void announce_loading(const PreparedJob& job, const std::vector<TrainObserver*>& observers) {
    constexpr std::int64_t kMoment = std::int64_t{1} << 30;
    std::int64_t bytes = 0;
    for (const StoredTensor& tensor : job.files.tensors())
        bytes += static_cast<std::int64_t>(tensor.bytes);
    if (bytes < kMoment) return;
    const std::string text = "loading " + job.config.model + ": " + std::to_string(bytes >> 20) +
                             " MiB of weights" + (job.engine.model.quantize ? ", to quantise" : "");
    for (TrainObserver* observer : observers)
        observer->on_message(text);
}

}  // namespace

EndReport train(const JobConfig& config, const std::string& config_yaml,
                const std::vector<TrainObserver*>& observers) {
    const auto job = prepare(config, [&](const ReadingState& state) {
        for (TrainObserver* observer : observers)
            observer->on_reading(state);
    });
    const fs::path output_dir = config.train.output_dir;
    const fs::path resumed = checkpoint_to_resume(config.train, job->notes);
    const RunFolder folder(output_dir);
    if (resumed.empty()) {
        std::vector<fs::path> inputs = {job->files.path(), find_model_path(config.adapter).path,
                                        config.train.tuned_products, config.data.chat_template};
        for (const auto* paths : {&config.data.train, &config.data.validation})
            inputs.insert(inputs.end(), paths->begin(), paths->end());
        folder.check_free(config.train.overwrite_output_dir, inputs);
    }
    std::optional<Checkpoint> checkpoint;
    if (!resumed.empty()) {
        checkpoint = Checkpoint::open(resumed);
        go_on_with_products_of(*checkpoint, *job);
    }
    const MemoryPlan plan = job->plan(checkpoint ? &checkpoint->state() : nullptr);
    announce_loading(*job, observers);
    Trainer trainer(*job, plan, observers);
    // Only now that all inputs are known to be good may what an earlier run left go.
    if (!checkpoint) {
        folder.clear();
    } else {
        trainer.resume(*checkpoint);
    }
    remove_checkpoint_leftovers(output_dir);
    write_file_atomically(output_dir / "config.yaml", config_yaml);
    write_products(*job, output_dir);
    MetricsLog metrics(output_dir / "metrics.jsonl", trainer.steps_done());
    trainer.add_observer(&metrics);
    std::optional<TensorboardLog> tensorboard;
    if (config.train.report_to == "tensorboard") {
        tensorboard.emplace(output_dir / "runs");
        trainer.add_observer(&*tensorboard);
    }
    return trainer.run();
}

}  // namespace garam
