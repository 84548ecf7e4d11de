#include <cstdio>
#include <filesystem>

#include "garam/app/command.h"
#include "garam/app/progress_line.h"
#include "garam/app/standard_output.h"
#include "garam/core/error.h"
#include "garam/io/atomic_write.h"
#include "garam/io/interruptible_writing.h"
#include "garam/models/quantize_model.h"
#include "garam/quant/four_bit.h"
#include "garam/text/tokenizer.h"

namespace garam {
namespace {

std::string mebibytes(std::int64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
    return text;
}

class QuantizeCommand : public Command {
  public:
    std::string name() const override { return "quantize"; }
    std::string summary() const override {
        return "Write a model with its linears in bitsandbytes' 4 bits";
    }
    std::string details() const override {
        return R"(The result is a Hugging Face folder that Transformers loads with bitsandbytes, and garam without
it. Embeddings, norms, the head and what is skipped are not quantised: they are written in the type
that the linears had (bf16 for blocks of a GGUF file).

Examples:
  garam quantize MODEL model-nf4 --double
  garam quantize MODEL model-fp4 --type fp4 --block-size 128 --skip down_proj)";
    }

    void declare(Arguments& arguments) override {
        arguments.positional(
            "MODEL", model_,
            "Hugging Face model folder, GGUF file, or org/name in the local cache");
        arguments.positional("OUT", out_, "Folder to write, which must not exist");
        arguments.option("--type", &type_, "nf4, or fp4");
        arguments.option("--double", &options_.base.double_quantization,
                         "Quantise the scales of the blocks, too, to 8 bits");
        arguments.option("--block-size", &options_.base.block,
                         "Weights that share a scale: a power of two; Transformers' is 64",
                         between(32, 4096));
        arguments.option(
            "--skip", &options_.base.skip_modules,
            "A module of the layers that is not quantised: a name, its beginning up to a "
            "dot, or its end; may be given again");
    }

    int run() override {
        if (type_ != "nf4" && type_ != "fp4")
            throw Error("--type " + type_ + " is not supported (supported: nf4, fp4)");
        options_.base.format = type_ == "nf4" ? QuantFormat::nf4 : QuantFormat::fp4;
        if (!is_four_bit_block(options_.base.block))
            throw Error("--block-size " + std::to_string(options_.base.block) +
                        " is not supported: take a power of two from 32 to 4096");
        if (std::filesystem::exists(out_))
            throw Error(out_ + " exists already: name a folder that does not");
        const ModelFiles files = ModelFiles::open(model_);
        const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(model_);
        options_.ids.bos_id = tokenizer->bos_id();
        options_.ids.eos_id = tokenizer->eos_id();
        options_.ids.pad_id = tokenizer->pad_id();
        QuantizeModelReport report;
        {
            const InterruptibleWriting interruptible;
            ProgressLine line;
            options_.progress = [&](std::int64_t done, std::int64_t of) {
                line.show("quantising: " + std::to_string(done) + " of " + std::to_string(of) +
                          " matrices");
            };
            write_new_folder_atomically(out_, [&](const std::filesystem::path& folder) {
                report = write_four_bit_model(files, folder, options_);
                tokenizer->save(folder);
            });
        }
        print(out_ + ": " + std::to_string(report.quantised) + " of " +
              std::to_string(report.tensors) + " tensors in " + type_ + ", blocks of " +
              std::to_string(options_.base.block) +
              (options_.base.double_quantization ? ", scales in 8 bits" : "") + "; weights " +
              mebibytes(report.bytes_before) + " before, " + mebibytes(report.bytes_after) +
              " after\n");
        return 0;
    }

  private:
    std::string model_;
    std::string out_;
    std::string type_ = "nf4";
    QuantizeModelOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_quantize_command() {
    return std::make_unique<QuantizeCommand>();
}

}  // namespace garam
