// Construction of a Decoder: which tensors it needs, where they lie, what is trained.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "garam/core/error.h"
#include "garam/models/adapter_targets.h"
#include "garam/models/decoder.h"
#include "garam/models/decoder_tensors.h"
#include "garam/models/rotary_tables.h"
#include "garam/models/token_rows.h"
#include "garam/ops/dora.h"
#include "garam/ops/elementwise.h"
#include "garam/runtime/transfer.h"

namespace garam {
namespace {

std::int64_t bytes_of(const Shape& shape, DType dtype) {
    return align_up(shape.elements() * static_cast<std::int64_t>(size_of(dtype)));
}

}  // namespace

// Gathers what the model needs, then allocates each kind of memory once and fills it.
class Decoder::Loader {
  public:
    Loader(Decoder& model, const ModelFiles& files, const Options& options)
        : model_(model),
          files_(files),
          options_(options),
          dry_(model.device_.kind() == DeviceKind::dry),
          card_(model.device_.profile().is_cuda()),
          setup_(model.device_) {}

    void load() {
        gather_weights();
        refuse_unknown_tensors(files_, used_, model_.config_);
        if (options_.lora) find_adapters();
        if (card_) pack_projections();
        if (options_.trained == Trained::all_weights) {
            train_weights();
        } else {
            place_weights();
        }
        if (options_.lora) attach_adapters();
        allocate_parameters();
        tie_head();
        make_rotary_tables();
        if (dry_) return;
        try {
            fill();
            setup_.stream.synchronize();
        } catch (const Error& error) {  // which names the tensor alone
            throw Error(files_.path().string() + ": " + error.what());
        }
    }

  private:
    struct Packing {
        Projection* projection;
        std::int64_t in;
        std::vector<std::int64_t> outs;  // of its parts
        bool bias;
    };
    struct Slot {
        std::string name;
        const StoredTensor* stored;
        Tensor* place;
        Tensor* gradient;
        bool decay;
    };

    struct Wanted {
        std::string name;
        Shape shape;
        bool decay;
        Tensor* place;  // where the model computes with it
        Tensor* gradient;
        float factor = 1;           // of the place's values
        bool is_of_tokens = false;  // its places are rows of the embedding
        bool is_magnitude = false;  // of DoRA: the pass reads the master
    };

    // One weight: its file tensor checked against the shape that the config implies.
    void need(const std::string& name, const Shape& shape, Tensor* place, Tensor* gradient) {
        need(name, files_.at(name), shape, place, gradient);
    }
    void need(const std::string& name, const StoredTensor& stored, const Shape& shape,
              Tensor* place, Tensor* gradient) {
        if (!(stored.shape == shape))
            throw Error(files_.path().string() + ": tensor " + name + " has shape " +
                        stored.shape.to_string() + ", but the config says " + shape.to_string());
        used_.insert(name);
        model_.total_elements_ += shape.elements();
        slots_.push_back({name, &stored, place, gradient, shape.rank() > 1});
    }

    // Its linears by path and output features.
    void need_projection(Projection& projection, std::int64_t in, bool bias,
                         const std::vector<std::pair<std::string, std::int64_t>>& linears) {
        projection.parts.resize(linears.size());
        std::vector<std::int64_t> outs;
        for (std::size_t p = 0; p < linears.size(); ++p) {
            const auto& [path, out] = linears[p];
            Linear& linear = projection.parts[p];
            need(path + ".weight", {out, in}, &linear.weight, &linear.weight_gradient);
            if (bias) need(path + ".bias", {out}, &linear.bias, &linear.bias_gradient);
            model_.linears_.emplace_back(path, &linear);
            outs.push_back(out);
        }
        projections_.push_back({&projection, in, std::move(outs), bias});
    }

    void need_norm(const std::string& path, std::int64_t width, RmsNorm& norm) {
        const DecoderFamily& family = *model_.config_.family;
        need(path + ".weight", {width}, &norm.weight, &norm.weight_gradient);
        norm.eps = static_cast<float>(model_.config_.rms_norm_eps);
        norm.options.weight_offset = family.norm_weights_less_one ? 1.0f : 0.0f;
        norm.options.rounds_once = family.norm_rounds_once;
    }
    // Of a layer; there may be none.
    void need_layer_norm(const std::string& layer, std::string_view name, RmsNorm& norm) {
        if (!name.empty()) need_norm(layer + std::string(name), model_.config_.hidden_size, norm);
    }

