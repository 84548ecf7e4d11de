#include "garam/app/merge_base.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "garam/core/error.h"
#include "garam/core/error_source.h"
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
    const bool stored = is_in_four_bits(files);
    std::optional<BaseQuantization> quantize;
    std::size_t telling = 0;
    for (const PeftAdapter& adapter : adapters) {
        const std::optional<BaseQuantization>& own = adapter.base_quantization;
        if (!own) continue;
        ++telling;
        if (quantize && to_json(*quantize).dump() != to_json(*own).dump())
            throw Error("the adapters were trained over different 4 bits (" + in_words(*quantize) +
                        "; " + in_words(*own) + "): merge them one at a time");
        quantize = own;
    }
    // Of one trained over a folder in 4 bits nothing is told.
    if (quantize && !stored && telling < adapters.size())
        throw Error("an adapter was trained over " + in_words(*quantize) +
                    ", another over the weights as they are: merge them one at a time");
    if (const std::string other = quantize ? in_other_four_bits(files, *quantize) : "";
        !other.empty())
        throw Error("the adapter was trained over " + in_words(*quantize) + ", " + model + " has " +
                    other + ": give the model that training began with");
    is_quantised_ = stored || quantize.has_value();
    if (stored) {
        statement_ = "merged into the values that training saw: " + stored_format(files) +
                     " decoded from " + model;
    } else if (quantize) {
        statement_ = "merged into the values that training saw: " + model + " quantised to " +
                     in_words(*quantize);
    }
    if (!original.empty()) take_original(original);
    // Also where the original's weights are merged into: what is compared with.
    if (quantize) quantise_linears(files_, *quantize);
    if (original_) check_values_of_original();
}

void MergeBase::take_original(const std::string& original) {
    const std::string model = files_.path().string();
    if (!is_quantised_)
        throw Error("--base is for adapters that were trained over 4 bits; " + model +
                    " is not in 4 bits, and no adapter says that it was quantised for training");
    original_ = ModelFiles::open(original);
    for (const StoredTensor& tensor : original_->tensors())
        if (block_elements(tensor.type) > 1)
            throw Error("--base " + original + " is quantised itself, " + tensor.name + " as " +
                        std::string(name_of(tensor.type)) +
                        ": give the weights that it was made from");
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

// Quantising moves no value by more than half of the widest gap of a table, fp4's third of the block's largest; only
// 8-bit scales may be a little off, in some blocks. Of other weights, most values are farther away.
void MergeBase::check_values_of_original() const {
    for (const StoredTensor& tensor : files_.tensors()) {
        if (tensor.four_bit == nullptr) continue;
        const auto elements = static_cast<std::size_t>(tensor.shape.elements());
        std::vector<float> seen(elements);
        std::vector<float> values(elements);
        naming_source("--base " + original_->path().string(), [&] {
            read_tensor(tensor, seen.data());
            read_tensor(original_->at(tensor.name), values.data());
        });
        const auto block = static_cast<std::size_t>(tensor.four_bit->matrix.block);
        std::size_t far = 0;
        for (std::size_t begin = 0; begin < elements; begin += block) {
            const std::size_t end = std::min(begin + block, elements);
            float largest = 0;
            for (std::size_t i = begin; i < end; ++i)
                largest = std::max(largest, std::abs(values[i]));
            for (std::size_t i = begin; i < end; ++i)
                far += std::abs(values[i] - seen[i]) > largest / 4 ? 1 : 0;
        }
        if (far > elements / 10)
            throw Error("--base " + original_->path().string() + ": values of " + tensor.name +
                        " are not those that were quantised (" + std::to_string(far) + " of " +
                        std::to_string(elements) +
                        " are another): it is not the model that the 4 bits were made from");
    }
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
