#include "garam/io/four_bit_checkpoint.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "garam/core/error.h"
#include "garam/quant/dynamic_map.h"
#include "garam/quant/four_bit.h"

namespace garam {
namespace {

constexpr std::size_t kLargestState = 64 * 1024;
// Tables of other versions may differ in their last bits.
constexpr float kMapTolerance = 1e-6f;

const char* dtype_name(DType dtype) {
    return dtype == DType::f32 ? "float32" : dtype == DType::f16 ? "float16" : "bfloat16";
}

// f32 elements, which need not lie aligned.
std::vector<float> floats_of(const StoredTensor& tensor) {
    std::vector<float> values(tensor.bytes / sizeof(float));
    std::memcpy(values.data(), tensor.data, tensor.bytes);
    return values;
}

// One weight with its parts.
class Joiner {
  public:
    using Index = std::unordered_map<std::string_view, const StoredTensor*>;

    Joiner(const Index& index, const StoredTensor& state, std::string source)
        : index_(index), state_(state), source_(std::move(source)) {
        const std::size_t at = state.name.rfind(kQuantStatePart);
        weight_ = state.name.substr(0, at);
        type_ = state.name.substr(at + kQuantStatePart.size());
    }

    // `used` gets the names of the parts, the weight's not among them.
    StoredTensor join(std::unordered_set<std::string_view>& used) {
        used_ = &used;
        used.insert(state_.name);
        if (type_ != "nf4" && type_ != "fp4")
            fail("is quantised as " + type_ + " (supported: nf4, fp4)");
        read_state();
        const StoredTensor& codes = part("");
        const std::int64_t elements = joined_.shape.elements();
        const std::int64_t pairs = elements / 2 + elements % 2;
        needs_bytes(codes, pairs);
        matrix_.codes =
            Tensor(const_cast<std::byte*>(codes.data), DType::u8, {pairs}, DeviceKind::cpu);
        check_table();
        if (find(kNestedAbsmaxPart) != nullptr || find(kNestedQuantMapPart) != nullptr) {
            take_nested_absmax();
        } else {
            take_absmax();
        }
        joined_.name = weight_;
        joined_.type = matrix_.format == QuantFormat::nf4 ? StoredType::nf4 : StoredType::fp4;
        joined_.data = codes.data;
        joined_.bytes = codes.bytes;
        own_->matrix = matrix_;
        joined_.four_bit = std::move(own_);
        return std::move(joined_);
    }

  private:
    [[noreturn]] void fail(const std::string& what) const {
        throw Error(source_ + ": tensor " + weight_ + ": " + what);
    }

    const StoredTensor* find(std::string_view part) const {
        const auto found = index_.find(weight_ + std::string(part));
        return found == index_.end() ? nullptr : found->second;
    }
    const StoredTensor& part(std::string_view name) const {
        const StoredTensor* tensor = find(name);
        if (tensor == nullptr)
            fail("its part " + weight_ + std::string(name) + " is missing; the file is incomplete");
        if (!name.empty()) used_->insert(tensor->name);
        return *tensor;
    }
    void needs_bytes(const StoredTensor& tensor, std::int64_t bytes) const {
        if (tensor.bytes != static_cast<std::size_t>(bytes))
            fail(tensor.name + " has " + std::to_string(tensor.bytes) + " bytes, shape " +
                 joined_.shape.to_string() + " in blocks of " + std::to_string(matrix_.block) +
                 " needs " + std::to_string(bytes));
    }
    void needs_type(const StoredTensor& tensor, StoredType type) const {
        if (tensor.type != type)
            fail(tensor.name + " is " + std::string(name_of(tensor.type)) + ", not " +
                 std::string(name_of(type)));
    }

