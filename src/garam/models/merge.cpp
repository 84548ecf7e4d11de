#include "garam/models/merge.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "garam/core/error.h"
#include "garam/core/error_source.h"
#include "garam/core/parallel.h"
#include "garam/io/atomic_write.h"
#include "garam/io/peft_keys.h"
#include "garam/io/safetensors_writer.h"
#include "garam/models/decoder_config.h"
#include "garam/models/decoder_tensors.h"
#include "garam/models/model_folder.h"
#include "garam/models/rope_recovery.h"
#include "garam/models/sharded_weights.h"
#include "garam/models/token_rows.h"

namespace garam {
namespace {

// One adapter's change of one weight by its two factors, of the adapter's own memory.
struct Change {
    const AdapterTensor* A = nullptr;          // [r, in]; of the embedding [r, vocab]
    const AdapterTensor* B = nullptr;          // [out, r]; of the embedding [hidden, r]
    const AdapterTensor* magnitude = nullptr;  // [out], of DoRA
    const AdapterTensor* whole = nullptr;      // instead of both: a trained bias or saved module
    const AdapterTensor* tokens = nullptr;     // instead of both: rows of trained tokens
    std::map<std::int64_t, std::int64_t> token_rows;  // by token
    bool is_embedding = false;
    std::int64_t r = 0;
    double scaling = 1;
    double weight = 1;  // the adapter's
};
// By name of the base weight.
using Changes = std::map<std::string, std::vector<Change>>;

// Names of the two weights that a base may tie, in the family's own names.
struct EndNames {
    std::string embedding, head;
    explicit EndNames(const ModelFiles& base) {
        const TensorNames& names = family_of(base.config(), base.path().string()).tensors;
        embedding = std::string(names.embedding) + ".weight";
        head = std::string(names.head) + ".weight";
    }
};

// Its changes of a base, by name of the base weight.
class ChangeReader {
  public:
    ChangeReader(const ModelFiles& base, const PeftAdapter& adapter, const std::string& source)
        : base_(base),
          adapter_(adapter),
          source_(source),
          family_(family_of(base.config(), base.path().string())),
          ends_(base),
          targets_(adapter.settings) {}

    std::map<std::string, Change> read() {
        for (const AdapterTensor& tensor : adapter_.tensors)
            add(tensor);
        if (changes_.empty()) throw Error(source_ + ": the adapter holds no tensor");
        for (const auto& [name, change] : changes_)
            check(name, change);
        return std::move(changes_);
    }

  private:
    // A tied base has the head's weight under the embedding's name alone.
    const StoredTensor* find(const std::string& name) const {
        const StoredTensor* stored = base_.find(name);
        return stored == nullptr && name == ends_.head ? base_.find(ends_.embedding) : stored;
    }

    [[noreturn]] void fail_without_place(const AdapterTensor& tensor) const {
        throw Error(source_ + ": " + tensor.name + " of shape " + tensor.shape.to_string() +
                    " has no place in " + base_.path().string() +
                    ": the adapter belongs to another base");
    }

    void add(const AdapterTensor& tensor) {
        std::string path = own_adapter_key(family_, tensor.name);
        const std::size_t lora = path.rfind(".lora_");
        if (!path.starts_with(kPeftPrefix))
            throw Error(source_ + ": " + tensor.name + " is no tensor of an adapter (" +
                        std::string(kPeftPrefix) + "…)");
        path.erase(0, kPeftPrefix.size());
        if (const std::size_t token = path.rfind(".token_adapter."); token != std::string::npos)
            return add_tokens(tensor, path.substr(0, token) + ".weight");
        if (lora == std::string::npos) return add_whole(tensor, path);
        const std::string end = path.substr(lora - kPeftPrefix.size());
        path = path.substr(0, lora - kPeftPrefix.size()) + ".weight";
        const bool is_embedding = path == ends_.embedding;
        const bool is_a = end == (is_embedding ? kPeftEmbeddingA : kPeftA);
        const bool is_magnitude = adapter_.settings.use_dora && end == kPeftMagnitude;
        if (!is_a && !is_magnitude && end != (is_embedding ? kPeftEmbeddingB : kPeftB))
            throw Error(source_ + ": " + tensor.name + " is no LoRA tensor of its module");
        if (find(path) == nullptr) fail_without_place(tensor);
        // Patterns are of the names that the adapter's file has.
        const std::string stored = tensor.name.substr(
            kPeftPrefix.size(), tensor.name.rfind(".lora_") - kPeftPrefix.size());
        Change& change = changes_[path];
        (is_a ? change.A : is_magnitude ? change.magnitude : change.B) = &tensor;
        change.is_embedding = is_embedding;
        change.r = targets_.rank(stored);
        change.scaling = targets_.scaling(stored);
    }