    void gather_weights() {
        const DecoderConfig& c = model_.config_;
        const TensorNames& names = c.family->tensors;
        const std::string embedding = std::string(names.embedding) + ".weight";
        need(embedding, {c.vocab_size, c.hidden_size}, &model_.embedding_.table,
             &model_.embedding_.table_gradient);
        model_.embedding_.factor = static_cast<float>(c.embedding_factor);
        // Before anything is made by the number.
        if (static_cast<std::size_t>(c.num_layers) > files_.tensors().size())
            throw Error(files_.path().string() + ": the config's num_hidden_layers is " +
                        std::to_string(c.num_layers) + ", but there are " +
                        std::to_string(files_.tensors().size()) + " tensors in all");
        model_.blocks_.resize(static_cast<std::size_t>(c.num_layers));
        for (std::size_t l = 0; l < model_.blocks_.size(); ++l) {
            const std::string layer = std::string(names.layers) + "." + std::to_string(l) + ".";
            gather_attention(layer, c.layers[l], model_.blocks_[l].attention);
            gather_mlp(layer, model_.blocks_[l].mlp);
        }
        need_norm(std::string(names.final_norm), c.hidden_size, model_.head_.norm);
        model_.head_.scale = c.logits;
        const std::string head = std::string(names.head) + ".weight";
        tied_ = c.ties_head(files_);
        if (tied_) used_.insert(head);  // the files may hold the shared matrix twice
        if (tied_ && (saves(names.embedding) || saves(names.head))) {
            // A whole copy of one is trained without the other, as in PEFT.
            tied_ = false;
            need(head, files_.at(embedding), {c.vocab_size, c.hidden_size}, &model_.head_.weight,
                 &model_.head_.weight_gradient);
        } else if (!tied_) {
            need(head, {c.vocab_size, c.hidden_size}, &model_.head_.weight,
                 &model_.head_.weight_gradient);
        }
    }

    bool saves(std::string_view path) const {
        return options_.lora &&
               is_saved_module(*options_.lora, *model_.config_.family, std::string(path));
    }

    void gather_attention(const std::string& layer, const DecoderConfig::Layer& own,
                          SelfAttention& attention) {
        const DecoderConfig& c = model_.config_;
        const TensorNames& names = c.family->tensors;
        const auto at = [&](std::string_view name) { return layer + std::string(name); };
        need_layer_norm(layer, names.attention_norm, attention.norm);
        if (names.qkv_proj.empty()) {
            need_projection(attention.qkv_proj, c.hidden_size, c.qkv_bias,
                            {{at(names.q_proj), c.q_width()},
                             {at(names.k_proj), c.kv_width()},
                             {at(names.v_proj), c.kv_width()}});
        } else {
            need_projection(attention.qkv_proj, c.hidden_size, c.qkv_bias,
                            {{at(names.qkv_proj), c.q_width() + 2 * c.kv_width()}});
        }
        if (c.family->qk_norm != DecoderFamily::QkNorm::none) {
            const bool heads = c.family->qk_norm == DecoderFamily::QkNorm::heads;
            for (const auto& [norm, name, width] :
                 {std::tuple{&attention.q_norm, names.q_norm, c.q_width()},
                  std::tuple{&attention.k_norm, names.k_norm, c.kv_width()}}) {
                need_norm(at(name), heads ? c.head_dim : width, *norm);
                norm->options.head_dim = heads ? c.head_dim : 0;
            }
        }
        need_projection(attention.o_proj, c.q_width(), c.o_bias,
                        {{at(names.o_proj), c.hidden_size}});
        need_layer_norm(layer, names.attention_end_norm, attention.end.norm);
        attention.end.factor = static_cast<float>(c.residual_factor);
        attention.shape = {c.num_heads, c.num_kv_heads,
                           c.head_dim,  static_cast<float>(c.attention_scale),
                           own.window,  static_cast<float>(c.attention_softcap)};
    }