    void read_state() {
        needs_type(state_, StoredType::u8);
        if (state_.bytes > kLargestState) fail("its quant_state is absurdly long");
        const std::string where = source_ + ": " + state_.name;
        const Json state = Json::parse(
            std::string_view(reinterpret_cast<const char*>(state_.data), state_.bytes), where);
        const auto member = [&](const char* key) -> const Json& { return state.at(key, where); };
        if (member("quant_type").string(where + ": quant_type") != type_)
            fail("its quant_state says quant_type " + member("quant_type").dump() + ", its name " +
                 type_);
        matrix_.format = type_ == "nf4" ? QuantFormat::nf4 : QuantFormat::fp4;
        matrix_.block = member("blocksize").integer(where + ": blocksize");
        if (!is_four_bit_block(matrix_.block))
            fail("blocksize " + std::to_string(matrix_.block) +
                 " is no power of two from 32 to 4096");
        const std::string& dtype = member("dtype").string(where + ": dtype");
        if (dtype == "float32") {
            own_->dtype = DType::f32;
        } else if (dtype == "float16") {
            own_->dtype = DType::f16;
        } else if (dtype == "bfloat16") {
            own_->dtype = DType::bf16;
        } else {
            fail("dtype " + member("dtype").dump() + " is none of float32, float16 and bfloat16");
        }
        const Json::Array& shape = member("shape").array(where + ": shape");
        if (shape.empty() || shape.size() > Shape::kMaxRank)
            fail("its shape has " + std::to_string(shape.size()) + " dimensions");
        for (const Json& extent : shape) {
            if (extent.integer(where + ": shape") <= 0) fail("its shape is not positive");
            joined_.shape.append(extent.integer());
        }
        const std::int64_t elements = checked_elements();
        matrix_.columns = joined_.shape.back();
        matrix_.rows = elements / matrix_.columns;
        nested_block_ = state.find("nested_blocksize");
        nested_offset_ = state.find("nested_offset");
        if (nested_block_ != nullptr)
            nested_ = nested_block_->integer(where + ": nested_blocksize");
        if (nested_offset_ != nullptr)
            offset_ = static_cast<float>(nested_offset_->number(where + ": nested_offset"));
        has_nested_ = nested_block_ != nullptr && nested_offset_ != nullptr;
    }

    std::int64_t checked_elements() const {
        try {
            return joined_.shape.elements();
        } catch (const Error& error) {
            fail(std::string("its shape: ") + error.what());
        }
    }

    // Only the type's own table is known to who decodes.
    void check_table() const {
        const StoredTensor& map = part(kQuantMapPart);
        needs_type(map, StoredType::f32);
        const std::array<float, 16>& table = four_bit_table(matrix_.format);
        needs_bytes(map, static_cast<std::int64_t>(table.size() * sizeof(float)));
        const std::vector<float> values = floats_of(map);
        for (std::size_t i = 0; i < table.size(); ++i) {
            if (!(std::abs(values[i] - table[i]) <= kMapTolerance))
                fail(map.name + " is not the table of " + type_ + ": code " + std::to_string(i) +
                     " is " + std::to_string(values[i]) + " instead of " +
                     std::to_string(table[i]));
        }
    }

    // In the file where it lies aligned, else a copy.
    Tensor f32_tensor(const StoredTensor& tensor, std::vector<float>& copy) const {
        const auto count = static_cast<std::int64_t>(tensor.bytes / sizeof(float));
        if (reinterpret_cast<std::uintptr_t>(tensor.data) % alignof(float) == 0)
            return {const_cast<std::byte*>(tensor.data), DType::f32, {count}, DeviceKind::cpu};
        copy = floats_of(tensor);
        return {copy.data(), DType::f32, {count}, DeviceKind::cpu};
    }

    void take_absmax() {
        if (has_nested_)
            fail("its part " + weight_ + std::string(kNestedAbsmaxPart) + " is missing");
        const StoredTensor& absmax = part(kAbsmaxPart);
        needs_type(absmax, StoredType::f32);
        needs_bytes(absmax, 4 * matrix_.blocks());
        matrix_.absmax = f32_tensor(absmax, own_->absmax);
    }

