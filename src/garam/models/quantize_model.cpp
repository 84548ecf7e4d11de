#include "garam/models/quantize_model.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "garam/core/error.h"
#include "garam/core/error_source.h"
#include "garam/io/atomic_write.h"
#include "garam/io/four_bit_checkpoint.h"
#include "garam/models/decoder_family.h"
#include "garam/models/decoder_tensors.h"
#include "garam/models/four_bit_base.h"
#include "garam/models/model_folder.h"
#include "garam/quant/dynamic_map.h"
#include "garam/quant/four_bit.h"

namespace garam {
namespace {

// Room for the longest nested_offset: the header is written before the offset is known.
constexpr std::size_t kOffsetDigits = 32;

// The type of a tensor's values; bf16 where a GGUF has them in blocks.
DType plain_dtype(const StoredTensor& tensor) {
    return tensor.type == StoredType::f32   ? DType::f32
           : tensor.type == StoredType::f16 ? DType::f16
                                            : DType::bf16;
}

class ModelQuantizer {
  public:
    ModelQuantizer(const ModelFiles& files, const QuantizeModelOptions& options)
        : files_(files),
          options_(options),
          // Without adapters: what of the base is written.
          weights_(files, {}),
          family_(family_of(files.config(), files.path().string())),
          dtype_(linears_dtype()) {}

    QuantizeModelReport write(const std::filesystem::path& folder) {
        check_tensors(files_);
        check_skipped_modules(files_, options_.base);
        std::vector<WeightPiece> pieces;
        for (const StoredTensor& tensor : weights_.tensors()) {
            if (tensor.four_bit != nullptr)
                throw Error(files_.path().string() + ": " + tensor.name +
                            " is in 4 bits already: give the model that it was made from");
            report_.bytes_before += static_cast<std::int64_t>(tensor.bytes);
            ++report_.tensors;
            pieces.push_back(is_quantised(tensor) ? quantised(tensor) : plain(tensor));
            report_.bytes_after += pieces.back().bytes();
        }
        // The config first: what it refuses is refused before gigabytes are written.
        write_file_atomically(folder / "config.json", config().dump(2) + "\n");
        write_sharded_weights(folder, pieces, options_.shard_bytes);
        copy_generation_config(files_, folder);
        return report_;
    }

  private:
    bool is_quantised(const StoredTensor& tensor) const {
        const std::string module = four_bit_module(family_, tensor);
        return !module.empty() && !is_skipped(options_.base, module);
    }

    std::string head() const { return std::string(family_.tensors.head); }

    // What the linears are in. All that is not quantised is written so, too: Transformers computes in that type and
    // converts nothing of such a folder, so that a GGUF's norms in f32 would end before a head in bf16.
    DType linears_dtype() const {
        for (const StoredTensor& tensor : weights_.tensors())
            if (is_quantised(tensor)) return plain_dtype(tensor);
        return DType::bf16;
    }

    Json config() const {
        Json config = merged_config(files_, dtype_, weights_.is_tied(), options_.ids);
        BaseQuantization written = options_.base;
        // Transformers leaves the head as it is by itself only where no module is named.
        if (!written.skip_modules.empty() &&
            std::find(written.skip_modules.begin(), written.skip_modules.end(), head()) ==
                written.skip_modules.end())
            written.skip_modules.push_back(head());
        config.set("quantization_config",
                   quantization_config(written, dtype_ == DType::f32   ? "float32"
                                                : dtype_ == DType::f16 ? "float16"
                                                                       : "bfloat16"));
        return config;
    }

    template <typename T>
    std::vector<T> values_of(const StoredTensor& tensor) const {
        std::vector<T> values(static_cast<std::size_t>(tensor.shape.elements()));
        naming_source(files_.path().string(), [&] { read_tensor(tensor, values.data()); });
        return values;
    }

    template <typename T>
    void quantise(const StoredTensor& tensor, const QuantizedMatrix& matrix) const {
        const std::vector<T> values = values_of<T>(tensor);
        naming_source(files_.path().string(),
                      [&] { quantize_four_bit(values.data(), matrix, tensor.name); });
    }

    WeightPiece plain(const StoredTensor& tensor) const {
        return {{{tensor.name, dtype_, tensor.shape}}, [this, &tensor](SafetensorsWriter& writer) {
                    const auto put = [&](const auto& values) {
                        for (std::size_t i = 0; i < values.size(); ++i)
                            if (!std::isfinite(static_cast<float>(values[i])))
                                fail_range(tensor.name, static_cast<std::int64_t>(i), dtype_,
                                           "all that is not quantised is written in the linears' "
                                           "type, give a model in bf16 or f32");
                        writer.write(tensor.name, values.data(),
                                     static_cast<std::int64_t>(values.size() * sizeof(values[0])));
                    };
                    if (dtype_ == DType::bf16) return put(values_of<bfloat16>(tensor));
                    const std::vector<float> values = values_of<float>(tensor);
                    if (dtype_ == DType::f32) return put(values);
                    std::vector<float16> halves;
                    halves.reserve(values.size());
                    for (const float value : values)
                        halves.emplace_back(value);
                    put(halves);
                }};
    }