    void gather_mlp(const std::string& layer, GatedMlp& mlp) {
        const DecoderConfig& c = model_.config_;
        const TensorNames& names = c.family->tensors;
        const auto at = [&](std::string_view name) { return layer + std::string(name); };
        need_layer_norm(layer, names.mlp_norm, mlp.norm);
        if (names.gate_up_proj.empty()) {
            need_projection(mlp.gate_up_proj, c.hidden_size, c.mlp_bias,
                            {{at(names.gate_proj), c.intermediate_size},
                             {at(names.up_proj), c.intermediate_size}});
        } else {
            need_projection(mlp.gate_up_proj, c.hidden_size, c.mlp_bias,
                            {{at(names.gate_up_proj), 2 * c.intermediate_size}});
        }
        need_projection(mlp.down_proj, c.intermediate_size, c.mlp_bias,
                        {{at(names.down_proj), c.hidden_size}});
        need_layer_norm(layer, names.mlp_end_norm, mlp.end.norm);
        mlp.end.factor = static_cast<float>(c.residual_factor);
        mlp.activation = c.activation;
    }

    // A card computes with nothing but its own memory.
    bool in_place(const Slot& slot) const {
        const bool rows_change = trains_tokens() && slot.place == &model_.embedding_.table;
        return !card_ && !options_.own_weights && !rows_change &&
               usable_in_place(*slot.stored, model_.compute_);
    }

    bool trains_tokens() const {
        return options_.lora && !options_.lora->trainable_token_indices.empty();
    }

    // Beside an adapter: a bias, or of a module to save.
    bool is_trained(const Slot& slot) const { return trained_.contains(slot.name); }

    // A card's layout of linears that read one input, and of the adapters around them: nn/projection.h.
    void pack_projections() {
        std::int64_t bytes = 0;
        for (const Packing& p : projections_) {
            if (!is_packed(p)) continue;
            std::int64_t adapters = 0;
            std::int64_t rank = 0;
            for (const Linear& linear : p.projection->parts) {
                const auto adapter = adapted_.find(&linear);
                if (adapter == adapted_.end()) continue;
                ++adapters;
                rank = adapter->second.rank;
            }
            p.projection->tail = adapters > 0 ? projection_tail(adapters, rank) : 0;
            bytes += bytes_of(packed_shape(p), model_.compute_);
            if (p.bias) bytes += bytes_of({out_of(p)}, model_.compute_);
        }
        Buffer buffer(model_.device_, bytes, Purpose::weights);
        std::int64_t offset = 0;
        const auto next = [&](const Shape& shape) {
            const Tensor tensor = buffer.tensor(model_.compute_, shape, offset);
            offset += bytes_of(shape, model_.compute_);
            // What is of no part stays zero.
            clear(setup_.stream, tensor);
            return tensor;
        };
        for (const Packing& p : projections_) {
            if (!is_packed(p)) continue;
            Projection& projection = *p.projection;
            projection.packed = next(packed_shape(p));
            if (p.bias) projection.bias = next({out_of(p)});
            std::int64_t row = 0;
            for (std::size_t part = 0; part < p.outs.size(); ++part) {
                Linear& linear = projection.parts[part];
                const std::int64_t end = row + p.outs[part];
                linear.weight = projection.packed.slice_rows(row, end).slice_columns(0, p.in);
                if (p.bias) linear.bias = projection.bias.slice_elements(row, end);
                row = end;
            }
        }
        model_.buffers_.push_back(std::move(buffer));
    }

    // One matrix has adapters of one rank and scale; others are multiplied part by part.
    bool is_packed(const Packing& p) const {
        const ModuleAdapter* first = nullptr;
        for (const Linear& linear : p.projection->parts) {
            const auto adapter = adapted_.find(&linear);
            if (adapter == adapted_.end()) continue;
            if (model_.lora_->use_dora && model_.lora_->lora_dropout > 0) return false;
            const ModuleAdapter& own = adapter->second;
            if (first == nullptr) first = &own;
            if (own.rank != first->rank || own.scaling != first->scaling) return false;
        }
        return true;
    }

