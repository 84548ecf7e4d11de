// A model that is ready to be asked: files, tokenizer, adapter, device, and the step memory that
// its calls need. What generate, chat and eval share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "garam/io/model_files.h"
#include "garam/models/decoder.h"
#include "garam/runtime/stream.h"
#include "garam/text/tokenizer.h"

namespace garam {

struct SessionOptions {
    std::filesystem::path model;           // Hugging Face folder or .gguf file
    std::filesystem::path adapter;         // PEFT folder or LoRA GGUF; empty: none
    std::string device = "auto";           // auto, cpu, cuda, cuda:N
    std::filesystem::path tuned_products;  // file of `garam tune`; empty: none
    std::string dtype = "auto";  // auto: bf16 where the processor is fast at it; f32, bf16
};

// Throws Error for a device that this build does not have, naming those that it has, and on a card for a
// table of products that is not for it.
std::unique_ptr<Device> open_device(const std::string& name,
                                    const std::filesystem::path& tuned_products = {});
// Throws Error for a name that is none of auto, f32, bf16.
DType choose_compute_dtype(const std::string& name, const DeviceProfile& profile);

// A sentence for the user when an adapter names another base than `files`; empty when the names agree or
// the adapter names none. Names of one model are spelt in many ways (repository, path, file): only
// letters and digits of their last part count.
std::string warning_of_another_base(const std::string& adapter, const std::string& base_name,
                                    const ModelFiles& files);

// Prompts are fed in chunks of so many tokens: enough to fill the matrix product, and a bound on
// the step memory whatever the prompt's length.
constexpr std::int64_t kPrefillChunk = 256;

class Session {
  public:
    // Throws Error when files are missing or damaged, when tokenizer and model do not belong
    // together (both are named), and when the adapter belongs to another base.
    explicit Session(const SessionOptions& options);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    Decoder& decoder() { return *decoder_; }
    const Tokenizer& tokenizer() const { return *tokenizer_; }
    const ModelFiles& files() const { return files_; }
    // The stream of the moment: reserve() makes a new one.
    Stream& stream() { return *stream_; }
    Meter& meter() { return meter_; }
    const Device& device() const { return *device_; }

    // Ids that end an answer: of config.json, generation_config.json and the tokenizer; sorted.
    const std::vector<std::int32_t>& eos_ids() const { return eos_ids_; }
    // Tokens that prompt and answer may have together.
    std::int64_t context() const { return decoder_->config().max_positions; }
    // Things that a user should hear of, in whole sentences; empty when all is well.
    const std::vector<std::string>& warnings() const { return warnings_; }

    // Makes the step memory large enough for what `calls` does, found by running it on a dry twin
    // of the model. decode() of up to kPrefillChunk tokens is always covered. No tensor of the
    // arena may be in use.
    void reserve(const std::function<void(Decoder& decoder, Stream& stream)>& calls);

  private:
    void check_vocabulary() const;
    bool serves_codes() const;
    void gather_eos_ids();

    SessionOptions options_;
    ModelFiles files_;
    std::unique_ptr<Tokenizer> tokenizer_;
    std::unique_ptr<Device> device_;
    std::unique_ptr<Device> dry_device_;
    std::unique_ptr<Decoder> decoder_;
    std::unique_ptr<Decoder> dry_decoder_;
    Meter meter_;
    std::unique_ptr<Arena> arena_;
    std::unique_ptr<Stream> stream_;
    std::vector<std::int32_t> eos_ids_;
    std::vector<std::string> warnings_;
};

}  // namespace garam