    void take_nested_absmax() {
        if (!has_nested_)
            fail(
                "its quant_state has no nested_blocksize and nested_offset, though its absmax is "
                "quantised");
        if (nested_ <= 0 || !std::isfinite(offset_))
            fail("its quant_state has nested_blocksize " + std::to_string(nested_) +
                 " and nested_offset " + std::to_string(offset_));
        const StoredTensor& absmax = part(kAbsmaxPart);
        needs_type(absmax, StoredType::u8);
        needs_bytes(absmax, matrix_.blocks());
        const StoredTensor& nested = part(kNestedAbsmaxPart);
        needs_type(nested, StoredType::f32);
        needs_bytes(nested, 4 * ((matrix_.blocks() - 1) / nested_ + 1));
        const StoredTensor& stored_map = part(kNestedQuantMapPart);
        needs_type(stored_map, StoredType::f32);
        DynamicMap map{};
        needs_bytes(stored_map, sizeof map);
        std::memcpy(map.data(), stored_map.data, sizeof map);
        if (map != signed_dynamic_map() || nested_ != kNestedBlock)
            return decode_absmax(absmax, nested, map);
        own_->offset = offset_;
        matrix_.nested_block = nested_;
        matrix_.absmax = Tensor(const_cast<std::byte*>(absmax.data), DType::u8, {matrix_.blocks()},
                                DeviceKind::cpu);
        matrix_.nested_absmax = f32_tensor(nested, own_->nested_absmax);
        matrix_.offset = Tensor(&own_->offset, DType::f32, {1}, DeviceKind::cpu);
    }

    void decode_absmax(const StoredTensor& codes, const StoredTensor& nested,
                       const DynamicMap& map) {
        const std::vector<float> scales = floats_of(nested);
        own_->absmax.resize(codes.bytes);
        for (std::size_t b = 0; b < codes.bytes; ++b) {
            const float scaled = map[std::to_integer<std::size_t>(codes.data[b])] *
                                 scales[b / static_cast<std::size_t>(nested_)];
            own_->absmax[b] = scaled + offset_;
        }
        matrix_.absmax =
            Tensor(own_->absmax.data(), DType::f32, {matrix_.blocks()}, DeviceKind::cpu);
    }