    static std::int64_t out_of(const Packing& p) {
        return std::accumulate(p.outs.begin(), p.outs.end(), std::int64_t{0});
    }
    Shape packed_shape(const Packing& p) const {
        return {out_of(p) + p.projection->tail, p.in + p.projection->tail};
    }

    // Frozen weights: in the mapped file where they can be used as they are, else in one allocation.
    void place_weights() {
        std::int64_t bytes = 0;
        for (const Slot& slot : slots_) {
            if (*slot.place || in_place(slot) || is_trained(slot)) continue;
            bytes += bytes_of(slot.stored->shape, model_.compute_);
        }
        Buffer buffer(model_.device_, bytes, Purpose::weights);
        std::int64_t offset = 0;
        for (const Slot& slot : slots_) {
            const Shape& shape = slot.stored->shape;
            if (*slot.place || is_trained(slot)) continue;
            if (in_place(slot)) {
                *slot.place = Tensor(const_cast<std::byte*>(slot.stored->data), model_.compute_,
                                     shape, model_.device_.kind());
                model_.mapped_bytes_ += static_cast<std::int64_t>(slot.stored->bytes);
                continue;
            }
            *slot.place = buffer.tensor(model_.compute_, shape, offset);
            offset += bytes_of(shape, model_.compute_);
        }
        model_.buffers_.push_back(std::move(buffer));
    }

    // Full fine-tuning: each weight is a parameter with a master of its own.
    void train_weights() {
        for (const Slot& slot : slots_) {
            wanted_.push_back(
                {slot.name, slot.stored->shape, slot.decay, slot.place, slot.gradient});
        }
    }

    void find_adapters() {
        const DecoderFamily& family = *model_.config_.family;
        LoraSettings& lora = *model_.lora_;
        std::vector<std::string> linears;
        for (const auto& [path, linear] : model_.linears_)
            linears.push_back(path);
        const std::string embedding(family.tensors.embedding);
        const std::string head(family.tensors.head);
        const auto adapters = resolve_adapters(lora, family, linears, {embedding, head});
        const auto adapter_of = [&](const std::string& path) -> std::optional<ModuleAdapter> {
            const auto adapter = adapters.find(path);
            if (adapter == adapters.end()) return std::nullopt;
            return adapter->second;
        };
        embedding_adapter_ = adapter_of(embedding);
        head_adapter_ = adapter_of(head);
        if (lora.use_dora && (embedding_adapter_ || head_adapter_))
            throw Error("lora.use_dora is not supported for " +
                        (embedding_adapter_ ? embedding : head) +
                        " (supported: linears of the layers): leave it out of lora.target_modules");
        for (const auto& [path, linear] : model_.linears_) {
            if (const auto adapter = adapter_of(path)) adapted_.emplace(linear, *adapter);
            const std::string bias = path + ".bias";
            if (used_.contains(bias) &&
                (lora.bias == "all" || (lora.bias == "lora_only" && adapted_.contains(linear))))
                trained_.insert(bias);
        }
        std::vector<std::string> modules;
        for (const Slot& slot : slots_)
            modules.push_back(module_of(slot));
        const auto saved = resolve_saved_modules(lora, family, modules, adapters);
        for (const Slot& slot : slots_)
            if (saved.contains(module_of(slot))) trained_.insert(slot.name);
        if (!trains_tokens()) return;
        check_token_indices(lora.trainable_token_indices, model_.config_.vocab_size);
        if (embedding_adapter_ || saved.contains(embedding))
            throw Error(
                "lora.trainable_token_indices and " +
                std::string(embedding_adapter_ ? "lora.target_modules" : "lora.modules_to_save") +
                " both train " + embedding + ": keep one");
    }
    static std::string module_of(const Slot& slot) {
        return slot.name.substr(0, slot.name.rfind('.'));
    }