    std::string state_of(const StoredTensor& tensor, const QuantizedMatrix& matrix) const {
        return quant_state_json(matrix, tensor.shape, plain_dtype(tensor));
    }

    // f32 parts first and the state filled up with blanks to a multiple of 8 bytes, so that all lie
    // aligned.
    WeightPiece quantised(const StoredTensor& tensor) {
        ++report_.quantised;
        const BaseQuantization& base = options_.base;
        const FourBitBytes sizes =
            four_bit_bytes(tensor.shape.elements(), base.block, base.double_quantization);
        const bool is_double = base.double_quantization;
        float offset = 0;
        QuantizedMatrix sketch;
        sketch.format = base.format;
        sketch.block = base.block;
        if (is_double) {
            sketch.offset = Tensor(&offset, DType::f32, {1}, DeviceKind::cpu);
            sketch.nested_absmax = sketch.offset;
        }
        std::size_t state = state_of(tensor, sketch).size() + kOffsetDigits;
        const auto total = static_cast<std::size_t>(sizes.codes + sizes.absmax) + state;
        state += (8 - total % 8) % 8;

        WeightPiece piece;
        const auto add = [&](std::string_view part, DType dtype, const Shape& shape) {
            piece.entries.push_back({tensor.name + std::string(part), dtype, shape});
        };
        if (is_double) {
            add(kNestedAbsmaxPart, DType::f32, {sizes.nested_absmax / 4});
            add(kNestedQuantMapPart, DType::f32, {256});
        } else {
            add(kAbsmaxPart, DType::f32, {sizes.absmax / 4});
        }
        add(kQuantMapPart, DType::f32, {16});
        add("", DType::u8, {sizes.codes, 1});
        if (is_double) add(kAbsmaxPart, DType::u8, {sizes.absmax});
        const std::string state_part =
            std::string(kQuantStatePart) + std::string(name_of(base.format));
        add(state_part, DType::u8, {static_cast<std::int64_t>(state)});
        piece.write = [this, &tensor, state, state_part](SafetensorsWriter& writer) {
            write_quantised(writer, tensor, state, state_part);
        };
        return piece;
    }

    void write_quantised(SafetensorsWriter& writer, const StoredTensor& tensor,
                         std::size_t state_bytes, const std::string& state_part) {
        if (options_.progress) options_.progress(done_++, report_.quantised);
        const BaseQuantization& base = options_.base;
        const FourBitWeight weight(base.format, tensor.shape[0], tensor.shape[1], base.block,
                                   base.double_quantization);
        const QuantizedMatrix& matrix = weight.matrix();
        if (plain_dtype(tensor) == DType::bf16 && tensor.type == StoredType::bf16) {
            quantise<bfloat16>(tensor, matrix);
        } else {
            quantise<float>(tensor, matrix);
        }
        const auto put = [&](std::string_view part, const void* data, std::int64_t bytes) {
            writer.write(tensor.name + std::string(part), data, bytes);
        };
        const auto& table = four_bit_table(base.format);
        std::string state = state_of(tensor, matrix);
        GARAM_CHECK(state.size() <= state_bytes, "no room for the state of " + tensor.name);
        state.resize(state_bytes, ' ');
        if (matrix.is_double()) {
            const DynamicMap& map = signed_dynamic_map();
            put(kNestedAbsmaxPart, matrix.nested_absmax.raw(), matrix.nested_absmax.bytes());
            put(kNestedQuantMapPart, map.data(), sizeof map);
        } else {
            put(kAbsmaxPart, matrix.absmax.raw(), matrix.absmax.bytes());
        }
        put(kQuantMapPart, table.data(), sizeof table);
        put("", matrix.codes.raw(), matrix.codes.bytes());
        if (matrix.is_double()) put(kAbsmaxPart, matrix.absmax.raw(), matrix.absmax.bytes());
        put(state_part, state.data(), static_cast<std::int64_t>(state_bytes));
    }

    const ModelFiles& files_;
    const QuantizeModelOptions& options_;
    const MergedWeights weights_;
    const DecoderFamily& family_;
    const DType dtype_;
    QuantizeModelReport report_;
    std::int64_t done_ = 0;
};

}  // namespace

QuantizeModelReport write_four_bit_model(const ModelFiles& files,
                                         const std::filesystem::path& folder,
                                         const QuantizeModelOptions& options) {
    GARAM_CHECK(is_four_bit(options.base.format) && is_four_bit_block(options.base.block),
                "4 bits are nf4 or fp4 in blocks of 32 to 4096");
    return ModelQuantizer(files, options).write(folder);
}

}  // namespace garam
