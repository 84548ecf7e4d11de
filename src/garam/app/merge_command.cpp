// garam merge MODEL ADAPTER OUT: an adapter folded into its base, as a Hugging Face folder.
#include <cstdio>

#include "garam/app/command.h"
#include "garam/app/command_line.h"
#include "garam/app/standard_output.h"
#include "garam/core/error.h"
#include "garam/io/atomic_write.h"
#include "garam/io/gguf_adapter.h"
#include "garam/models/merge.h"
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
        return "Fold an adapter into its base: a model folder that needs no adapter";
    }
    std::string details() const override {
        return R"(The result is a Hugging Face folder: config, safetensors, tokenizer files. Each weight is
W + s B A in double precision, rounded once.

Example:
  garam merge MODEL run/adapter merged --dtype bf16)";
    }

    void declare(Arguments& arguments) override {
        arguments.positional(
            "MODEL", model_,
            "Hugging Face model folder, GGUF file, or org/name in the local cache");
        arguments.positional("ADAPTER", adapter_, "PEFT LoRA folder or LoRA GGUF");
        arguments.positional("OUT", out_, "Folder to write; must not exist");
        arguments.option("--dtype", &dtype_,
                         "f32, f16, bf16, or base: the base's own, bf16 where a GGUF is quantised");
    }

    int run() override {
        MergeOptions options;
        options.dtype = dtype_from(dtype_);
        const std::filesystem::path out = out_;
        if (std::filesystem::exists(out))
            throw Error(out_ + " exists already: name a folder that does not");
        const ModelFiles files = ModelFiles::open(model_);
        const PeftAdapter adapter = read_adapter(adapter_, files);
        const std::string warning =
            warning_of_another_base(adapter_, adapter.settings.base_model_name_or_path, files);
        if (!warning.empty())
            std::fputs(("garam: warning: " + one_line(warning) + "\n").c_str(), stderr);
        const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(model_);
        options.bos_id = tokenizer->bos_id();
        options.eos_id = tokenizer->eos_id();
        options.pad_id = tokenizer->pad_id();

        MergeReport report;
        write_folder_atomically(out, [&](const std::filesystem::path& folder) {
            report = write_merged_model(files, adapter, adapter_, folder, options);
            tokenizer->save(folder);
        });
        std::string summary = out_ + ": " + std::to_string(report.merged_tensors) + " of " +
                              std::to_string(report.tensors) + " tensors merged, " +
                              std::string(name_of(report.dtype)) + ", " +
                              std::to_string(report.bytes) + " bytes of weights\n";
        if (report.was_quantised)
            summary += "The base is quantised; merged weights are " +
                       std::string(name_of(report.dtype)) + ", so the folder is larger.\n";
        print(summary);
        return 0;
    }

  private:
    std::string model_;
    std::string adapter_;
    std::string out_;
    std::string dtype_ = "base";
};

}  // namespace

std::unique_ptr<Command> make_merge_command() {
    return std::make_unique<MergeCommand>();
}

}  // namespace garam
