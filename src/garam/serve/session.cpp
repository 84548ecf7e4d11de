#include "garam/serve/session.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "garam/core/error.h"
#include "garam/io/gguf_adapter.h"
#include "garam/models/four_bit_base.h"
#include "garam/ops/product_tuning.h"
#include "garam/serve/adapter_vocabulary.h"

namespace garam {
namespace {

// The last part of a path or repository name, letters and digits only, lower case: names of one
// model are spelt in many ways ("HuggingFaceTB/SmolLM2-135M", "./smollm2_135m/").
std::string bare_name(std::string text) {
    while (text.ends_with('/'))
        text.pop_back();
    text = text.substr(text.rfind('/') + 1);
    if (text.ends_with(".gguf")) text.resize(text.size() - 5);
    std::string bare;
    for (const char c : text) {
        if (std::isalnum(static_cast<unsigned char>(c)) != 0)
            bare += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return bare;
}

}  // namespace

std::unique_ptr<Device> open_device(const std::string& name,
                                    const std::filesystem::path& tuned_products) {
    DeviceProfile profile = profile_of_device(name);
    if (!tuned_products.empty() && profile.is_cuda())
        profile.products = load_products(tuned_products, profile);
    return make_device(profile);
}

DType choose_compute_dtype(const std::string& name, const DeviceProfile& profile) {
    if (name == "auto") return profile.fast_bf16 ? DType::bf16 : DType::f32;
    if (name == "f32") return DType::f32;
    if (name == "bf16") return DType::bf16;
    throw Error("dtype \"" + name + "\" is not supported (supported: auto, f32, bf16)");
}

std::string warning_of_another_base(const std::string& adapter, const std::string& base_name,
                                    const ModelFiles& files) {
    if (base_name.empty()) return {};
    std::error_code error;
    for (const std::string& name :
         {files.name(), files.path().string(),
          std::filesystem::weakly_canonical(files.path(), error).string()}) {
        // A GGUF's file name goes on with how it is quantised.
        if (files.is_gguf() ? bare_name(name).starts_with(bare_name(base_name))
                            : bare_name(name) == bare_name(base_name))
            return {};
    }
    const std::string model =
        files.name().empty() ? files.path().string() : "\"" + files.name() + "\"";
    return adapter + " was made for the base \"" + base_name + "\", this model is " + model +
           ": names and shapes agree, whether the weights do is not known";
}

Session::Session(const SessionOptions& options)
    : options_(options),
      files_(ModelFiles::open(options.model)),
      tokenizer_(load_tokenizer(options.model)),
      device_(open_device(options.device, options.tuned_products)),
      dry_device_(make_dry_device(device_->profile())) {
    if (!options_.tuned_products.empty() && !device_->profile().is_cuda())
        warnings_.push_back("tuned products are for cards: " + options_.tuned_products.string() +
                            " does not count on the processor");
    std::optional<PeftAdapter> adapter;
    if (!options_.adapter.empty()) {
        adapter = read_adapter(options_.adapter, files_);
        take_vocabulary(files_, tokenizer_, *adapter, options_.adapter.string());
    }

    Decoder::Options decoder_options;
    if (options_.quantize && !is_in_four_bits(files_)) {
        check_skipped_modules(files_, *options_.quantize);
        decoder_options.quantize = options_.quantize;
    }
    decoder_options.compute = choose_compute_dtype(options_.dtype, device_->profile());
    if (adapter) {
        decoder_options.lora = adapter->settings;
        // The weights that training saw.
        if (adapter->base_quantization) decoder_options.quantize = adapter->base_quantization;
        if (const std::string other = adapter->base_quantization
                                          ? in_other_four_bits(files_, *decoder_options.quantize)
                                          : "";
            !other.empty())
            warnings_.push_back(options_.adapter.string() + " was trained over " +
                                in_words(*decoder_options.quantize) + ", " +
                                options_.model.string() + " has " + other);
    }
    dry_decoder_ = std::make_unique<Decoder>(*dry_device_, files_, decoder_options);
    if (dry_decoder_->streamable_projections() > 0 && serves_codes(decoder_options)) {
        decoder_options.resident_projections = 0;
        dry_decoder_ = std::make_unique<Decoder>(*dry_device_, files_, decoder_options);
    }
    check_vocabulary();
    // Where there is room enough beside them; else the system reads them again from the file when it must.
    decoder_options.own_weights =
        dry_decoder_->mapped_bytes() <= device_->profile().memory_bytes / 2;
    decoder_ = std::make_unique<Decoder>(*device_, files_, decoder_options);
    if (adapter) {
        decoder_->load_adapter(*adapter, options_.adapter.string());
        const std::string warning = warning_of_another_base(
            options_.adapter.string(), adapter->settings.base_model_name_or_path, files_);
        if (!warning.empty()) warnings_.push_back(warning);
    }
    eos_ids_ = answer_end_ids(files_, decoder_->config(), *tokenizer_);

    const std::int64_t chunk = std::min(kPrefillChunk, context());
    reserve([&](Decoder& decoder, Stream& stream) {
        KvCache cache = decoder.make_cache(context());
        std::vector<float> logits;
        for (const std::int64_t tokens : {chunk, std::int64_t{1}}) {
            cache.length = context() - tokens;
            decoder.decode(stream, cache,
                           std::vector<std::int32_t>(static_cast<std::size_t>(tokens)), logits);
        }
    });
}

Session::~Session() = default;

// On a card: 4-bit codes are read faster than what they decode to. Others where that would leave too little memory
// for caches.
bool Session::serves_codes(const Decoder::Options& options) const {
    const auto in_four_bits = [](const StoredTensor& tensor) { return tensor.four_bit != nullptr; };
    const DeviceProfile& card = dry_device_->profile();
    const std::int64_t free = card.free_bytes > 0 ? card.free_bytes : card.memory_bytes;
    return options.quantize ||
           std::any_of(files_.tensors().begin(), files_.tensors().end(), in_four_bits) ||
           dry_device_->memory().current > free / 2;
}

void Session::check_vocabulary() const {
    const std::int64_t model = dry_decoder_->config().vocab_size;
    if (tokenizer_->vocab_size() <= model) return;
    throw Error(options_.model.string() + ": the tokenizer has " +
                std::to_string(tokenizer_->vocab_size()) + " tokens, the model " +
                std::to_string(model) + " embeddings: they do not belong together");
}

void Session::reserve(const std::function<void(Decoder& decoder, Stream& stream)>& calls) {
    Arena dry_arena(*dry_device_, dry_address_space());
    Meter dry_meter;
    Stream dry_stream(*dry_device_, dry_arena, dry_meter);
    calls(*dry_decoder_, dry_stream);
    if (arena_ != nullptr && dry_arena.peak() <= arena_->capacity()) return;
    GARAM_CHECK(arena_ == nullptr || arena_->used() == 0, "step memory replaced while in use");
    stream_.reset();
    arena_.reset();
    arena_ = std::make_unique<Arena>(*device_, dry_arena.peak());
    stream_ = std::make_unique<Stream>(*device_, *arena_, meter_);
}

}  // namespace garam
