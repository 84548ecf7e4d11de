#include "garam/models/vocabulary_size.h"

#include <algorithm>
#include <cstring>

#include "garam/core/error.h"
#include "garam/io/peft_keys.h"
#include "garam/models/adapter_targets.h"
#include "garam/models/decoder_config.h"

namespace garam {
namespace {

constexpr std::int64_t kRowsAtOnce = 1024;

// The type in which a table's rows are written: its own, where rows have no scales.
StoredType plain_type(StoredType type) {
    return type == StoredType::f16 || type == StoredType::bf16 ? type : StoredType::f32;
}

template <typename T>
void encode_as(const float* values, std::size_t count, std::byte* out) {
    for (std::size_t i = 0; i < count; ++i) {
        const T value(values[i]);
        std::memcpy(out + i * sizeof(T), &value, sizeof(T));
    }
}

void encode(const float* values, std::size_t count, StoredType type, std::byte* out) {
    if (type == StoredType::f16) return encode_as<float16>(values, count, out);
    if (type == StoredType::bf16) return encode_as<bfloat16>(values, count, out);
    encode_as<float>(values, count, out);
}

// The matrices that a vocabulary's rows are of.
struct Ends {
    std::string embedding, head;
    bool tied;

    explicit Ends(const ModelFiles& files) {
        const DecoderConfig config =
            DecoderConfig::from_json(files.config(), files.path().string());
        embedding = std::string(config.family->tensors.embedding) + ".weight";
        head = std::string(config.family->tensors.head) + ".weight";
        tied = config.ties_head(files);
    }
};

void resize_rows(ModelFiles& files, const std::string& name, std::int64_t rows) {
    const StoredTensor& stored = files.at(name);
    const std::int64_t columns = stored.shape[1];
    const std::int64_t old = stored.shape[0];
    const auto width = static_cast<std::size_t>(columns);
    StoredTensor resized = stored;
    resized.shape = {rows, columns};
    resized.type = plain_type(stored.type);
    resized.four_bit = nullptr;
    const std::size_t row_bytes = width * block_bytes(resized.type);
    std::vector<std::byte> bytes(static_cast<std::size_t>(rows) * row_bytes);
    std::vector<double> sum(width);
    std::vector<float> values(static_cast<std::size_t>(kRowsAtOnce) * width);
    for (std::int64_t first = 0; first < old; first += kRowsAtOnce) {
        const std::int64_t count = std::min(kRowsAtOnce, old - first);
        read_tensor(rows_of(stored, first, count), values.data());
        for (std::int64_t row = 0; row < count; ++row)
            for (std::size_t i = 0; i < width; ++i)
                sum[i] += values[static_cast<std::size_t>(row) * width + i];
        const std::int64_t kept = std::min(count, rows - first);
        if (kept > 0)
            encode(values.data(), static_cast<std::size_t>(kept) * width, resized.type,
                   bytes.data() + static_cast<std::size_t>(first) * row_bytes);
    }
    for (std::size_t i = 0; i < width; ++i)
        values[i] = static_cast<float>(sum[i] / static_cast<double>(old));
    for (std::int64_t row = old; row < rows; ++row)
        encode(values.data(), width, resized.type,
               bytes.data() + static_cast<std::size_t>(row) * row_bytes);
    files.replace(resized, std::move(bytes));
}

void put(ModelFiles& files, const std::string& name, const AdapterTensor& tensor) {
    StoredTensor stored = files.at(name);
    stored.shape = tensor.shape;
    stored.type = plain_type(stored.type);
    stored.four_bit = nullptr;
    std::vector<std::byte> bytes(tensor.values.size() * block_bytes(stored.type));
    encode(tensor.values.data(), tensor.values.size(), stored.type, bytes.data());
    files.replace(stored, std::move(bytes));
}

// The weight that a key of an adapter is of, by the family's own name.
std::string weight_of(const DecoderFamily& family, std::string key) {
    for (const std::string_view part : {".base_layer", ".token_adapter"})
        if (const std::size_t at = key.find(part); at != key.npos) key.erase(at, part.size());
    key = own_adapter_key(family, key);
    return key.starts_with(kPeftPrefix) ? key.substr(kPeftPrefix.size()) : key;
}

}  // namespace

std::int64_t vocabulary_size(const ModelFiles& files) {
    return DecoderConfig::from_json(files.config(), files.path().string()).vocab_size;
}

void resize_token_embeddings(ModelFiles& files, std::int64_t rows) {
    const Ends ends(files);
    for (const std::string& name : {ends.embedding, ends.head}) {
        if (name == ends.head && ends.tied) continue;
        const Shape& shape = files.at(name).shape;
        if (shape.rank() != 2 || shape[0] < 1 || shape[1] < 1)
            throw Error(files.path().string() + ": tensor " + name + " has shape " +
                        shape.to_string() + ", which is no table of tokens");
        if (shape[0] != rows) resize_rows(files, name, rows);
    }
    files.set_config("vocab_size", rows);
}

bool is_instead_of_base(const AdapterTensor& tensor, std::int64_t vocab_size) {
    return tensor.name.find(".base_layer.") == std::string::npos || tensor.shape.rank() != 2 ||
           tensor.shape[0] != vocab_size;
}

void fit_vocabulary(ModelFiles& files, const PeftAdapter& adapter, const std::string& source,
                    std::int64_t tokenizer_size) {
    const DecoderConfig config = DecoderConfig::from_json(files.config(), files.path().string());
    const Ends ends(files);
    const AdapterTensor* whole[] = {nullptr, nullptr};  // embedding, head
    std::int64_t rows = 0;
    const auto take = [&](const AdapterTensor& tensor, bool instead_of_base) {
        const std::string name = weight_of(*config.family, tensor.name);
        if (name != ends.embedding && name != ends.head) {
            if (!instead_of_base) return;
            throw Error(source + ": " + tensor.name + " has no place in " + files.path().string() +
                        ": the adapter belongs to another base");
        }
        if (tensor.shape.rank() != 2 || tensor.shape[1] != config.hidden_size ||
            (rows > 0 && tensor.shape[0] != rows))
            throw Error(
                source + ": " + tensor.name + " has shape " + tensor.shape.to_string() +
                ", which does not fit " + files.path().string() + " (hidden_size " +
                std::to_string(config.hidden_size) + ")" +
                (rows > 0 ? " or the other matrix of " + std::to_string(rows) + " tokens" : "") +
                ": the adapter belongs to another base");
        rows = tensor.shape[0];
        if (instead_of_base) whole[name == ends.embedding ? 0 : 1] = &tensor;
    };
    for (const AdapterTensor& tensor : adapter.embeddings)
        if (is_instead_of_base(tensor, config.vocab_size)) take(tensor, true);
    for (const AdapterTensor& tensor : adapter.tensors)
        if (tensor.name.find(".lora_") == std::string::npos && tensor.name.ends_with(".weight"))
            take(tensor, false);
    if (rows == 0) {
        rows = config.vocab_size;
        for (const std::int64_t index : adapter.settings.trainable_token_indices)
            if (index < tokenizer_size) rows = std::max(rows, index + 1);
    }
    if (rows != config.vocab_size) resize_token_embeddings(files, rows);
    if (ends.tied && whole[0] != nullptr && whole[1] != nullptr &&
        whole[0]->values != whole[1]->values)
        throw Error(source + ": " + whole[0]->name + " and " + whole[1]->name +
                    " differ, but are one matrix in " + files.path().string());
    if (ends.tied && whole[0] == nullptr) std::swap(whole[0], whole[1]);
    if (whole[0] != nullptr) put(files, ends.embedding, *whole[0]);
    if (whole[1] != nullptr && !ends.tied) put(files, ends.head, *whole[1]);
}

}  // namespace garam
