#include "garam/io/model_files.h"

#include <system_error>
#include <unordered_map>
#include <utility>

#include "garam/core/error.h"
#include "garam/io/four_bit_checkpoint.h"
#include "garam/io/gguf.h"
#include "garam/io/gguf_model.h"
#include "garam/io/hub_cache.h"
#include "garam/io/safetensors.h"

namespace garam {

namespace fs = std::filesystem;

struct ModelFiles::Impl {
    fs::path path;
    std::string repository;  // of the hub, where the path was found by it
    Json config;
    std::vector<StoredTensor> tensors;
    std::unordered_map<std::string_view, std::size_t> index;  // views of the tensors' names
    std::vector<std::shared_ptr<const SafetensorsFile>> shards;
    std::shared_ptr<const GgufFile> gguf;
    std::unordered_map<std::string, std::vector<std::byte>> replaced;

    void open_gguf();
    void open_folder();
    void read_single(const fs::path& file);
    void read_shards(const fs::path& index_file);
    [[noreturn]] void throw_no_weights() const;
};

namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool is_there(const fs::path& path) {
    std::error_code error;
    const bool there = fs::exists(path, error);
    if (error == std::errc::permission_denied)
        throw Error(path.string() + ": cannot be read: " + error.message());
    return there;
}

bool holds_file_ending(const fs::path& folder, std::string_view ending) {
    std::error_code ignored;
    for (fs::directory_iterator entry(folder, ignored), end; entry != end;
         entry.increment(ignored)) {
        if (entry->path().filename().string().ends_with(ending)) return true;
    }
    return false;
}

// A file name and nothing else: an index must not lead out of its folder.
bool is_plain_name(const std::string& name) {
    return !name.empty() && name != "." && name != ".." &&
           name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

void ModelFiles::Impl::open_gguf() {
    gguf = GgufFile::open(path);
    GgufModel model = read_gguf_model(*gguf);
    config = std::move(model.config);
    tensors = std::move(model.tensors);
}

void ModelFiles::Impl::open_folder() {
    const fs::path config_file = path / "config.json";
    if (!is_there(config_file)) {
        if (is_there(path / "adapter_config.json"))
            throw Error(path.string() +
                        ": holds an adapter, not a model; give its base as the model and this "
                        "folder as the adapter");
        if (holds_file_ending(path, ".gguf"))
            throw Error(path.string() + ": has no config.json; give the .gguf file itself");
        throw Error(config_file.string() +
                    ": is missing; a model is a Hugging Face folder (config.json and safetensors) "
                    "or a .gguf file");
    }
    config = Json::parse_file(config_file);
    if (!config.is_object()) throw Error(config_file.string() + ": must be a JSON object");
    const bool is_four_bit = four_bit_config(config, config_file.string()).has_value();
    // Where both are there, Transformers reads the single file.
    if (is_there(path / kSingle)) {
        read_single(path / kSingle);
    } else if (is_there(path / kIndex)) {
        read_shards(path / kIndex);
    } else {
        throw_no_weights();
    }
    if (is_four_bit) return join_four_bit_weights(tensors, path.string());
    for (const StoredTensor& tensor : tensors)
        if (tensor.name.find(kQuantStatePart) != std::string::npos)
            throw Error(config_file.string() + ": has no quantization_config, but " + tensor.name +
                        " says that its weight is quantised by bitsandbytes: take config.json from "
                        "where the weights come from");
}

void ModelFiles::Impl::throw_no_weights() const {
    if (holds_file_ending(path, ".bin") || holds_file_ending(path, ".pt") ||
        holds_file_ending(path, ".pth"))
        throw Error(path.string() +
                    ": its weights are PyTorch pickles, which can run code when read and are not "
                    "supported; convert them to safetensors (in Transformers: "
                    "model.save_pretrained(folder, safe_serialization=True))");
    throw Error(path.string() + ": has neither " + kSingle + " nor " + kIndex);
}

void ModelFiles::Impl::read_single(const fs::path& file) {
    shards.push_back(SafetensorsFile::open(file));
    tensors = shards.back()->tensors();
}

void ModelFiles::Impl::read_shards(const fs::path& index_file) {
    const Json content = Json::parse_file(index_file);
    const Json& map = content.at("weight_map", index_file.string());
    std::unordered_map<std::string, std::size_t> opened;  // shard by file name
    for (const auto& [tensor, shard] : map.object(index_file.string() + ": weight_map")) {
        const std::string& file_name = shard.string(index_file.string() + ": " + tensor);
        if (!is_plain_name(file_name))
            throw Error(index_file.string() + ": tensor " + tensor + " is said to lie in " +
                        Json(file_name).dump() + ", which is no file name");
        auto found = opened.find(file_name);
        if (found == opened.end()) {
            if (!is_there(path / file_name))
                throw Error(index_file.string() + ": names " + file_name +
                            ", which is missing; perhaps the download is incomplete");
            shards.push_back(SafetensorsFile::open(path / file_name));
            found = opened.emplace(file_name, shards.size() - 1).first;
        }
        const StoredTensor* stored = shards[found->second]->find(tensor);
        if (stored == nullptr)
            throw Error(index_file.string() + ": tensor " + tensor + " is not in " + file_name);
        tensors.push_back(*stored);
    }
    if (tensors.empty()) throw Error(index_file.string() + ": weight_map is empty");
}

ModelFiles ModelFiles::open(const fs::path& given) {
    auto impl = std::make_unique<Impl>();
    FoundFiles found = find_model_path(given);
    const fs::path& path = impl->path = std::move(found.path);
    impl->repository = std::move(found.repository);
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
        impl->open_folder();
    } else if (!is_there(path)) {
        throw Error(path.string() + ": no such file or folder");
    } else if (path.extension() == ".gguf") {
        impl->open_gguf();
    } else {
        throw Error(path.string() +
                    ": a model is a Hugging Face folder (config.json and safetensors) or a .gguf "
                    "file");
    }
    for (std::size_t i = 0; i < impl->tensors.size(); ++i)
        impl->index.emplace(impl->tensors[i].name, i);
    return ModelFiles(std::move(impl));
}

ModelFiles::ModelFiles(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModelFiles::ModelFiles(ModelFiles&&) noexcept = default;
ModelFiles& ModelFiles::operator=(ModelFiles&&) noexcept = default;
ModelFiles::~ModelFiles() = default;

const fs::path& ModelFiles::path() const {
    return impl_->path;
}
bool ModelFiles::is_gguf() const {
    return impl_->gguf != nullptr;
}
const Json& ModelFiles::config() const {
    return impl_->config;
}

std::string ModelFiles::name() const {
    if (!impl_->repository.empty()) return impl_->repository;
    const Json* name = impl_->config.find("_name_or_path");
    return name != nullptr && name->is_string() ? name->string() : "";
}

const std::vector<StoredTensor>& ModelFiles::tensors() const {
    return impl_->tensors;
}

const StoredTensor* ModelFiles::find(std::string_view name) const {
    const auto found = impl_->index.find(name);
    return found == impl_->index.end() ? nullptr : &impl_->tensors[found->second];
}

const StoredTensor& ModelFiles::at(std::string_view name) const {
    const StoredTensor* tensor = find(name);
    if (tensor == nullptr)
        throw Error(impl_->path.string() + ": tensor " + std::string(name) + " is missing");
    return *tensor;
}

void ModelFiles::replace(const StoredTensor& tensor, std::vector<std::byte> bytes) {
    const auto found = impl_->index.find(tensor.name);
    GARAM_CHECK(found != impl_->index.end(), "no tensor " + tensor.name + " to replace");
    StoredTensor& place = impl_->tensors[found->second];
    // The index looks at the name: it stays.
    place.shape = tensor.shape;
    place.type = tensor.type;
    place.permuted_heads = tensor.permuted_heads;
    place.one_added = tensor.one_added;
    place.four_bit = tensor.four_bit;
    place.first = tensor.first;
    if (tensor.four_bit != nullptr) {
        place.data = tensor.data;
        place.bytes = tensor.bytes;
        return;
    }
    std::vector<std::byte>& kept = impl_->replaced[place.name] = std::move(bytes);
    place.data = kept.data();
    place.bytes = kept.size();
}

void ModelFiles::set_config(std::string_view key, Json value) {
    impl_->config.set(key, std::move(value));
}

const GgufFile* ModelFiles::gguf() const {
    return impl_->gguf.get();
}

}  // namespace garam
