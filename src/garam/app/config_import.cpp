#include "garam/app/config_import.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <unordered_set>

#include "garam/app/command_line.h"
#include "garam/app/data_import.h"
#include "garam/core/error.h"
#include "garam/optim/optimizer.h"
#include "garam/train/job_config.h"

namespace garam {
namespace {

using Kind = ConfigText::Kind;

std::string lower(std::string text) {
    for (char& c : text)
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

bool is_null(const ConfigText& value) {
    if (value.kind == Kind::list) return value.items.empty();
    if (value.kind == Kind::null || value.text.empty()) return true;
    const std::string word = lower(value.text);
    return value.kind == Kind::plain && (word == "null" || word == "none" || word == "~");
}

// YAML 1.1's words, which these trainers read.
std::optional<bool> truth_of(const ConfigText& value) {
    const std::string word = lower(value.text);
    if (word == "true" || word == "yes" || word == "on") return true;
    if (word == "false" || word == "no" || word == "off") return false;
    return std::nullopt;
}

bool is_off(const ConfigText& value) {
    return is_null(value) || (value.kind != Kind::list && truth_of(value) == false);
}

// As far as a message shows it.
std::string text_of(const ConfigText& value) {
    if (value.kind == Kind::null) return "null";
    if (value.kind != Kind::list) return begin_of(value.text);
    std::string text = "[";
    for (const std::string& item : value.items) {
        if (text.size() > 1) text += ", ";
        text += begin_of(item);
        if (const std::string begin = begin_of(text); begin != text) return begin;
    }
    return text + "]";
}

std::string last_part(const std::string& key) {
    return key.substr(key.rfind('.') + 1);
}

bool is_bool(const ConfigTable::Entry& entry) {
    return std::holds_alternative<bool*>(entry.target) ||
           std::holds_alternative<std::optional<bool>*>(entry.target);
}

class Importer {
  public:
    Importer(const std::vector<ConfigLine>& lines, const std::string& file)
        : lines_(lines), table_(describe(job_)) {
        result_.dialect = recognise(lines, file);
        dialect_ = &table_of(result_.dialect);
    }

    ImportedConfig run() && {
        DataImport data(
            result_.dialect,
            [this](const std::string& ours, const ConfigText& value, const ConfigLine& line) {
                set(ours, value, line);
            },
            [this](const ConfigLine& line, const std::string& reason) { leave_out(line, reason); });
        for (const ConfigLine& line : lines_)
            if (!data.take(line)) carry(line);
        data.finish();
        add_defaults();
        settle();
        try {
            validate(job_);
        } catch (const Error& error) {
            result_.missing = error.what();
        }
        result_.yaml = table_.to_yaml(true);
        return std::move(result_);
    }

  private:
    bool is_set(const std::string& ours) const { return !table_.find(ours)->source.empty(); }

    // Of many items of a line, an equal reason is told once.
    void leave_out(const ConfigLine& line, const std::string& reason) {
        std::string text = line.source + ": " + begin_of(line.key) + ": " +
                           one_line(text_of(line.value)) + ": " + reason;
        if (told_.insert(text).second) result_.left_out.push_back(std::move(text));
    }

    // Sets our key, or tells why its value cannot be carried.
    bool set(const std::string& ours, ConfigText value, const ConfigLine& line) {
        const ConfigTable::Entry* const entry = table_.find(ours);  // none for one number of a map
        const bool takes_truth = (entry != nullptr && is_bool(*entry)) ||
                                 ours == "train.resume_from_checkpoint" ||
                                 ours == "lora.init_lora_weights";
        if (takes_truth && value.kind != Kind::list) {
            if (const auto truth = truth_of(value)) value.text = *truth ? "true" : "false";
        }
        try {
            table_.set(ours, value, line.source);
        } catch (const Error& error) {
            std::string reason = error.what();
            const std::string place = line.source + ": ";
            if (reason.starts_with(place)) reason = reason.substr(place.size());
            leave_out(line, reason);
            return false;
        }
        return true;
    }
    bool set(const std::string& ours, const std::string& text, const ConfigLine& line) {
        return set(ours, ConfigText{Kind::plain, text, {}}, line);
    }

    const CarryRule* rule_of(const std::string& name) const {
        for (const auto& rules : {dialect_->rules, shared_rules()})
            for (const CarryRule& rule : rules)
                if (name == rule.name) return &rule;
        return nullptr;
    }

    void carry(const ConfigLine& line) {
        const std::string kwargs = "lr_scheduler_kwargs.";
        const std::string name = dialect_->sections ? last_part(line.key) : line.key;
        if (const auto at = line.key.find(kwargs); at != std::string::npos) {
            const std::string ours = "train." + line.key.substr(at);
            if (table_.find(ours) == nullptr)
                leave_out(line, "no schedule here has this option");
            else if (!is_null(line.value))
                set(ours, line.value, line);
            return;
        }
        for (const std::string map : {"rank_pattern", "alpha_pattern"}) {
            const auto at = line.key.find(map + ".");
            const bool begins = at == 0 || (at != std::string::npos && dialect_->sections &&
                                            line.key[at - 1] == '.');
            if (!begins && name != map) continue;
            if (!is_null(line.value))
                set("lora." + (begins ? line.key.substr(at) : map), line.value, line);
            return;
        }
        const CarryRule* const rule = rule_of(name);
        if (rule == nullptr) return leave_unknown(line);
        // Nothing said: the trainer's default, which is ours or among the dialect's. To name no adapter and
        // no place to report to says something.
        if (is_null(line.value) && rule->carry != Carry::adapter_kind &&
            rule->carry != Carry::report)
            return;
        apply(*rule, line);
    }

    // Why a key without a rule means nothing here, by the advice that the key itself gets.
    void leave_unknown(const ConfigLine& line) {
        if (is_off(line.value)) return;
        if (const char* known = reason_against(line.key)) return leave_out(line, known);
        const std::string* const advice = table_.advice_against(line.key);
        std::string reason = advice == nullptr ? "nothing here has this meaning" : *advice;
        const std::string ending = "remove it";
        if (reason == ending) reason = "nothing to be said here";
        if (reason.ends_with("; " + ending)) reason.resize(reason.size() - ending.size() - 2);
        leave_out(line, reason);
    }

    void apply(const CarryRule& rule, const ConfigLine& line) {
        const ConfigText& value = line.value;
        const std::string word = lower(value.text);
        switch (rule.carry) {
            case Carry::copy:
                set(rule.ours, value, line);
                return;
            case Carry::copy_first:
                if (!is_set(rule.ours)) set(rule.ours, value, line);
                return;
            case Carry::targets:
                carry_targets(rule, line);
                return;
            case Carry::all_linear:
                if (truth_of(value) == true) set(rule.ours, "all-linear", line);
                return;
            case Carry::optimizer:
                carry_optimizer(rule, line);
                return;
            case Carry::schedule:
                set(rule.ours, word, line);
                return;
            case Carry::warmup:
                carry_warmup(rule, line);
                return;
            case Carry::dtype:
                if (word == "auto") return;
                if (word != "bfloat16" && word != "bf16" && word != "float32" && word != "fp32")
                    return leave_out(line, "there is bf16 and fp32: train.bf16");
                set(rule.ours, word.starts_with("bf") ? "true" : "false", line);
                return;
            case Carry::fp16:
                if (truth_of(value) != false) leave_out(line, "there is bf16 and fp32: train.bf16");
                return;
            case Carry::checkpointing:
                carry_checkpointing(rule, line);
                return;
            case Carry::eval_strategy:
                if (word == "epoch")
                    leave_out(line, "evaluations are counted in steps: train.eval_steps");
                evaluates_ = word != "no" && word != "false";
                return;
            case Carry::save_strategy:
                if (word == "no" || word == "false")
                    set(rule.ours, "0", line);
                else if (word != "steps")
                    leave_out(line, "checkpoints are counted in steps: train.save_steps");
                return;
            case Carry::all_targets: {
                const bool all = truth_of(value) == true;
                if (set(rule.ours, all ? "false" : "true", line) && all)
                    set("train.completion_only_loss", "false", line);
                return;
            }
            case Carry::peft:
                set(rule.ours, truth_of(value) == true ? "lora" : "full", line);
                return;
            case Carry::adapter_kind:
                set(rule.ours, is_null(value) ? "full" : "lora", line);
                if (word == "qlora") {
                    if (!is_set("load_in_4bit")) set("load_in_4bit", "true", line);
                } else if (!is_null(value) && word != "lora") {
                    leave_out(line, "adapters are LoRA's");
                }
                return;
            case Carry::finetuning_type:
                if (word == "lora" || word == "full") {
                    set(rule.ours, word, line);
                } else {
                    leave_out(line, "choose lora or full: train.method");
                }
                return;
            case Carry::stage:
                if (word != "sft" && word != "pt")
                    leave_out(line, "models are trained on given text alone (sft, pt)");
                return;
            case Carry::report:
                carry_report(rule, line);
                return;
            case Carry::min_lr_ratio:
                if (set(rule.ours, value, line)) cosine_has_minimum_ = true;
                return;
            case Carry::quantization_bit:
                if (word == "4")
                    set(rule.ours, "true", line);
                else
                    leave_out(line, "a base is quantised to 4 bits: load_in_4bit");
                return;
            case Carry::quantization_method:
                if (word != "bitsandbytes" && word != "bnb")
                    leave_out(line, "a base is quantised as bitsandbytes does: load_in_4bit");
                return;
        }
    }

    void carry_targets(const CarryRule& rule, const ConfigLine& line) {
        const auto is_all = [](const std::string& text) {
            return text == "all" || text == "all-linear" || text == "all_linear";
        };
        const ConfigText& value = line.value;
        const bool all = value.kind == Kind::list
                             ? value.items.size() == 1 && is_all(value.items[0])
                             : is_all(value.text);
        if (all) {
            set(rule.ours, "all-linear", line);
        } else {
            // A quoted text may hold several names too.
            set(rule.ours,
                value.kind == Kind::list ? value : ConfigText{Kind::plain, value.text, {}}, line);
        }
    }

    void carry_optimizer(const CarryRule& rule, const ConfigLine& line) {
        const std::string word = lower(line.value.text);
        const std::vector<std::string>& known = optimizer_names();
        if (std::find(known.begin(), known.end(), word) != known.end()) {
            set(rule.ours, word, line);
        } else if (word.find("adamw") != std::string::npos &&
                   word.find("8bit") != std::string::npos) {
            set(rule.ours, "adamw_8bit", line);
            leave_out(line, "adamw_8bit is taken");
        } else if (word.find("adamw") != std::string::npos) {
            set(rule.ours, "adamw_torch", line);
            if (word != "adamw_hf" && word != "adamw")
                leave_out(line, "AdamW with states in fp32 is taken");
        } else {
            leave_out(line, "there is AdamW and SGD: train.optim");
        }
    }

    void carry_warmup(const CarryRule& rule, const ConfigLine& line) {
        const std::string& text = line.value.text;
        double steps = 0;
        const auto read = std::from_chars(text.data(), text.data() + text.size(), steps);
        const bool is_part = read.ec == std::errc{} && steps > 0 && steps < 1;
        set(is_part ? "train.warmup_ratio" : rule.ours, line.value, line);
    }

    void carry_checkpointing(const CarryRule& rule, const ConfigLine& line) {
        const std::string word = lower(line.value.text);
        const auto truth = truth_of(line.value);
        if (truth) {
            set(rule.ours, *truth ? "true" : "false", line);
        } else if (word == "unsloth" || word == "selective") {
            set(rule.ours, "true", line);
        } else if (word == "offload" || word == "offload_disk") {
            set(rule.ours, "true", line);
            leave_out(line, "on a card train.gradient_checkpointing=offload does it");
        } else {
            leave_out(line, "train.gradient_checkpointing is true or false");
        }
    }

    void carry_report(const CarryRule& rule, const ConfigLine& line) {
        const ConfigText& value = line.value;
        std::vector<std::string> places = value.items;
        if (value.kind != Kind::list) places = {lower(value.text)};
        for (const std::string& place : places) {
            if (place == "tensorboard" || place == "true") {
                set(rule.ours, "tensorboard", line);
            } else if (place == "none") {
                set(rule.ours, "none", line);
            } else if (place != "false" && !place.empty()) {
                leave_out(line, "trackers are not connected: train.report_to=tensorboard");
            }
        }
    }

    void add_defaults() {
        const std::string source = std::string("default of ") + name_of(result_.dialect);
        const auto add = [&](const std::string& ours, const std::string& value) {
            if (!is_set(ours)) table_.set(ours, value, source);
        };
        // The method first: others hang on it.
        for (const DialectTable::Default& value : dialect_->defaults)
            if (!value.of_lora) add(value.ours, value.value);
        if (job_.train.method != "lora") return;
        for (const DialectTable::Default& value : dialect_->defaults)
            if (value.of_lora) add(value.ours, value.value);
        if (job_.four_bit.load_in_4bit) {
            add("bnb_4bit_quant_type", "nf4");
            if (dialect_->double_quantization) add("bnb_4bit_use_double_quant", "true");
        }
        if (dialect_->alpha_is_twice_rank) add("lora.lora_alpha", std::to_string(2 * job_.lora.r));
    }

    // Back to our default, as if it had not been said.
    void drop(const std::string& ours, const std::string& reason) {
        const ConfigTable::Entry& entry = *table_.find(ours);
        if (entry.source.empty()) return;
        result_.left_out.push_back(entry.source + ": " + ours + ": " + entry.value_text() + ": " +
                                   reason);
        table_.reset(ours);
    }

    // Keys that others allow together, or without what they need here.
    void settle() {
        TrainConfig& train = job_.train;
        if (cosine_has_minimum_ && train.lr_scheduler_type == "cosine")
            table_.set("train.lr_scheduler_type", "cosine_with_min_lr",
                       table_.find("train.lr_scheduler_kwargs.min_lr_rate")->source);
        else if (cosine_has_minimum_)
            drop("train.lr_scheduler_kwargs.min_lr_rate", "only a cosine has a minimum");
        if (train.warmup_steps > 0 && train.warmup_ratio > 0)
            drop("train.warmup_ratio", "warmup_steps counts");
        if (train.lr_scheduler_type == "constant") {
            drop("train.warmup_steps", "the schedule constant has no warm-up");
            drop("train.warmup_ratio", "the schedule constant has no warm-up");
        }
        if (train.packing && train.group_by_length)
            drop("train.group_by_length", "packed rows are of one length");
        for (const char* key :
             {"data.validation", "data.validation_split", "data.validation_fraction"})
            if (!evaluates_) drop(key, "eval_strategy is no");
        if (!job_.data.validation.empty() || !job_.data.validation_split.empty())
            drop("data.validation_fraction", "there are rows to evaluate on");
        if (!job_.data.evaluates()) {
            for (const char* key :
                 {"train.eval_steps", "train.eval_on_start", "train.load_best_model_at_end",
                  "train.early_stopping_patience"})
                drop(key, "there are no rows to evaluate on (data.validation)");
        } else if (train.load_best_model_at_end && !is_set("train.eval_steps") &&
                   train.save_steps > 0) {
            table_.set("train.eval_steps", std::to_string(train.save_steps), "train.save_steps");
        }
        if (reported_name(train.metric_for_best_model) != "eval_loss") {
            drop("train.metric_for_best_model", "what it measures is code there; see eval.metrics");
            drop("train.greater_is_better", "train.metric_for_best_model is left out");
        }
        if (train.method == "full") {
            for (const auto& entry : table_.entries())
                if (entry.key.starts_with("lora.")) drop(entry.key, "all weights are trained");
        }
    }

    const std::vector<ConfigLine>& lines_;
    JobConfig job_;
    ConfigTable table_;
    const DialectTable* dialect_ = nullptr;
    ImportedConfig result_;
    std::unordered_set<std::string> told_;
    bool evaluates_ = true;
    bool cosine_has_minimum_ = false;
};

}  // namespace

std::string ImportedConfig::to_text(const std::string& file) const {
    std::string text = "# " + one_line(file) + " (" + name_of(dialect) + ") in garam's keys.\n";
    if (!missing.empty()) text += "# Before it can be trained with: " + one_line(missing) + "\n";
    if (!left_out.empty()) text += "# Not carried over:\n";
    for (const std::string& line : left_out)
        text += "#   " + one_line(line) + "\n";
    return text + yaml;
}

ImportedConfig import_config(const std::vector<ConfigLine>& lines, const std::string& file) {
    return Importer(lines, file).run();
}

}  // namespace garam