    void add_whole(const AdapterTensor& tensor, std::string name) {
        const std::size_t inner = name.rfind(".base_layer.");
        if (inner != std::string::npos) name.erase(inner, std::string_view(".base_layer").size());
        const StoredTensor* stored = find(name);
        if (stored == nullptr || !(stored->shape == tensor.shape)) fail_without_place(tensor);
        changes_[name].whole = &tensor;
    }

    void add_tokens(const AdapterTensor& tensor, const std::string& name) {
        const std::vector<std::int64_t>& indices = adapter_.settings.trainable_token_indices;
        const StoredTensor* stored = find(name);
        if (stored == nullptr || name != ends_.embedding || stored->shape.rank() != 2 ||
            !(tensor.shape == Shape{static_cast<std::int64_t>(indices.size()), stored->shape[1]}))
            fail_without_place(tensor);
        check_token_indices(indices, stored->shape[0]);
        Change& change = changes_[name];
        change.tokens = &tensor;
        for (std::size_t i = 0; i < indices.size(); ++i)
            change.token_rows[indices[i]] = static_cast<std::int64_t>(i);
    }

    void check(const std::string& name, const Change& change) const {
        if (change.tokens != nullptr && change.A == nullptr && change.B == nullptr) return;
        if (change.tokens != nullptr)
            throw Error(source_ + ": " + name + " has both an adapter and trained tokens");
        if (change.whole != nullptr) return;
        if (change.A == nullptr || change.B == nullptr)
            throw Error(source_ + ": one of lora_A and lora_B of " + name + " is missing");
        const Shape& shape = find(name)->shape;
        if (shape.rank() != 2)
            throw Error(base_.path().string() + ": " + name + " of shape " + shape.to_string() +
                        " is no linear layer");
        const auto needs = [&](const AdapterTensor& tensor, const Shape& needed) {
            if (!(tensor.shape == needed))
                throw Error(source_ + ": " + tensor.name + " has shape " +
                            tensor.shape.to_string() + ", " + base_.path().string() + " needs " +
                            needed.to_string() + ": the adapter belongs to another base");
        };
        needs(*change.A, {change.r, shape[change.is_embedding ? 0 : 1]});
        needs(*change.B, {shape[change.is_embedding ? 1 : 0], change.r});
        if (adapter_.settings.use_dora && change.magnitude == nullptr)
            throw Error(source_ + ": lora_magnitude_vector of " + name + " is missing");
        if (change.magnitude != nullptr) needs(*change.magnitude, {shape[0]});
    }

