// garam export MODEL OUT: a model, an adapter in it or the adapter alone, for llama.cpp and Ollama.
#include <algorithm>

#include "garam/app/command.h"
#include "garam/app/command_line.h"
#include "garam/app/merge_base.h"
#include "garam/app/progress_line.h"
#include "garam/app/standard_output.h"
#include "garam/core/error.h"
#include "garam/io/atomic_write.h"
#include "garam/io/gguf.h"
#include "garam/io/gguf_adapter.h"
#include "garam/io/hub_cache.h"
#include "garam/io/interruptible_writing.h"
#include "garam/io/peft_keys.h"
#include "garam/models/adapter_targets.h"
#include "garam/models/decoder_family.h"
#include "garam/models/gguf_export.h"
#include "garam/models/vocabulary_size.h"
#include "garam/serve/adapter_vocabulary.h"
#include "garam/serve/session.h"
#include "garam/text/gguf_tokenizer_keys.h"
#include "garam/text/ollama_template.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

std::optional<StoredType> type_from(const std::string& name) {
    if (name == "base") return std::nullopt;
    for (const StoredType type : {StoredType::f32, StoredType::f16, StoredType::bf16,
                                  StoredType::q8_0, StoredType::q4_0, StoredType::q4_k}) {
        if (name == name_of(type)) return type;
    }
    throw Error("--type " + name +
                " is not supported (supported: base, f32, f16, bf16, q8_0, q4_0, q4_k)");
}

