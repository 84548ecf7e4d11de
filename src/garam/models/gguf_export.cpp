#include "garam/models/gguf_export.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "garam/core/dtype.h"
#include "garam/core/error.h"
#include "garam/core/parallel.h"
#include "garam/io/gguf_metadata.h"
#include "garam/models/decoder_tensors.h"
#include "garam/models/merge.h"
#include "garam/quant/gguf_quantize.h"

namespace garam {
namespace {

// Elements in fp32 at a time, at least one head of one matrix.
constexpr std::int64_t kPieceElements = std::int64_t{8} << 20;

// What ggml's model types are called in general.file_type.
std::uint32_t file_type_of(StoredType type) {
    switch (type) {
        case StoredType::f16:
            return 1;
        case StoredType::q4_0:
            return 2;
        case StoredType::q8_0:
            return 7;
        case StoredType::q4_k:
            return 14;  // "mostly Q4_K, small"
        case StoredType::bf16:
            return 32;
        default:
            return 0;
    }
}

StoredType default_type(const ModelFiles& base) {
    std::map<StoredType, std::int64_t> elements;
    for (const StoredTensor& tensor : base.tensors()) {
        if (tensor.shape.rank() == 2) elements[tensor.type] += tensor.shape.elements();
    }
    if (elements.empty()) return StoredType::f32;
    const StoredType most =
        std::max_element(elements.begin(), elements.end(), [](const auto& a, const auto& b) {
            return a.second < b.second;
        })->first;
    return is_gguf_export_type(most) ? most : StoredType::q8_0;
}

template <typename T>
bool round_row(const double* row, std::size_t count, double added, std::byte* out) {
    for (std::size_t i = 0; i < count; ++i) {
        const T value = rounded<T>(row[i] + added);
        if (!std::isfinite(static_cast<float>(value))) return false;
        std::memcpy(out + sizeof(T) * i, &value, sizeof(T));
    }
    return true;
}

// One row to the type's bytes; nothing is written where a value is beyond its range.
bool encode_row(StoredType type, const double* row, std::int64_t columns, double added,
                std::byte* out) {
    const auto count = static_cast<std::size_t>(columns);
    if (type == StoredType::f16) return round_row<float16>(row, count, added, out);
    if (type == StoredType::bf16) return round_row<bfloat16>(row, count, added, out);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = static_cast<float>(row[i] + added);
        if (!std::isfinite(values[i])) return false;
    }
    switch (type) {
        case StoredType::q8_0:
            return quantize_q8_0(values.data(), columns, out);
        case StoredType::q4_0:
            return quantize_q4_0(values.data(), columns, out);
        case StoredType::q4_k:
            return quantize_q4_k(values.data(), columns, out);
        default:
            std::memcpy(out, values.data(), count * sizeof(float));
            return true;
    }
}

class Exporter {
  public:
    Exporter(const ModelFiles& base, const PeftAdapter* adapter, const std::string& source,
             const GgufExportOptions& options)
        : base_(base),
          options_(options),
          weights_(base, weighted(adapter, source)),
          metadata_(gguf_metadata(base.config(), base.path().string())) {
        check_tensors(base);
        report_.type = options.type.value_or(default_type(base));
        GARAM_CHECK(is_gguf_export_type(report_.type), "a type that is not written");
        report_.notes = metadata_.notes;
        for (const StoredTensor& tensor : weights_.tensors())
            plan(tensor);
    }

    GgufExportReport write(const std::filesystem::path& path) {
        GgufWriter writer(path, keys(), entries());
        report_.bytes = writer.total_bytes();
        for (const auto& [name, values] : metadata_.tensors)
            writer.write(name, values.data(),
                         static_cast<std::int64_t>(values.size() * sizeof(float)));
        for (const Planned& planned : planned_) {
            report_.merged_tensors += weights_.changes(planned.tensor->name) ? 1 : 0;
            write_tensor(writer, planned);
        }
        writer.commit();
        report_.tensors = static_cast<std::int64_t>(planned_.size() + metadata_.tensors.size());
        return report_;
    }

  private:
    static std::vector<WeightedAdapter> weighted(const PeftAdapter* adapter,
                                                 const std::string& source) {
        if (adapter == nullptr) return {};
        return {{adapter, source}};
    }

    struct Planned {
        const StoredTensor* tensor = nullptr;
        GgufWriter::Entry entry;
        std::int64_t permuted_heads = 0;
        double added = -0.0;  // unlike +0 it leaves -0 as it is
    };

    void plan(const StoredTensor& tensor) {
        const auto name = parse_hugging_face_name(*metadata_.architecture, tensor.name);
        if (!name)
            throw Error(base_.path().string() + ": tensor " + tensor.name +
                        " has no name in GGUF for " +
                        std::string(metadata_.architecture->model_type) + " models");
        if (tensor.shape.rank() != 1 && tensor.shape.rank() != 2)
            throw Error(base_.path().string() + ": tensor " + tensor.name + " of shape " +
                        tensor.shape.to_string() + " is neither a matrix nor a vector");
        Planned planned;
        planned.tensor = &tensor;
        planned.entry = {gguf_name(*name), tensor.shape, type_of(tensor, *name)};
        planned.permuted_heads = permuted_heads(*metadata_.architecture, name->module,
                                                metadata_.num_heads, metadata_.num_kv_heads);
        if (planned.permuted_heads > 0 && tensor.shape[0] % (2 * planned.permuted_heads) != 0)
            throw Error(base_.path().string() + ": tensor " + tensor.name + " of shape " +
                        tensor.shape.to_string() + " does not divide into " +
                        std::to_string(planned.permuted_heads) + " heads");
        if (has_one_added(*metadata_.architecture, name->module)) planned.added = 1;
        planned_.push_back(std::move(planned));
    }