    const ModelFiles& base_;
    const PeftAdapter& adapter_;
    const std::string& source_;
    const DecoderFamily& family_;
    const EndNames ends_;
    const LoraTargets targets_;
    std::map<std::string, Change> changes_;
};

// row += scaling * (B A)[o]
void add_product(const Change& change, double scaling, std::vector<double>& row, std::int64_t o) {
    const auto in = static_cast<std::int64_t>(row.size());
    const std::int64_t r = change.r;
    const float* const A = change.A->values.data();
    const float* const B = change.B->values.data();
    for (std::int64_t k = 0; k < r; ++k) {
        // The embedding's change is the transpose of B A.
        const std::int64_t vocab = change.is_embedding ? change.A->shape[1] : 0;
        const double left =
            scaling * static_cast<double>(change.is_embedding ? A[k * vocab + o] : B[o * r + k]);
        const float* const right = change.is_embedding ? B + k : A + k * in;
        const std::int64_t step = change.is_embedding ? r : 1;
        for (std::int64_t i = 0; i < in; ++i)
            row[static_cast<std::size_t>(i)] += left * static_cast<double>(right[i * step]);
    }
}

// row += what DoRA makes of the base's row, less that row: V brought to the length m.
void add_dora(const Change& change, std::vector<double>& row, const float* weight, std::int64_t o) {
    std::vector<double> v(weight, weight + row.size());
    add_product(change, change.scaling, v, o);
    double squares = 0;
    for (const double value : v)
        squares += value * value;
    const double norm = std::sqrt(squares);
    const double m = change.magnitude->values[static_cast<std::size_t>(o)];
    const double c = norm == 0 ? 0 : m / norm;
    for (std::size_t i = 0; i < row.size(); ++i)
        row[i] += change.weight * (c * v[i] - static_cast<double>(weight[i]));
}

// row += the adapter's weight times its change of row o, in double precision; the exact-as-can-be sum waits
// for its rounding. `weight` is the base's own row.
void add_change(const Change& change, std::vector<double>& row, const float* weight,
                std::int64_t o) {
    if (change.whole != nullptr || change.tokens != nullptr) {
        const auto columns = static_cast<std::int64_t>(row.size());
        const AdapterTensor& tensor = change.whole != nullptr ? *change.whole : *change.tokens;
        if (change.tokens != nullptr) {
            const auto found = change.token_rows.find(o);
            if (found == change.token_rows.end()) return;
            o = found->second;
        }
        const float* const values = tensor.values.data() + o * columns;
        for (std::size_t i = 0; i < row.size(); ++i)
            row[i] +=
                change.weight * (static_cast<double>(values[i]) - static_cast<double>(weight[i]));
        return;
    }
    if (change.magnitude != nullptr) return add_dora(change, row, weight, o);
    add_product(change, change.weight * change.scaling, row, o);
}

// To 16 bits through fp32 would round twice: the fp32 value is rounded to odd first, which keeps the
// direction of what was cut off (Boldo and Melquiond, 2008).
float rounded_to_odd(double value) {
    const auto nearest = static_cast<float>(value);
    if (static_cast<double>(nearest) == value || !std::isfinite(nearest)) return nearest;
    const auto bits = std::bit_cast<std::uint32_t>(nearest);
    if ((bits & 1u) != 0) return nearest;
    const bool above = std::abs(static_cast<double>(nearest)) > std::abs(value);
    return std::bit_cast<float>(above ? bits - 1 : bits + 1);
}
}  // namespace

template <>
float rounded(double value) {
    return static_cast<float>(value);
}
template <>
bfloat16 rounded(double value) {
    return bfloat16(rounded_to_odd(value));
}
template <>
float16 rounded(double value) {
    return float16(rounded_to_odd(value));
}

void fail_range(const std::string& tensor, std::int64_t element, DType dtype, const char* advice) {
    throw Error(tensor + ": element " + std::to_string(element) + " is beyond the range of " +
                std::string(name_of(dtype)) + ": " + advice);
}

namespace {

// One tensor as it is written.
template <typename T>
void write_tensor(SafetensorsWriter& writer, const StoredTensor& tensor,
                  const MergedWeights& weights) {
    std::vector<T> out(static_cast<std::size_t>(tensor.shape.elements()));
    const std::int64_t columns = tensor.shape.back();
    weights.for_each_row(tensor, [&](std::int64_t o, const double* row) {
        for (std::int64_t i = 0; i < columns; ++i) {
            const T value = rounded<T>(row[i]);
            if (!std::isfinite(static_cast<float>(value)))
                fail_range(tensor.name, o * columns + i, dtype_of<T>::value,
                           "write f32 or bf16 instead");
            out[static_cast<std::size_t>(o * columns + i)] = value;
        }
    });
    writer.write(tensor.name, out.data(), static_cast<std::int64_t>(out.size() * sizeof(T)));
}

std::optional<DType> plain_dtype(StoredType type) {
    switch (type) {
        case StoredType::f32:
            return DType::f32;
        case StoredType::f16:
            return DType::f16;
        case StoredType::bf16:
            return DType::bf16;
        default:
            return std::nullopt;
    }
}

const char* config_name(DType dtype) {
    return dtype == DType::f32 ? "float32" : dtype == DType::f16 ? "float16" : "bfloat16";
}

// The dtype of most matrix elements, or bf16 where they are quantised.
DType matrix_dtype(const ModelFiles& base, bool& quantised) {
    std::map<DType, std::int64_t> elements;
    quantised = false;
    for (const StoredTensor& tensor : base.tensors()) {
        if (tensor.shape.rank() < 2) continue;
        const std::optional<DType> dtype = plain_dtype(tensor.type);
        if (!dtype && block_elements(tensor.type) > 1) quantised = true;
        elements[dtype.value_or(DType::bf16)] += tensor.shape.elements();
    }
    if (quantised || elements.empty()) return DType::bf16;
    return std::max_element(elements.begin(), elements.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
}

Json rope_json(const RopeConfig& rope) {
    Json json;
    if (rope.kind == RopeConfig::Kind::linear) {
        json.set("rope_type", "linear");
        json.set("factor", rope.factor);
    } else {
        json.set("rope_type", "llama3");
        json.set("factor", rope.factor);
        json.set("low_freq_factor", rope.low_freq_factor);
        json.set("high_freq_factor", rope.high_freq_factor);
        const double original = rope.original_max_position;
        json.set("original_max_position_embeddings", original == std::round(original)
                                                         ? Json(static_cast<std::int64_t>(original))
                                                         : Json(original));
    }
    return json;
}

void without(Json& json, std::string_view key) {
    Json kept{Json::Object{}};
    for (const auto& [name, value] : json.object()) {
        if (name != key) kept.set(name, value);
    }
    json = std::move(kept);
}

}  // namespace

struct MergedWeights::Impl {
    std::string source;  // of the base
    Changes changes;
    std::vector<StoredTensor> tensors;
    bool tied = false;
};

MergedWeights::MergedWeights(const ModelFiles& base, const std::vector<WeightedAdapter>& adapters) {
    auto impl = std::make_unique<Impl>();
    impl->source = base.path().string();
    for (const WeightedAdapter& one : adapters) {
        for (auto& [name, change] : ChangeReader(base, *one.adapter, one.source).read()) {
            change.weight = one.weight;
            impl->changes[name].push_back(std::move(change));
        }
    }
    const EndNames ends(base);
    const DecoderConfig config = DecoderConfig::from_json(base.config(), base.path().string());
    impl->tied = config.ties_head(base);
    // Trained tokens are rows of both.
    bool unties = impl->tied && impl->changes.contains(ends.head);
    std::vector<Change> of_both;
    if (const auto found = impl->changes.find(ends.embedding);
        impl->tied && found != impl->changes.end()) {
        for (const Change& change : found->second) {
            if (change.tokens != nullptr)
                of_both.push_back(change);
            else
                unties = true;
        }
    }
    for (const StoredTensor& tensor : base.tensors()) {
        if (tensor.name.ends_with("rotary_emb.inv_freq")) continue;  // computed from the config
        if (impl->tied && tensor.name == ends.head) continue;        // the same as the embedding
        impl->tensors.push_back(tensor);
    }
    if (unties) {
        StoredTensor head = base.at(ends.embedding);
        head.name = ends.head;
        impl->tensors.push_back(std::move(head));
        if (!of_both.empty()) {
            std::vector<Change>& changes = impl->changes[ends.head];
            changes.insert(changes.end(), of_both.begin(), of_both.end());
        }
        impl->tied = false;
    }
    impl_ = std::move(impl);
}
MergedWeights::~MergedWeights() = default;

bool MergedWeights::changes(const std::string& name) const {
    return impl_->changes.contains(name);
}

const std::vector<StoredTensor>& MergedWeights::tensors() const {
    return impl_->tensors;
}
bool MergedWeights::is_tied() const {
    return impl_->tied;
}

void MergedWeights::for_each_row(const StoredTensor& tensor, std::int64_t first, std::int64_t count,
                                 const Body& body) const {
    const auto found = impl_->changes.find(tensor.name);
    const std::int64_t columns = tensor.shape.back();
    StoredTensor part = tensor;
    if (count != tensor.shape.rows()) {
        part = rows_of(tensor, first, count);
        part.name += " from row " + std::to_string(first);
    }
    std::vector<float> weight(static_cast<std::size_t>(part.shape.elements()));
    naming_source(impl_->source, [&] { read_tensor(part, weight.data()); });
    parallel_for(count, 16, [&](std::int64_t begin, std::int64_t end) {
        std::vector<double> row(static_cast<std::size_t>(columns));
        for (std::int64_t o = begin; o < end; ++o) {
            std::copy_n(weight.data() + o * columns, columns, row.begin());
            if (found != impl_->changes.end())
                for (const Change& change : found->second)
                    add_change(change, row, weight.data() + o * columns, first + o);
            body(first + o, row.data());
        }
    });
}

Json merged_config(const ModelFiles& base, DType dtype, bool tied, const MergeOptions& options) {
    Json config = base.config();
    const std::string source = base.path().string();
    const DecoderConfig read = DecoderConfig::from_json(config, source);
    if (read.rope.kind == RopeConfig::Kind::divisors) {
        const std::optional<RopeConfig> rope = recover_rope(read.rope.divisors, read.rope.theta);
        if (!rope)
            throw Error(source +
                        ": the divisors in rope_freqs.weight come from no RoPE setting that "
                        "Transformers reads (default, linear, llama3): merge into the Hugging Face "
                        "form of the base instead");
        without(config, "rope_scaling");
        without(config, "rope_parameters");
        config.set("rope_theta", rope->theta);
        if (rope->kind != RopeConfig::Kind::standard) config.set("rope_scaling", rope_json(*rope));
    }
    if (base.is_gguf()) {
        config.set("architectures", Json(Json::Array{Json(read.family->architecture)}));
        const auto set_id = [&](const char* key, const std::optional<std::int32_t>& id) {
            if (id && (config.find(key) == nullptr || config.find(key)->is_null()))
                config.set(key, static_cast<std::int64_t>(*id));
        };
        set_id("bos_token_id", options.bos_id);
        set_id("eos_token_id", options.eos_id);
        set_id("pad_token_id", options.pad_id);
    }
    without(config, "quantization_config");
    without(config, "_name_or_path");  // it names the base, which this is no more
    // The newer field style writes dtype, the older torch_dtype.
    config.set(config.find("dtype") != nullptr ? "dtype" : "torch_dtype", config_name(dtype));
    config.set("tie_word_embeddings", tied);
    return config;
}

MergeReport write_merged_model(const ModelFiles& base, const std::vector<WeightedAdapter>& adapters,
                               const std::filesystem::path& folder, const MergeOptions& options) {
    const MergedWeights weights(base, adapters);
    check_tensors(base);
    const bool tied = weights.is_tied();
    MergeReport report;
    report.dtype = matrix_dtype(base, report.was_quantised);
    if (options.dtype) report.dtype = *options.dtype;
    std::vector<WeightPiece> pieces;
    const auto of = static_cast<std::int64_t>(weights.tensors().size());
    for (const StoredTensor& tensor : weights.tensors()) {
        DType dtype = report.dtype;
        if (!options.dtype && !base.is_gguf() && !report.was_quantised) {
            const std::optional<DType> own = plain_dtype(tensor.type);
            if (!own)
                throw Error(base.path().string() + ": " + tensor.name + " has type " +
                            std::string(name_of(tensor.type)) +
                            ", which is no floating-point type");
            dtype = *own;
        }
        pieces.push_back({{{tensor.name, dtype, tensor.shape}},
                          [&, dtype, done = report.tensors](SafetensorsWriter& writer) {
                              if (options.progress) options.progress(done, of);
                              if (dtype == DType::f32)
                                  write_tensor<float>(writer, tensor, weights);
                              else if (dtype == DType::f16)
                                  write_tensor<float16>(writer, tensor, weights);
                              else
                                  write_tensor<bfloat16>(writer, tensor, weights);
                          }});
        report.bytes += pieces.back().bytes();
        report.merged_tensors += weights.changes(tensor.name) ? 1 : 0;
        ++report.tensors;
    }
    // The config first: what it refuses is refused before gigabytes are written.
    write_file_atomically(folder / "config.json",
                          merged_config(base, report.dtype, tied, options).dump(2) + "\n");
    write_sharded_weights(folder, pieces, options.shard_bytes);
    copy_generation_config(base, folder);
    return report;
}

}  // namespace garam