    const Index& index_;
    const StoredTensor& state_;
    std::string source_;
    std::string weight_;
    std::string type_;
    std::unordered_set<std::string_view>* used_ = nullptr;
    StoredTensor joined_;
    QuantizedMatrix matrix_;
    std::shared_ptr<StoredFourBit> own_ = std::make_shared<StoredFourBit>();
    const Json* nested_block_ = nullptr;
    const Json* nested_offset_ = nullptr;
    bool has_nested_ = false;
    std::int64_t nested_ = 0;
    float offset_ = 0;
};

bool flag(const Json& object, std::string_view key, const std::string& where) {
    const Json* value = object.find(key);
    return value != nullptr && !value->is_null() && value->boolean(where + ": " + std::string(key));
}

}  // namespace

std::optional<BaseQuantization> four_bit_config(const Json& config, const std::string& source) {
    const Json* found = config.find("quantization_config");
    if (found == nullptr || found->is_null()) return std::nullopt;
    const std::string where = source + ": quantization_config";
    const Json* method = found->find("quant_method");
    const auto refuse = [&](const std::string& name) {
        throw Error(
            source + ": checkpoints quantised by " + name +
            " are not supported; supported are f32, f16 and bf16 safetensors, bitsandbytes in "
            "4 bits, and GGUF");
    };
    // Old files name no method.
    const bool is_8bit = flag(*found, "load_in_8bit", where);
    const bool is_4bit = flag(*found, "load_in_4bit", where);
    if (method != nullptr && !method->is_null()) {
        if (!method->is_string()) refuse(method->dump());
        if (method->string() != "bitsandbytes") refuse(method->string());
    } else if (!is_8bit && !is_4bit) {
        refuse("an unnamed method");
    }
    if (is_8bit || !is_4bit)
        refuse(is_8bit ? "bitsandbytes in 8 bits" : "bitsandbytes without load_in_4bit");
    BaseQuantization options;
    if (const Json* type = found->find("bnb_4bit_quant_type");
        type != nullptr && !type->is_null()) {
        const std::string& name = type->string(where + ": bnb_4bit_quant_type");
        if (name != "nf4" && name != "fp4") refuse("bitsandbytes as " + name);
        options.format = name == "nf4" ? QuantFormat::nf4 : QuantFormat::fp4;
    }
    if (const Json* block = found->find("bnb_4bit_block_size"); block != nullptr) {
        options.block = block->integer(where + ": bnb_4bit_block_size");
        if (!is_four_bit_block(options.block))
            throw Error(where + ": bnb_4bit_block_size is " + std::to_string(options.block) +
                        ", no power of two from 32 to 4096");
    }
    options.double_quantization = flag(*found, "bnb_4bit_use_double_quant", where);
    if (const Json* skip = found->find("llm_int8_skip_modules");
        skip != nullptr && !skip->is_null()) {
        for (const Json& name : skip->array(where + ": llm_int8_skip_modules"))
            options.skip_modules.push_back(name.string(where + ": llm_int8_skip_modules"));
    }
    return options;
}

Json quantization_config(const BaseQuantization& options, std::string_view compute_dtype) {
    Json::Array skip;
    for (const std::string& name : options.skip_modules)
        skip.emplace_back(name);
    Json json;
    json.set("_load_in_4bit", true);
    json.set("_load_in_8bit", false);
    json.set("bnb_4bit_compute_dtype", compute_dtype);
    json.set("bnb_4bit_quant_storage", "uint8");
    json.set("bnb_4bit_quant_type", name_of(options.format));
    json.set("bnb_4bit_use_double_quant", options.double_quantization);
    json.set("llm_int8_enable_fp32_cpu_offload", false);
    json.set("llm_int8_has_fp16_weight", false);
    json.set("llm_int8_skip_modules", skip.empty() ? Json() : Json(std::move(skip)));
    json.set("llm_int8_threshold", 6.0);
    json.set("load_in_4bit", true);
    json.set("load_in_8bit", false);
    json.set("quant_method", "bitsandbytes");
    return json;
}

Json to_json(const BaseQuantization& options) {
    Json json = quantization_config(options, "bfloat16");
    json.set("bnb_4bit_block_size", options.block);
    return json;
}

void join_four_bit_weights(std::vector<StoredTensor>& tensors, const std::string& source) {
    Joiner::Index index;
    for (const StoredTensor& tensor : tensors)
        index.emplace(tensor.name, &tensor);
    std::unordered_set<std::string_view> used;  // names of parts
    std::unordered_map<std::string_view, StoredTensor> joined;
    for (const StoredTensor& tensor : tensors) {
        if (tensor.name.find(kQuantStatePart) == std::string::npos) continue;
        StoredTensor weight = Joiner(index, tensor, source).join(used);
        const std::string_view name = index.at(weight.name)->name;
        if (!joined.emplace(name, std::move(weight)).second)
            throw Error(source + ": tensor " + std::string(name) + " has two quant_states");
    }
    if (joined.empty())
        throw Error(
            source +
            ": quantization_config says load_in_4bit, but no tensor has a quant_state; take it "
            "out of config.json where the weights are not quantised");
    std::vector<StoredTensor> kept;
    for (const StoredTensor& tensor : tensors) {
        if (used.contains(tensor.name)) continue;
        const auto found = joined.find(tensor.name);
        kept.push_back(found == joined.end() ? tensor : std::move(found->second));
    }
    tensors = std::move(kept);
}

std::string quant_state_json(const QuantizedMatrix& matrix, const Shape& shape, DType dtype) {
    Json::Array extents;
    for (int axis = 0; axis < shape.rank(); ++axis)
        extents.emplace_back(shape[axis]);
    Json state;
    state.set("quant_type", name_of(matrix.format));
    state.set("blocksize", matrix.block);
    state.set("dtype", dtype_name(dtype));
    state.set("shape", std::move(extents));
    if (matrix.is_double()) {
        state.set("nested_blocksize", matrix.nested_block);
        state.set("nested_dtype", "float32");
        state.set("nested_offset", static_cast<double>(*matrix.offset.data<float>()));
    }
    return state.dump();
}

}  // namespace garam