    StoredType type_of(const StoredTensor& tensor, const GgufTensorName& name) {
        if (tensor.shape.rank() < 2) return StoredType::f32;
        StoredType type = report_.type;
        const bool of_tokens = name.module == "token_embd" || name.module == "output";
        if (of_tokens && (type == StoredType::q4_0 || type == StoredType::q4_k))
            type = StoredType::q8_0;
        const StoredType wanted = type;
        const std::int64_t columns = tensor.shape.back();
        if (columns % block_elements(type) != 0) type = StoredType::q8_0;
        if (columns % block_elements(type) != 0) type = StoredType::f16;
        report_.fallbacks += type != wanted ? 1 : 0;
        return type;
    }

    GgufKeys keys() const {
        GgufKeys keys = metadata_.keys;
        keys.emplace_back("general.type", std::string("model"));
        if (!options_.name.empty()) keys.emplace_back("general.name", options_.name);
        keys.emplace_back("general.file_type", file_type_of(report_.type));
        keys.emplace_back("general.quantization_version", std::uint32_t{2});
        keys.insert(keys.end(), options_.tokenizer_keys.begin(), options_.tokenizer_keys.end());
        return keys;
    }

    std::vector<GgufWriter::Entry> entries() {
        std::vector<GgufWriter::Entry> entries;
        for (const auto& [name, values] : metadata_.tensors)
            entries.push_back(
                {name, Shape{static_cast<std::int64_t>(values.size())}, StoredType::f32});
        for (const Planned& planned : planned_) {
            entries.push_back(planned.entry);
            total_ += planned.entry.bytes();
        }
        return entries;
    }

    void write_tensor(GgufWriter& writer, const Planned& planned) {
        const StoredTensor& tensor = *planned.tensor;
        const std::int64_t rows = tensor.shape.rows();
        const std::int64_t columns = tensor.shape.back();
        const std::int64_t head =
            planned.permuted_heads > 0 ? tensor.shape[0] / planned.permuted_heads : 0;
        if (tensor.shape.rank() == 1) return write_vector(writer, planned, head);
        std::int64_t step =
            std::max<std::int64_t>(1, kPieceElements / std::max<std::int64_t>(1, columns));
        if (head > 0) step = std::max(head, step / head * head);
        const std::int64_t row_bytes = rows == 0 ? 0 : planned.entry.bytes() / rows;
        std::vector<std::byte> out;
        for (std::int64_t first = 0; first < rows; first += step) {
            const std::int64_t count = std::min(step, rows - first);
            out.resize(static_cast<std::size_t>(count * row_bytes));
            weights_.for_each_row(
                tensor, first, count, [&](std::int64_t row, const double* values) {
                    std::byte* const place =
                        out.data() + (permuted_row(row, head) - first) * row_bytes;
                    if (!encode_row(planned.entry.type, values, columns, planned.added, place))
                        throw Error(tensor.name + ": a value in row " + std::to_string(row) +
                                    " is beyond the range of " +
                                    std::string(name_of(planned.entry.type)) +
                                    ": write bf16 or f32 instead");
                });
            writer.write(planned.entry.name, out.data(), count * row_bytes);
            done_ += count * row_bytes;
            if (options_.progress) options_.progress(done_, total_);
        }
    }

    void write_vector(GgufWriter& writer, const Planned& planned, std::int64_t head) {
        const std::int64_t columns = planned.tensor->shape.back();
        std::vector<float> out(static_cast<std::size_t>(columns));
        weights_.for_each_row(*planned.tensor, [&](std::int64_t, const double* values) {
            for (std::int64_t i = 0; i < columns; ++i)
                out[static_cast<std::size_t>(permuted_row(i, head))] =
                    static_cast<float>(values[i] + planned.added);
        });
        writer.write(planned.entry.name, out.data(), planned.entry.bytes());
        done_ += planned.entry.bytes();
    }

    const ModelFiles& base_;
    const GgufExportOptions& options_;
    MergedWeights weights_;
    GgufMetadata metadata_;
    GgufExportReport report_;
    std::vector<Planned> planned_;
    std::int64_t done_ = 0;
    std::int64_t total_ = 0;
};

}  // namespace

bool is_gguf_export_type(StoredType type) {
    return type == StoredType::f32 || type == StoredType::f16 || type == StoredType::bf16 ||
           type == StoredType::q8_0 || type == StoredType::q4_0 || type == StoredType::q4_k;
}

std::int64_t embedding_rows(const ModelFiles& base) {
    for (const StoredTensor& tensor : base.tensors()) {
        for (const GgufArchitecture& family : gguf_architectures()) {
            const auto name = parse_hugging_face_name(family, tensor.name);
            if (name && name->module == "token_embd" && tensor.shape.rank() == 2)
                return tensor.shape[0];
        }
    }
    throw Error(base.path().string() + ": has no tensor of token embeddings");
}

GgufExportReport write_gguf_model(const ModelFiles& base, const PeftAdapter* adapter,
                                  const std::string& adapter_source,
                                  const std::filesystem::path& path,
                                  const GgufExportOptions& options) {
    return Exporter(base, adapter, adapter_source, options).write(path);
}

}  // namespace garam
