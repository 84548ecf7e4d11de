#include "garam/models/four_bit_base.h"

#include <algorithm>
#include <vector>

#include "garam/core/error.h"
#include "garam/core/error_source.h"
#include "garam/quant/four_bit.h"

namespace garam {
namespace {

constexpr std::string_view kWeight = ".weight";

template <typename T>
void quantise(const StoredTensor& tensor, const QuantizedMatrix& matrix) {
    std::vector<T> values(static_cast<std::size_t>(tensor.shape.elements()));
    read_tensor(tensor, values.data());
    quantize_four_bit(values.data(), matrix, tensor.name);
}

BaseQuantization quantization_of(const QuantizedMatrix& matrix) {
    BaseQuantization own;
    own.format = matrix.format;
    own.block = matrix.block;
    own.double_quantization = matrix.is_double();
    return own;
}

}  // namespace

StoredTensor quantised(const StoredTensor& tensor, const BaseQuantization& options) {
    auto own = std::make_shared<StoredFourBit>();
    own->weight = FourBitWeight(options.format, tensor.shape[0], tensor.shape[1], options.block,
                                options.double_quantization);
    own->matrix = own->weight.matrix();
    own->dtype = tensor.type == StoredType::f32   ? DType::f32
                 : tensor.type == StoredType::f16 ? DType::f16
                                                  : DType::bf16;
    if (tensor.type == StoredType::bf16) {
        quantise<bfloat16>(tensor, own->matrix);
    } else {
        quantise<float>(tensor, own->matrix);
    }
    StoredTensor result;
    result.name = tensor.name;
    result.shape = tensor.shape;
    result.type = options.format == QuantFormat::nf4 ? StoredType::nf4 : StoredType::fp4;
    result.data = static_cast<const std::byte*>(own->matrix.codes.raw());
    result.bytes = static_cast<std::size_t>(own->matrix.codes.bytes());
    result.four_bit = std::move(own);
    return result;
}

std::string four_bit_module(const DecoderFamily& family, const StoredTensor& tensor) {
    if (tensor.shape.rank() != 2 || !tensor.name.ends_with(kWeight) ||
        !tensor.name.starts_with(std::string(family.tensors.layers) + "."))
        return "";
    return tensor.name.substr(0, tensor.name.size() - kWeight.size());
}

bool is_in_four_bits(const ModelFiles& files) {
    return std::any_of(files.tensors().begin(), files.tensors().end(),
                       [](const StoredTensor& tensor) { return tensor.four_bit != nullptr; });
}

void check_skipped_modules(const ModelFiles& files, const BaseQuantization& options) {
    const std::string source = files.path().string();
    const DecoderFamily& family = family_of(files.config(), source);
    for (const std::string& name : options.skip_modules) {
        BaseQuantization one;
        one.skip_modules = {name};
        const bool known = std::any_of(
            files.tensors().begin(), files.tensors().end(), [&](const StoredTensor& tensor) {
                return is_skipped(one, tensor.name.substr(0, tensor.name.rfind('.')));
            });
        if (!known && name != family.tensors.head)
            throw Error("skipped module " + name + " is none of " + source);
    }
    if (std::none_of(files.tensors().begin(), files.tensors().end(),
                     [&](const StoredTensor& tensor) {
                         const std::string module = four_bit_module(family, tensor);
                         return !module.empty() && !is_skipped(options, module);
                     }))
        throw Error(source + ": nothing is left to quantise");
}

std::optional<BaseQuantization> stored_quantization(const ModelFiles& files) {
    const DecoderFamily& family = family_of(files.config(), files.path().string());
    std::optional<BaseQuantization> stored;
    std::vector<std::string> others;
    for (const StoredTensor& tensor : files.tensors()) {
        const std::string module = four_bit_module(family, tensor);
        if (module.empty()) continue;
        if (tensor.four_bit == nullptr) {
            others.push_back(module);
        } else if (!stored) {
            stored = quantization_of(tensor.four_bit->matrix);
        }
    }
    if (!stored || !in_other_four_bits(files, *stored).empty()) return std::nullopt;
    stored->skip_modules = std::move(others);
    return stored;
}

std::string in_other_four_bits(const ModelFiles& files, const BaseQuantization& options) {
    for (const StoredTensor& tensor : files.tensors()) {
        if (tensor.four_bit == nullptr) continue;
        const QuantizedMatrix& matrix = tensor.four_bit->matrix;
        if (matrix.format == options.format && matrix.block == options.block &&
            matrix.is_double() == options.double_quantization)
            continue;
        return tensor.name + " in " + in_words(quantization_of(matrix));
    }
    return "";
}

void quantise_linears(ModelFiles& files, const BaseQuantization& options) {
    const DecoderFamily& family = family_of(files.config(), files.path().string());
    // Replacing changes the list's members, not its order.
    for (std::size_t i = 0; i < files.tensors().size(); ++i) {
        const StoredTensor tensor = files.tensors()[i];
        const std::string module = four_bit_module(family, tensor);
        if (module.empty() || tensor.four_bit != nullptr || is_skipped(options, module)) continue;
        naming_source(files.path().string(),
                      [&] { files.replace(quantised(tensor, options), {}); });
    }
}

}  // namespace garam