    void attach_adapters() {
        const LoraSettings& lora = *model_.lora_;
        // A card's packed B has the scale in it.
        std::set<const Linear*> packed;
        for (const Packing& p : projections_)
            for (const Linear& linear : p.projection->parts)
                if (p.projection->packed) packed.insert(&linear);
        std::uint32_t module = 0;
        for (auto& [path, linear] : model_.linears_) {
            ++module;  // numbers every place, adapted or not: the key of its dropout mask
            const auto adapter = adapted_.find(linear);
            if (adapter == adapted_.end()) continue;
            const Shape& shape = files_.at(path + ".weight").shape;
            attach_adapter(adapter->second, module, linear->lora, shape[1], shape[0],
                           {path + ".lora_A.weight", path + ".lora_B.weight"},
                           packed.contains(linear));
            if (lora.use_dora)
                wanted_.push_back({"base_model.model." + path + ".lora_magnitude_vector",
                                   {shape[0]},
                                   true,
                                   &linear->lora->magnitude,
                                   &linear->lora->magnitude_gradient,
                                   1,
                                   false,
                                   true});
        }
        const DecoderConfig& c = model_.config_;
        const std::string embedding(c.family->tensors.embedding);
        const std::string head(c.family->tensors.head);
        if (embedding_adapter_)
            attach_adapter(
                *embedding_adapter_, 0, model_.embedding_.lora, c.vocab_size, c.hidden_size,
                {embedding + ".lora_embedding_A", embedding + ".lora_embedding_B"}, false);
        if (head_adapter_)
            attach_adapter(*head_adapter_, module + 1, model_.head_.lora, c.hidden_size,
                           c.vocab_size, {head + ".lora_A.weight", head + ".lora_B.weight"}, false);
        for (const Slot& slot : slots_) {
            if (!is_trained(slot)) continue;
            std::string key = "base_model.model." + slot.name;
            const bool inside = has_adapter(module_of(slot));
            if (inside) key.insert(key.rfind('.'), ".base_layer");
            start_of_.emplace(key, slot.stored);
            wanted_.push_back({key, slot.stored->shape, slot.decay, slot.place, slot.gradient});
        }
        if (trains_tokens()) {
            const auto rows = static_cast<std::int64_t>(lora.trainable_token_indices.size());
            wanted_.push_back(
                {"base_model.model." + embedding + ".token_adapter.trainable_tokens_delta",
                 {rows, c.hidden_size},
                 true,
                 &model_.embedding_.table,
                 &model_.embedding_.token_gradient,
                 1,
                 true});
        }
        if (!card_) return;
        for (const Packing& p : projections_)
            place_adapters(*p.projection);
    }

    bool has_adapter(const std::string& path) const {
        return std::any_of(model_.linears_.begin(), model_.linears_.end(), [&](const auto& linear) {
            return linear.first == path && adapted_.contains(linear.second);
        });
    }

    void attach_adapter(const ModuleAdapter& adapter, std::uint32_t module,
                        std::optional<LoraAdapter>& lora, std::int64_t in, std::int64_t out,
                        const std::array<std::string, 2>& names, bool is_packed) {
        lora.emplace();
        lora->scaling = static_cast<float>(adapter.scaling);
        lora->dropout = static_cast<float>(model_.lora_->lora_dropout);
        lora->module = module;
        const std::string prefix = "base_model.model.";
        wanted_.push_back(
            {prefix + names[0], {adapter.rank, in}, true, &lora->A, &lora->A_gradient});
        wanted_.push_back({prefix + names[1],
                           {out, adapter.rank},
                           true,
                           &lora->B,
                           &lora->B_gradient,
                           is_packed ? lora->scaling : 1});
    }

