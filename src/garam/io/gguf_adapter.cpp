#include "garam/io/gguf_adapter.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "garam/core/error.h"
#include "garam/io/gguf.h"
#include "garam/io/gguf_metadata.h"
#include "garam/io/gguf_writer.h"
#include "garam/io/peft_keys.h"

namespace garam {
namespace {

// llama.cpp looks rows up in its lora_a: that of PEFT turned over.
constexpr std::string_view kGgufEmbedding = "token_embd";
constexpr std::string_view kGgufHead = "output";
constexpr std::string_view kGgufA = ".lora_a";
constexpr std::string_view kGgufB = ".lora_b";

std::int64_t heads_of(const GgufMetadata& base, std::string_view module) {
    return permuted_heads(*base.architecture, module, base.num_heads, base.num_kv_heads);
}

// The stored rows of a lora_b.
std::vector<float> permuted_rows(const std::vector<float>& values, const Shape& shape,
                                 std::int64_t heads) {
    const std::int64_t columns = shape[1];
    std::vector<float> out(values.size());
    for (std::int64_t row = 0; row < shape[0]; ++row)
        std::copy_n(values.begin() + row * columns, columns,
                    out.begin() + permuted_row(row, shape[0] / heads) * columns);
    return out;
}

struct Written {
    GgufWriter::Entry entry;
    const AdapterTensor* tensor = nullptr;
    std::int64_t permuted_heads = 0;
    bool is_turned = false;
    std::string module;
};

std::vector<float> turned(const std::vector<float>& values, std::int64_t rows,
                          std::int64_t columns) {
    std::vector<float> out(values.size());
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column = 0; column < columns; ++column)
            out[static_cast<std::size_t>(column * rows + row)] =
                values[static_cast<std::size_t>(row * columns + column)];
    return out;
}

Written written_of(const AdapterTensor& tensor, const std::string& source, const GgufMetadata& base,
                   bool is_tied, StoredType type) {
    const std::size_t lora = tensor.name.rfind(".lora_");
    if (lora == std::string::npos)
        throw Error(source + ": " + tensor.name +
                    (tensor.name.ends_with(".bias") ? " is a trained bias" : " is a whole weight") +
                    ", which a LoRA GGUF cannot hold: export the merged model");
    const std::string end = tensor.name.substr(lora);
    const bool is_a = end == kPeftA || end == kPeftEmbeddingA;
    if (!tensor.name.starts_with(kPeftPrefix) || (!is_a && end != kPeftB && end != kPeftEmbeddingB))
        throw Error(source + ": " + tensor.name + " is no LoRA tensor of a linear layer");
    const std::string module = tensor.name.substr(kPeftPrefix.size(), lora - kPeftPrefix.size());
    const std::string weight = module + ".weight";
    const auto name = parse_hugging_face_name(*base.architecture, weight);
    if (!name)
        throw Error(source + ": " + tensor.name + " belongs to no module that GGUF names for " +
                    std::string(base.architecture->name));
    if (is_tied && (name->module == kGgufEmbedding || name->module == kGgufHead))
        throw Error(source + ": " + tensor.name +
                    " belongs to one of two weights that the base ties, for which llama.cpp takes "
                    "no adapter: export the merged model");
    Written written;
    written.entry.name = gguf_name(*name) + std::string(is_a ? kGgufA : kGgufB);
    written.entry.shape = tensor.shape;
    written.entry.type = type;
    written.tensor = &tensor;
    written.module = module;
    if (end == kPeftEmbeddingA) {
        written.is_turned = true;
        written.entry.shape = {tensor.shape[1], tensor.shape[0]};
    }
    if (is_a) return written;
    written.permuted_heads = heads_of(base, name->module);
    if (written.permuted_heads > 0 && tensor.shape[0] % (2 * written.permuted_heads) != 0)
        throw Error(source + ": " + tensor.name + " has " + std::to_string(tensor.shape[0]) +
                    " rows, which " + std::to_string(written.permuted_heads) +
                    " heads of the base do not divide: the adapter belongs to another base");
    return written;
}

void check_finite(const std::string& name, const std::vector<float>& values,
                  const std::string& source) {
    const auto bad = std::find_if(values.begin(), values.end(),
                                  [](float value) { return !std::isfinite(value); });
    if (bad != values.end())
        throw Error(source + ": " + name + ": element " + std::to_string(bad - values.begin()) +
                    " times its module's scale is beyond the range of fp32");
}

template <typename T>
void write_as(GgufWriter& writer, const std::string& name, const std::vector<float>& values,
              const std::string& source) {
    std::vector<T> narrow(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        narrow[i] = T(values[i]);
        if (!std::isfinite(static_cast<float>(narrow[i])))
            throw Error(source + ": " + name + ": element " + std::to_string(i) +
                        " is beyond the range of the type asked for: write f32 instead");
    }
    writer.write(name, narrow.data(), static_cast<std::int64_t>(narrow.size() * sizeof(T)));
}

class AdapterReader {
  public:
    AdapterReader(const std::filesystem::path& path, const ModelFiles& base)
        : file_(GgufFile::open(path)),
          base_(gguf_metadata(base.config(), base.path().string())),
          base_path_(base.path().string()) {}

