// A model that is ready to be asked: files, tokenizer, adapter, device, and the step memory that
// its calls need. What generate, chat and eval share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "garam/io/model_files.h"
#include "garam/models/decoder.h"
#include "garam/quant/base_quantization.h"
#include "garam/runtime/stream.h"
#include "garam/serve/served_model.h"
#include "garam/text/tokenizer.h"

namespace garam {

struct SessionOptions {
    std::filesystem::path model;           // Hugging Face folder or .gguf file
    std::filesystem::path adapter;         // PEFT folder or LoRA GGUF; empty: none
    std::string device = "auto";           // auto, cpu, cuda, cuda:N
    std::filesystem::path tuned_products;  // file of `garam tune`; empty: none
    std::string dtype = "auto";  // auto: bf16 where the processor is fast at it; f32, bf16
    // The linears of a base that is not in 4 bits already, where the adapter tells of no others.
    std::optional<BaseQuantization> quantize;
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

class Session : public ServedModel {
  public:
    // Throws Error when files are missing or damaged, when tokenizer and model do not belong
    // together (both are named), and when the adapter belongs to another base.
    explicit Session(const SessionOptions& options);
    ~Session() override;
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    Decoder& decoder() override { return *decoder_; }
    const Tokenizer& tokenizer() const override { return *tokenizer_; }
    const ModelFiles& files() const { return files_; }
    Stream& stream() override { return *stream_; }
    Meter& meter() { return meter_; }
    const Device& device() const { return *device_; }

    // answer_end_ids() of this model.
    const std::vector<std::int32_t>& eos_ids() const { return eos_ids_; }
    std::int64_t context() const override { return decoder_->config().max_positions; }
    KvCache make_cache(std::int64_t capacity) override { return decoder_->make_cache(capacity); }
    // Things that a user should hear of, in whole sentences; empty when all is well.
    const std::vector<std::string>& warnings() const { return warnings_; }

    // What `calls` needs is found by running it on a dry twin of the model.
    void reserve(const std::function<void(Decoder& decoder, Stream& stream)>& calls) override;

  private:
    void check_vocabulary() const;
    bool serves_codes(const Decoder::Options& options) const;

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