    // A below and B behind the packed weights.
    void place_adapters(Projection& projection) {
        if (projection.tail == 0) return;
        const std::int64_t in = projection.in_features();
        const std::int64_t out = projection.out_features();
        LoraGroup& group = projection.lora;
        for (const Linear& linear : projection.parts) {
            const auto adapter = adapted_.find(&linear);
            if (adapter == adapted_.end()) continue;
            group.rank = adapter->second.rank;
            group.scaling = static_cast<float>(adapter->second.scaling);
        }
        group.dropout = static_cast<float>(model_.lora_->lora_dropout);
        group.A = projection.packed.slice_rows(out, out + projection.tail).slice_columns(0, in);
        group.B = projection.packed.slice_rows(0, out).slice_columns(in, in + projection.tail);
        for (std::size_t part = 0; part < projection.parts.size(); ++part) {
            Linear& linear = projection.parts[part];
            if (!linear.lora) continue;
            const std::int64_t first = group.rank * static_cast<std::int64_t>(group.parts.size());
            const std::int64_t begin = projection.column(part);
            const std::int64_t end = begin + linear.out_features();
            linear.lora->A = group.A.slice_rows(first, first + group.rank);
            linear.lora->B =
                group.B.slice_rows(begin, end).slice_columns(first, first + group.rank);
            group.parts.push_back({begin, end, linear.lora->module, {}, {}});
        }
    }

    // What DoRA makes of magnitudes, each of which stands behind its module's A and B: of a projection's
    // linears end to end.
    void place_dora_scales() {
        if (!options_.lora || !model_.lora_->use_dora) return;
        std::int64_t bytes = 0;
        for (const Packing& p : projections_)
            bytes += 2 * bytes_of({out_of(p)}, DType::f32);
        Buffer buffer(model_.device_, bytes, Purpose::adapter);
        std::int64_t offset = 0;
        std::size_t place = 0;
        for (const Packing& p : projections_) {
            Projection& projection = *p.projection;
            const Shape shape{out_of(p)};
            const Tensor scales = buffer.tensor(DType::f32, shape, offset);
            offset += bytes_of(shape, DType::f32);
            const Tensor norms = buffer.tensor(DType::f32, shape, offset);
            offset += bytes_of(shape, DType::f32);
            garam::fill(setup_.stream, 1, scales);
            if (projection.tail > 0) projection.dora_scale = scales;
            for (std::size_t part = 0; part < projection.parts.size(); ++part) {
                Linear& linear = projection.parts[part];
                if (!linear.lora) continue;
                LoraAdapter& lora = *linear.lora;
                const std::int64_t begin = projection.column(part);
                lora.dora_scale = scales.slice_elements(begin, begin + p.outs[part]);
                lora.dora_norm = norms.slice_elements(begin, begin + p.outs[part]);
                while (!wanted_[place].is_magnitude)
                    ++place;
                const Tensor& A = model_.parameters_[place - 2].master;
                const Tensor& B = model_.parameters_[place - 1].master;
                Parameter& m = model_.parameters_[place++];
                m.dora = {linear.weight, A, B, lora.scaling, m.master, lora.dora_scale,
                          lora.dora_norm};
            }
        }
        model_.buffers_.push_back(std::move(buffer));
    }

    // What the card's adapters add their gradients to; they are allocated after the places.
    void link_gradients() {
        for (const Packing& p : projections_) {
            if (!p.projection->packed) continue;
            std::size_t part = 0;
            for (const Linear& linear : p.projection->parts) {
                if (!linear.lora) continue;
                LoraPart& lora = p.projection->lora.parts[part++];
                lora.A_gradient = linear.lora->A_gradient;
                lora.B_gradient = linear.lora->B_gradient;
            }
        }
    }

    // PEFT gives vectors B's rate.
    double rate_factor(const Wanted& wanted) const {
        return wanted.name.ends_with(".lora_B.weight") ||
                       (options_.lora && wanted.shape.rank() == 1)
                   ? options_.b_rate_factor
                   : 1;
    }

    // Of masters and gradients: what learns alike lies together, so that an optimiser takes it in one pass.
    std::vector<std::int64_t> master_offsets() const {
        std::vector<std::int64_t> offsets(wanted_.size());
        std::int64_t offset = 0;
        for (const bool scaled : {false, true}) {
            for (std::size_t w = 0; w < wanted_.size(); ++w) {
                if ((rate_factor(wanted_[w]) != 1) != scaled) continue;
                offsets[w] = offset;
                offset += bytes_of(wanted_[w].shape, DType::f32);
            }
        }
        return offsets;
    }