    PeftAdapter read() {
        check_kind();
        for (const StoredTensor& tensor : file_->tensors())
            add(tensor);
        if (adapter_.tensors.empty()) fail("holds no LoRA tensors");
        for (const auto& [name, parts] : parts_) {
            if (parts != 3)
                fail("tensor " + name + std::string(parts == 1 ? kGgufB : kGgufA) +
                     " is missing beside the other of its pair");
        }
        settle_ranks();
        return std::move(adapter_);
    }

  private:
    [[noreturn]] void fail(const std::string& what) const {
        throw Error(file_->path().string() + ": " + what);
    }
    const Json& need(const char* key) const {
        const Json* value = file_->find(key);
        if (value == nullptr) fail("key " + std::string(key) + " is missing");
        return *value;
    }
    std::string at(const char* key) const {
        return file_->path().string() + ": key " + std::string(key);
    }

    void check_kind() {
        if (const std::string& type = need("general.type").string(at("general.type"));
            type != "adapter")
            fail("holds a GGUF " + type + ", not an adapter");
        if (const std::string& type = need("adapter.type").string(at("adapter.type"));
            type != "lora")
            fail("adapter type " + type + " is not supported; supported is lora");
        const std::string& family = need("general.architecture").string(at("general.architecture"));
        if (family != base_.architecture->name)
            fail("is an adapter of a " + family + " model, " + base_path_ + " is " +
                 std::string(base_.architecture->name));
        adapter_.settings.lora_alpha = need("adapter.lora.alpha").number(at("adapter.lora.alpha"));
        if (!std::isfinite(adapter_.settings.lora_alpha))
            fail("key adapter.lora.alpha must be finite");
    }

    void add(const StoredTensor& stored) {
        const bool is_a = stored.name.ends_with(kGgufA);
        const std::string weight =
            stored.name.substr(0, stored.name.size() - std::min(stored.name.size(), kGgufA.size()));
        const auto name = is_a || stored.name.ends_with(kGgufB)
                              ? parse_gguf_name(*base_.architecture, weight)
                              : std::nullopt;
        if (!name || name->part != "weight")
            fail("tensor " + stored.name + " is no LoRA tensor of a " +
                 std::string(base_.architecture->name) +
                 " model (<module>.weight.lora_a and .lora_b)");
        const bool is_embedding = name->module == kGgufEmbedding;
        const int rank_axis = is_a && !is_embedding ? 0 : 1;
        if (stored.shape.rank() != 2 || stored.shape[rank_axis] < 1)
            fail("tensor " + stored.name + " has shape " + stored.shape.to_string() +
                 ", which is no matrix of a pair");
        StoredTensor tensor = stored;
        if (!is_a) {
            const std::int64_t heads = heads_of(base_, name->module);
            if (heads > 0 && (stored.shape[0] < 1 || stored.shape[0] % (2 * heads) != 0))
                fail("tensor " + stored.name + " has " + std::to_string(stored.shape[0]) +
                     " rows, which " + std::to_string(heads) + " heads of " + base_path_ +
                     " do not divide");
            tensor.permuted_heads = heads;
        }
        std::string module = hugging_face_name(*base_.architecture, *name);
        module.resize(module.size() - std::string_view(".weight").size());
        parts_[weight] |= is_a ? 1 : 2;
        const std::int64_t rank = stored.shape[rank_axis];
        const auto [known, is_new] = ranks_.emplace(module, rank);
        if (known->second != rank)
            fail("tensor " + stored.name + " has rank " + std::to_string(rank) +
                 ", the other of its pair " + std::to_string(known->second));
        if (is_a) adapter_.settings.target_modules.push_back(module);

        AdapterTensor out;
        const std::string_view ends[] = {kPeftA, kPeftB, kPeftEmbeddingA, kPeftEmbeddingB};
        out.name = std::string(kPeftPrefix) + module +
                   std::string(ends[(is_embedding ? 2 : 0) + (is_a ? 0 : 1)]);
        out.shape = stored.shape;
        out.values.resize(static_cast<std::size_t>(stored.shape.elements()));
        try {
            read_tensor(tensor, out.values.data());
        } catch (const Error& error) {
            fail(error.what());
        }
        if (is_embedding && is_a) {
            out.values = turned(out.values, out.shape[0], out.shape[1]);
            out.shape = {out.shape[1], out.shape[0]};
        }
        adapter_.tensors.push_back(std::move(out));
    }