class ExportCommand : public Command {
  public:
    std::string name() const override { return "export"; }
    std::string summary() const override {
        return "Write a GGUF file for llama.cpp and Ollama: the model, or an adapter alone";
    }
    std::string details() const override {
        return R"(With --adapter the weights are W + s B A in double precision, rounded once. The file has
the tokenizer and chat template and loads as it is. Vectors stay f32; with q4_0 and q4_k
the embedding and the head are q8_0, as are matrices whose rows are no whole blocks.

Examples:
  garam export MODEL model.gguf --adapter run/adapter --type q4_k
  garam export MODEL adapter.gguf --adapter run/adapter --adapter-only)";
    }

    void declare(Arguments& arguments) override {
        arguments.positional(
            "MODEL", model_,
            "Hugging Face model folder, GGUF file, or org/name in the local cache");
        arguments.positional("OUT", out_, "File to write, ending in .gguf; must not exist");
        arguments.option("--adapter", &adapter_,
                         "PEFT LoRA folder or LoRA GGUF to fold into the model");
        arguments.option("--base", &base_,
                         "With --adapter and a base in 4 bits: the model whose 16-bit weights are "
                         "folded into instead of the values that training saw");
        arguments.option("--to", &to_, "Format: gguf");
        arguments.option("--type", &type_,
                         "f32, f16, bf16, q8_0, q4_0, q4_k, or base: the base's own; of an adapter "
                         "alone f32, f16 or bf16");
        arguments.option("--adapter-only", &adapter_only_,
                         "Write the adapter as a LoRA GGUF, for use beside its base");
        arguments.option("--ollama", &ollama_,
                         "Also write a Modelfile beside OUT, with chat template and stops");
    }

    int run() override {
        check_arguments();
        ModelFiles files = ModelFiles::open(model_);
        tokenizer_ = files.path();
        std::optional<PeftAdapter> adapter;
        if (!adapter_.empty()) {
            adapter = read_adapter(adapter_, files);
            const std::string warning =
                warning_of_another_base(adapter_, adapter->settings.base_model_name_or_path, files);
            if (!warning.empty()) warn(warning);
        }
        std::optional<MergeBase> base;
        if (adapter && !adapter_only_)
            base.emplace(files, std::vector<PeftAdapter>{*adapter}, base_);
        ModelFiles& target = base ? base->target() : files;
        if (adapter) fit_to(*adapter, target);
        if (adapter_only_) {
            use_own_names(*adapter, family_of(files.config(), files.path().string()));
            write_gguf_adapter(out_, *adapter, adapter_, files,
                               type_from(type_).value_or(StoredType::f32));
            print(out_ + ": " + std::to_string(adapter->tensors.size()) + " tensors of rank " +
                  ranks_of(*adapter) + "\n");
        } else {
            write_model(target, adapter ? &*adapter : nullptr);
            if (base && base->is_quantised()) print(base->statement() + "\n");
        }
        if (ollama_) write_modelfile(files);
        return 0;
    }

  private:
    void fit_to(const PeftAdapter& adapter, ModelFiles& files) {
        if (adapter_only_) return check_vocabulary(adapter, files);
        std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(files.path());
        if (take_vocabulary(files, tokenizer, adapter, adapter_))
            tokenizer_ = find_model_path(adapter_).path;
    }

    void check_vocabulary(const PeftAdapter& adapter, ModelFiles& files) const {
        const std::int64_t rows = vocabulary_size(files);
        fit_vocabulary(files, adapter, adapter_, 0);
        const std::vector<std::int64_t>& tokens = adapter.settings.trainable_token_indices;
        const bool has_more = std::any_of(tokens.begin(), tokens.end(),
                                          [&](std::int64_t token) { return token >= rows; });
        if (has_more || rows != vocabulary_size(files))
            throw Error(adapter_ +
                        " has tokens that the base has not, which a LoRA GGUF beside it cannot "
                        "add: export the whole model (without --adapter-only)");
    }

    // GGUF's table has a family's own names, and so must what the settings say of single modules.
    static void use_own_names(PeftAdapter& adapter, const DecoderFamily& family) {
        std::vector<std::string> linears, ends;
        for (AdapterTensor& tensor : adapter.tensors) {
            tensor.name = own_adapter_key(family, tensor.name);
            const std::string_view key = tensor.name;
            const std::size_t end = std::min(key.rfind(kPeftB), key.rfind(kPeftEmbeddingB));
            if (end == key.npos || !key.starts_with(kPeftPrefix)) continue;
            const std::string_view module =
                key.substr(kPeftPrefix.size(), end - kPeftPrefix.size());
            const bool is_end = module == family.tensors.embedding || module == family.tensors.head;
            (is_end ? ends : linears).emplace_back(module);
        }
        resolve_adapters(adapter.settings, family, linears, ends);
    }

    // "8", or "2 to 8" where modules differ.
    static std::string ranks_of(const PeftAdapter& adapter) {
        std::int64_t low = adapter.tensors.front().shape.back();
        std::int64_t high = 0;
        for (const AdapterTensor& tensor : adapter.tensors) {
            if (!tensor.name.ends_with(kPeftB)) continue;
            low = std::min(low, tensor.shape[1]);
            high = std::max(high, tensor.shape[1]);
        }
        return low == high ? std::to_string(low)
                           : std::to_string(low) + " to " + std::to_string(high);
    }

    fs::path modelfile() const { return fs::path(out_).parent_path() / "Modelfile"; }

    void check_arguments() const {
        if (to_ != "gguf") throw Error("--to " + to_ + " is not supported (supported: gguf)");
        const std::optional<StoredType> type = type_from(type_);
        if (fs::path(out_).extension() != ".gguf")
            throw Error(out_ + ": name a file that ends in .gguf");
        for (const fs::path& path : {fs::path(out_), ollama_ ? modelfile() : fs::path(out_)}) {
            if (fs::exists(path))
                throw Error(path.string() + " exists already: name a file that does not");
        }
        if (!base_.empty() && (adapter_.empty() || adapter_only_))
            throw Error("--base needs --adapter, and not --adapter-only");
        if (!adapter_only_) return;
        if (adapter_.empty()) throw Error("--adapter-only needs --adapter");
        if (type && block_elements(*type) != 1)
            throw Error("--type " + type_ +
                        " is not supported for an adapter alone (supported: f32, f16, bf16)");
    }

    // What the model is called by its own files, or else its folder: llama.cpp knows some by their name.
    std::string model_name(const ModelFiles& files) const {
        if (files.is_gguf()) {
            const Json* name = files.gguf()->find("general.name");
            if (name != nullptr && name->is_string()) return name->string();
        }
        const fs::path path = fs::absolute(files.name().empty() ? model_ : files.name());
        const fs::path last = (path / "").parent_path().filename();
        return files.is_gguf() ? last.stem().string() : last.string();
    }

    void write_model(const ModelFiles& files, const PeftAdapter* adapter) {
        GgufTokenizerKeys tokenizer = gguf_tokenizer_keys(tokenizer_, embedding_rows(files));
        const InterruptibleWriting interruptible;
        ProgressLine line;
        GgufExportOptions options;
        options.type = type_from(type_);
        options.name = model_name(files);
        options.tokenizer_keys = std::move(tokenizer.keys);
        options.progress = [&](std::int64_t done, std::int64_t total) {
            constexpr std::int64_t kMiB = 1 << 20;
            line.show(std::to_string(done / kMiB) + " of " + std::to_string(total / kMiB) + " MiB");
        };
        const GgufExportReport report = write_gguf_model(files, adapter, adapter_, out_, options);
        for (const std::string& note : tokenizer.notes)
            warn(note);
        for (const std::string& note : report.notes)
            warn(note);
        std::string summary = out_ + ": " + std::to_string(report.tensors) + " tensors, " +
                              std::string(name_of(report.type));
        if (adapter != nullptr) summary += ", " + std::to_string(report.merged_tensors) + " merged";
        if (report.fallbacks > 0)
            summary += ", " + std::to_string(report.fallbacks) +
                       " of a wider type since their rows are no whole blocks";
        print(summary + ", " + std::to_string(report.bytes) + " bytes\n");
    }

    void write_modelfile(const ModelFiles& files) const {
        const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(tokenizer_);
        const auto chat = ollama_template(*tokenizer);
        const std::string own = "./" + fs::path(out_).filename().string();
        const std::string text =
            adapter_only_ ? ollama_modelfile(fs::absolute(files.path()).lexically_normal().string(),
                                             own, chat)
                          : ollama_modelfile(own, "", chat);
        write_file_atomically(modelfile(), text);
        if (!chat && !tokenizer->chat_template().empty())
            warn(
                "the chat template is none that Ollama's words can tell: the Modelfile has no "
                "TEMPLATE");
        print(modelfile().string() + ": for ollama create NAME -f Modelfile\n");
    }

    std::string model_;
    std::string out_;
    std::string adapter_;
    std::string base_;
    std::string to_ = "gguf";
    std::string type_ = "base";
    fs::path tokenizer_;  // the model, or an adapter that has more tokens
    bool adapter_only_ = false;
    bool ollama_ = false;
};

}  // namespace

std::unique_ptr<Command> make_export_command() {
    return std::make_unique<ExportCommand>();
}

}  // namespace garam