    void allocate_parameters() {
        const bool trains = options_.trained != Trained::nothing;
        // A card's adapters compute where the packed weights are.
        const bool needs_copies = card_ || model_.compute_ != DType::f32;
        std::int64_t masters = 0;
        std::int64_t copies = 0;
        for (const Wanted& wanted : wanted_) {
            masters += bytes_of(wanted.shape, DType::f32);
            if (!*wanted.place && !wanted.is_magnitude)
                copies += bytes_of(wanted.shape, model_.compute_);
        }
        if (masters == 0) return;
        Buffer master_buffer(model_.device_, masters, Purpose::adapter);
        Buffer gradient_buffer(model_.device_, trains ? masters : 0, Purpose::gradients);
        Buffer copy_buffer(model_.device_, needs_copies ? copies : 0, Purpose::adapter);
        if (trains) model_.all_gradients_ = gradient_buffer.tensor(DType::f32, {masters / 4});
        const std::vector<std::int64_t> offsets = master_offsets();
        std::int64_t copy_offset = 0;
        for (std::size_t w = 0; w < wanted_.size(); ++w) {
            const Wanted& wanted = wanted_[w];
            const std::int64_t offset = offsets[w];
            Parameter parameter;
            parameter.name = wanted.name;
            parameter.weight_decay = wanted.decay;
            parameter.rate_factor = rate_factor(wanted);
            parameter.master = master_buffer.tensor(DType::f32, wanted.shape, offset);
            if (trains) {
                parameter.gradient = gradient_buffer.tensor(DType::f32, wanted.shape, offset);
                *wanted.gradient = parameter.gradient;
            }
            if (wanted.is_of_tokens) {
                parameter.copies = token_row_copies(model_.lora_->trainable_token_indices,
                                                    parameter.master, *wanted.place);
            } else if (needs_copies && !wanted.is_magnitude) {
                if (!*wanted.place) {
                    *wanted.place = copy_buffer.tensor(model_.compute_, wanted.shape, copy_offset);
                    copy_offset += bytes_of(wanted.shape, model_.compute_);
                }
                parameter.copies.push_back({*wanted.place, wanted.factor});
            } else {
                *wanted.place = parameter.master;
            }
            model_.parameters_.push_back(std::move(parameter));
        }
        // Also what lies between the tensors: they are updated as one vector.
        clear(setup_.stream, master_buffer.tensor(DType::f32, {masters / 4}));
        if (trains) clear(setup_.stream, model_.all_gradients_);
        if (card_ && trains) link_gradients();
        place_dora_scales();
        model_.buffers_.push_back(std::move(master_buffer));
        model_.buffers_.push_back(std::move(gradient_buffer));
        model_.buffers_.push_back(std::move(copy_buffer));
    }

    void tie_head() {
        if (model_.embedding_.token_gradient)
            model_.buffers_.push_back(make_token_tables(
                model_.device_, setup_.stream, model_.lora_->trainable_token_indices,
                model_.config_.vocab_size, model_.embedding_.token_places, model_.head_.token_ids));
        if (!tied_) return;
        model_.head_.token_gradient = model_.embedding_.token_gradient;
        model_.head_.weight = model_.embedding_.table;
        model_.head_.weight_gradient = model_.embedding_.table_gradient;
    }

    void make_rotary_tables() {
        const DecoderConfig& c = model_.config_;
        model_.max_positions_ =
            options_.max_positions > 0 ? options_.max_positions : c.max_positions;
        if (model_.max_positions_ > c.rope.longest_short())
            model_.longest_short_ = c.rope.longest_short();
        make_rotary_tables(c.rope, model_.rotary_);
        if (c.local_rope) make_rotary_tables(*c.local_rope, model_.local_rotary_);
        for (std::size_t l = 0; l < model_.blocks_.size(); ++l) {
            RotaryTables& tables = model_.blocks_[l].attention.rotary;
            switch (c.layers[l].rope) {
                case DecoderConfig::LayerRope::none:
                    break;
                case DecoderConfig::LayerRope::main:
                    tables = model_.rotary_;
                    break;
                case DecoderConfig::LayerRope::local:
                    tables = model_.local_rotary_;
                    break;
            }
        }
    }