    // The commonest rank is r, the others are patterns.
    void settle_ranks() {
        std::map<std::int64_t, std::size_t> modules;
        for (const auto& [module, rank] : ranks_)
            ++modules[rank];
        adapter_.settings.r =
            std::max_element(modules.begin(), modules.end(), [](const auto& a, const auto& b) {
                return a.second < b.second;
            })->first;
        for (const auto& [module, rank] : ranks_)
            if (rank != adapter_.settings.r)
                adapter_.settings.rank_pattern.emplace_back(module, static_cast<double>(rank));
    }

    std::shared_ptr<const GgufFile> file_;
    GgufMetadata base_;
    std::string base_path_;
    PeftAdapter adapter_;
    std::map<std::string, std::int64_t> ranks_;  // of a module
    std::map<std::string, int> parts_;           // of a weight: 1 lora_a, 2 lora_b
};

}  // namespace

void write_gguf_adapter(const std::filesystem::path& path, const PeftAdapter& adapter,
                        const std::string& source, const ModelFiles& base, StoredType type) {
    GARAM_CHECK(block_elements(type) == 1, "adapters are not quantised");
    if (adapter.settings.use_dora)
        throw Error(source +
                    ": use_dora = true: llama.cpp's adapters have no magnitudes; export the merged "
                    "model instead");
    const GgufMetadata metadata = gguf_metadata(base.config(), base.path().string());
    const LoraTargets targets(adapter.settings);
    // llama.cpp divides the file's one alpha by each pair's rank, and takes 0 for a scale of 1.
    const double own = adapter.settings.scaling() * static_cast<double>(adapter.settings.r);
    const double alpha = own == 0 ? 1 : own;
    const GgufKeys keys = {
        {"general.architecture", std::string(metadata.architecture->name)},
        {"general.type", std::string("adapter")},
        {"general.quantization_version", std::uint32_t{2}},
        {"adapter.type", std::string("lora")},
        {"adapter.lora.alpha", static_cast<float>(alpha)},
    };
    const Json* const ties = base.config().find("tie_word_embeddings");
    const bool is_tied = ties != nullptr && !ties->is_null()
                             ? ties->boolean(base.path().string() + ": tie_word_embeddings")
                             : base.find("lm_head.weight") == nullptr;
    std::vector<Written> tensors;
    std::vector<GgufWriter::Entry> entries;
    for (const AdapterTensor& tensor : adapter.tensors) {
        tensors.push_back(written_of(tensor, source, metadata, is_tied, type));
        entries.push_back(tensors.back().entry);
    }
    GgufWriter writer(path, keys, std::move(entries));
    for (const Written& written : tensors) {
        const Shape& shape = written.entry.shape;
        std::vector<float> values = written.tensor->values;
        if (written.permuted_heads > 0)
            values = permuted_rows(values, shape, written.permuted_heads);
        if (written.is_turned) values = turned(values, shape[1], shape[0]);
        if (!written.entry.name.ends_with(kGgufA)) {
            // What its scale is beside that of the file's alpha; 1 where they agree.
            const double factor =
                targets.scaling(written.module) * static_cast<double>(shape[1]) / alpha;
            for (float& value : values)
                value = static_cast<float>(static_cast<double>(value) * factor);
            check_finite(written.entry.name, values, source);
        }
        if (type == StoredType::f16) {
            write_as<float16>(writer, written.entry.name, values, source);
        } else if (type == StoredType::bf16) {
            write_as<bfloat16>(writer, written.entry.name, values, source);
        } else {
            writer.write(written.entry.name, values.data(),
                         static_cast<std::int64_t>(values.size() * sizeof(float)));
        }
    }
    writer.commit();
}

PeftAdapter read_gguf_adapter(const std::filesystem::path& path, const ModelFiles& base) {
    return AdapterReader(path, base).read();
}

PeftAdapter read_adapter(const std::filesystem::path& path, const ModelFiles& base) {
    return path.extension() == ".gguf" ? read_gguf_adapter(path, base) : read_peft_adapter(path);
}

}  // namespace garam
