#include "garam/app/merge_base.h"

#include <cmath>
#include <cstdio>

#include "garam/core/error.h"
#include "garam/io/four_bit_checkpoint.h"
#include "garam/models/four_bit_base.h"
#include "garam/quant/four_bit.h"
#include "garam/serve/model_comparison.h"

namespace garam {
namespace {

constexpr const char* kSampleText =
    "The harbour was quiet when the first boat came in. Two people stood on the pier and counted "
    "the "
    "crates: twelve of apples, seven of paper, and one that nobody had asked for. \"Open it,\" she "
    "said. "
    "He looked at the label, then at the grey water, and shook his head. In 1987 the same box had "
    "been "
    "sent back twice, because its number, 40215, was on no list.";
constexpr std::size_t kMostTokens = 128;

std::string told(const BaseQuantization& quantize) {
    return std::string(name_of(quantize.format)) + ", blocks of " + std::to_string(quantize.block) +
           (quantize.double_quantization ? ", scales in 8 bits" : "");
}

// The format of the weights that the files have in 4 bits.
std::string stored_format(const ModelFiles& files) {
    for (const StoredTensor& tensor : files.tensors())
        if (tensor.four_bit != nullptr) return std::string(name_of(tensor.four_bit->matrix.format));
    return "";
}

}  // namespace

MergeBase::MergeBase(ModelFiles& files, const std::vector<PeftAdapter>& adapters,
                     const std::string& original)
    : files_(files) {
    const std::string model = files.path().string();
    std::optional<BaseQuantization> quantize;
    for (const PeftAdapter& adapter : adapters) {
        const std::optional<BaseQuantization>& own = adapter.base_quantization;
        if (!own) continue;
        if (quantize && to_json(*quantize).dump() != to_json(*own).dump())
            throw Error("the adapters were trained over different 4 bits (" + told(*quantize) +
                        "; " + told(*own) + "): merge them one at a time");
        quantize = own;
    }
    const bool stored = is_in_four_bits(files);
    is_quantised_ = stored || quantize.has_value();
    if (stored) {
        statement_ = "merged into the values that training saw: " + stored_format(files) +
                     " decoded from " + model;
    } else if (quantize) {
        statement_ = "merged into the values that training saw: " + model + " quantised to " +
                     told(*quantize);
    }
    if (!original.empty()) take_original(original);
    // Also where the original's weights are merged into: what is compared with.
    if (quantize) quantise_linears(files_, *quantize);
}

void MergeBase::take_original(const std::string& original) {
    const std::string model = files_.path().string();
    if (!is_quantised_)
        throw Error("--base is for adapters that were trained over 4 bits; " + model +
                    " is not in 4 bits, and no adapter says that it was quantised for training");
    original_ = ModelFiles::open(original);
    if (is_in_four_bits(*original_))
        throw Error("--base " + original +
                    " is in 4 bits itself: give the weights that it was made from");
    for (const StoredTensor& tensor : files_.tensors()) {
        const StoredTensor* other = original_->find(tensor.name);
        if (other == nullptr || !(other->shape == tensor.shape))
            throw Error(
                "--base " + original + ": " + tensor.name + " " +
                (other == nullptr ? "is missing" : "has shape " + other->shape.to_string()) + ", " +
                model + " has " + tensor.shape.to_string() +
                ": it is not the model that the 4 bits were made from");
    }
    statement_ =
        "merged into the original weights of " + original +
        "; training saw their 4-bit values, so that the result differs from what was trained";
}

std::string compare_merged(const ModelFiles& seen, const PeftAdapter& adapter,
                           const std::string& source, const std::string& merged,
                           const Tokenizer& tokenizer) {
    try {
        std::vector<std::int32_t> ids = tokenizer.encode_ids(kSampleText, {});
        if (ids.size() > kMostTokens) ids.resize(kMostTokens);
        const ModelFiles after = ModelFiles::open(merged);
        const ModelComparison c =
            compare_models({&seen, &adapter, source}, {&after, nullptr, ""}, ids, "auto");
        char text[320];
        std::snprintf(
            text, sizeof text,
            "on %lld tokens of a sample text (%s): loss %.4f before, %.4f after merging; "
            "perplexity %.2f, %.2f; largest difference of a logit %.2g, where the largest is %.3g",
            static_cast<long long>(c.tokens), c.compute == DType::f32 ? "fp32" : "bf16",
            c.loss_before, c.loss_after, std::exp(c.loss_before), std::exp(c.loss_after),
            static_cast<double>(c.largest_logit_difference), static_cast<double>(c.largest_logit));
        return text;
    } catch (const Error& error) {
        return std::string("logits before and after were not compared: ") + error.what();
    }
}

}  // namespace garam