    void make_rotary_tables(const RopeConfig& rope, RotaryTables& tables) {
        model_.buffers_.push_back(garam::make_rotary_tables(
            model_.device_, setup_.stream, rope, model_.config_.rotary_dim, model_.max_positions_,
            model_.longest_short_ > 0, tables));
    }

    void fill() {
        if (options_.trained == Trained::all_weights) {
            for (std::size_t i = 0; i < slots_.size(); ++i)
                read_into(*slots_[i].stored, model_.parameters_[i].master);
        } else {
            for (const Slot& slot : slots_) {
                if (is_trained(slot)) continue;
                if (in_place(slot)) {
                    check_finite(*slot.stored);
                } else {
                    read_into(*slot.stored, *slot.place);
                }
            }
        }
        if (options_.lora) initialise_adapters();
        model_.refresh_copies();
    }

    void read_into(const StoredTensor& stored, const Tensor& place) {
        HostTensor host(setup_.stream, place, false);
        if (place.dtype() == DType::f32) {
            read_tensor(stored, host.tensor().data<float>());
        } else {
            read_tensor(stored, host.tensor().data<bfloat16>());
        }
        host.write();
    }

    // A of a module stands before its B, whose master was cleared.
    void initialise_adapters() {
        for (std::size_t i = 0; i < model_.parameters_.size(); ++i) {
            const Parameter& parameter = model_.parameters_[i];
            const auto start = start_of_.find(parameter.name);
            if (start != start_of_.end()) {
                read_into(*start->second, parameter.master);
                continue;
            }
            if (parameter.name.ends_with(".trainable_tokens_delta")) {
                HostTensor rows(setup_.stream, parameter.master, false);
                read_rows(
                    files_.at(std::string(model_.config_.family->tensors.embedding) + ".weight"),
                    model_.lora_->trainable_token_indices, rows.tensor().data<float>());
                rows.write();
                continue;
            }
            if (parameter.name.ends_with(".lora_B.weight") ||
                parameter.name.ends_with(".lora_embedding_A"))
                continue;
            if (parameter.name.ends_with(".lora_embedding_B")) {
                HostTensor b(setup_.stream, parameter.master, false);
                initialise_embedding_lora(options_.seed, i, b.tensor());
                b.write();
                continue;
            }
            if (parameter.dora) {  // the rows begin as long as they are
                dora_scale(setup_.stream, *parameter.dora);
                cast(setup_.stream, parameter.dora->norm, parameter.master);
                continue;
            }
            HostTensor a(setup_.stream, parameter.master, false);
            HostTensor b(setup_.stream, model_.parameters_[i + 1].master);
            initialise_lora(options_.init, options_.seed, i, a.tensor(), b.tensor());
            a.write();
            b.write();
        }
    }

    Decoder& model_;
    const ModelFiles& files_;
    const Options& options_;
    const bool dry_;
    const bool card_;  // places are those of a card
    SetupStream setup_;
    bool tied_ = false;
    std::vector<Packing> projections_;
    std::map<const Linear*, ModuleAdapter> adapted_;
    std::optional<ModuleAdapter> embedding_adapter_, head_adapter_;
    std::set<std::string> trained_;                        // beside an adapter: names of the base
    std::map<std::string, const StoredTensor*> start_of_;  // of these, by parameter
    std::vector<Slot> slots_;
    std::vector<Wanted> wanted_;
    std::set<std::string> used_;
};

Decoder::Decoder(Device& device, const ModelFiles& files, const Options& options)
    : device_(device),
      config_(DecoderConfig::from_json(files.config(), files.path().string())),
      compute_(options.compute),
      lora_(options.lora),
      loss_(options.label_smoothing) {
    GARAM_CHECK(compute_ == DType::f32 || compute_ == DType::bf16, "compute dtype");
    GARAM_CHECK(options.trained != Trained::adapter || lora_, "no adapter to train");
    GARAM_CHECK(options.trained != Trained::all_weights || !lora_,
                "an adapter beside full fine-tuning");
    if (lora_ && lora_->r < 1) throw Error("lora.r must be at least 1");
    Loader(*this, files, options).load();
}

}  // namespace garam
