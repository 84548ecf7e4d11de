// garam merge MODEL ADAPTER… OUT: adapters folded into their base, as a Hugging Face folder.
#include <charconv>
#include <cmath>
#include <cstdio>

#include "garam/app/command.h"
#include "garam/app/command_line.h"
#include "garam/app/merge_base.h"
#include "garam/app/progress_line.h"
#include "garam/app/standard_output.h"
#include "garam/core/error.h"
#include "garam/io/atomic_write.h"
#include "garam/io/gguf_adapter.h"
#include "garam/io/interruptible_writing.h"
#include "garam/models/merge.h"
#include "garam/models/vocabulary_size.h"
#include "garam/serve/adapter_vocabulary.h"
#include "garam/serve/session.h"
#include "garam/text/tokenizer.h"

namespace garam {
namespace {

std::optional<DType> dtype_from(const std::string& name) {
    if (name == "base") return std::nullopt;
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        if (name == name_of(dtype)) return dtype;
    }
    throw Error("--dtype " + name + " is not supported (supported: base, f32, f16, bf16)");
}

class MergeCommand : public Command {
  public:
    std::string name() const override { return "merge"; }
    std::string summary() const override {
        return "Fold adapters into their base: a model folder that needs no adapter";
    }
    std::string details() const override {
        return R"(The result is a Hugging Face folder: config, safetensors, tokenizer files. Each weight is
W + s B A in double precision, rounded once; of several adapters the sum of all, each times its weight.

Example:
  garam merge MODEL run/adapter merged --dtype bf16
  garam merge MODEL a/adapter b/adapter merged --weights 0.7,0.3

Of a base in 4 bits, on the disk or quantised while it was loaded (load_in_4bit, which the adapter tells),
the values that training saw are merged into, decoded to 16 bits; --base takes the original weights instead.
The line that says which is followed by losses and logits on a sample text, before and after.)";
    }

    void declare(Arguments& arguments) override {
        arguments.positional(
            "MODEL", model_,
            "Hugging Face model folder, GGUF file, or org/name in the local cache");
        arguments.positionals("ADAPTER...OUT", folders_,
                              "PEFT LoRA folder or LoRA GGUF, or several; then the folder to "
                              "write, which must not exist");
        arguments.option("--weights", &weights_,
                         "What each adapter's change is multiplied by: numbers with commas; empty: "
                         "1 each");
        arguments.option("--base", &base_,
                         "Of a base in 4 bits: the model whose 16-bit weights are merged into "
                         "instead of the values that training saw");
        arguments.option("--dtype", &dtype_,
                         "f32, f16, bf16, or base: the base's own, bf16 where a GGUF is quantised");
    }

    int run() override {
        MergeOptions options;
        options.dtype = dtype_from(dtype_);
        if (folders_.size() < 2)
            throw Error("garam merge: OUT is missing: name the folder to write behind the adapter");
        const std::string name = folders_.back();
        folders_.pop_back();
        const std::vector<double> weights = weights_for(folders_.size());
        const std::filesystem::path out = name;
        if (std::filesystem::exists(out))
            throw Error(name + " exists already: name a folder that does not");
        ModelFiles files = ModelFiles::open(model_);
        std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(model_);
        std::string brings_tokens;  // the adapter that does
        std::vector<PeftAdapter> read;
        std::vector<WeightedAdapter> adapters;
        for (const std::string& folder : folders_) {
            read.push_back(read_adapter(folder, files));
            const std::string warning = warning_of_another_base(
                folder, read.back().settings.base_model_name_or_path, files);
            if (!warning.empty())
                std::fputs(("garam: warning: " + one_line(warning) + "\n").c_str(), stderr);
        }
        MergeBase base(files, read, base_);
        for (std::size_t i = 0; i < read.size(); ++i) {
            const std::string& folder = folders_[i];
            const std::int64_t rows = vocabulary_size(files);
            if (&base.target() != &files) {
                std::unique_ptr<Tokenizer> same = load_tokenizer(model_);
                take_vocabulary(base.target(), same, read[i], folder);
            }
            if (!take_vocabulary(files, tokenizer, read[i], folder) &&
                rows == vocabulary_size(files))
                continue;
            if (!brings_tokens.empty())
                throw Error(brings_tokens + " and " + folder +
                            " both have tokens of their own: merge one of them at a time");
            brings_tokens = folder;
        }
        for (std::size_t i = 0; i < read.size(); ++i)
            adapters.push_back({&read[i], folders_[i], weights[i]});
        options.bos_id = tokenizer->bos_id();
        options.eos_id = tokenizer->eos_id();
        options.pad_id = tokenizer->pad_id();

        MergeReport report;
        {
            const InterruptibleWriting interruptible;
            ProgressLine line;
            options.progress = [&](std::int64_t done, std::int64_t of) {
                line.show("merging: " + std::to_string(done) + " of " + std::to_string(of) +
                          " tensors");
            };
            write_new_folder_atomically(out, [&](const std::filesystem::path& folder) {
                report = write_merged_model(base.target(), adapters, folder, options);
                tokenizer->save(folder);
            });
        }
        std::string summary = name + ": " + std::to_string(report.merged_tensors) + " of " +
                              std::to_string(report.tensors) + " tensors merged, " +
                              std::string(name_of(report.dtype)) + ", " +
                              std::to_string(report.bytes) + " bytes of weights\n";
        if (base.is_quantised()) {
            summary += base.statement() + "\n";
            if (read.size() == 1 && weights.front() == 1)
                summary +=
                    compare_merged(files, read.front(), folders_.front(), name, *tokenizer) + "\n";
        } else if (report.was_quantised)
            summary += "The base is quantised; merged weights are " +
                       std::string(name_of(report.dtype)) + ", so the folder is larger.\n";
        print(summary);
        return 0;
    }

  private:
    std::vector<double> weights_for(std::size_t adapters) const {
        if (weights_.empty()) return std::vector<double>(adapters, 1);
        std::vector<double> weights;
        const char* at = weights_.data();
        const char* const end = at + weights_.size();
        for (;;) {
            double weight = 0;
            const auto [stop, error] = std::from_chars(at, end, weight);
            if (error != std::errc() || !std::isfinite(weight) || (stop != end && *stop != ','))
                throw Error("--weights " + weights_ +
                            ": give numbers with commas, such as 0.7,0.3");
            weights.push_back(weight);
            if (stop == end) break;
            at = stop + 1;
        }
        if (weights.size() != adapters)
            throw Error("--weights gives " + std::to_string(weights.size()) + " numbers for " +
                        std::to_string(adapters) + " adapters");
        return weights;
    }

    std::string model_;
    std::vector<std::string> folders_;
    std::string weights_;
    std::string base_;
    std::string dtype_ = "base";
};

}  // namespace

std::unique_ptr<Command> make_merge_command() {
    return std::make_unique<MergeCommand>();
}

}  // namespace garam
