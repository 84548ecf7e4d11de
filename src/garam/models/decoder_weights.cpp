// Construction of a Decoder: which tensors it needs, where they lie, what is trained.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "garam/core/error.h"
#include "garam/models/adapter_targets.h"
#include "garam/models/decoder.h"
#include "garam/models/rope.h"
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
        refuse_unknown_tensors();
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
        bool is_magnitude = false;  // of DoRA: the pass reads the master
    };

    // One weight: its file tensor checked against the shape that the config implies.
    void need(const std::string& name, const Shape& shape, Tensor* place, Tensor* gradient) {
        const StoredTensor& stored = files_.at(name);
        if (!(stored.shape == shape))
            throw Error(files_.path().string() + ": tensor " + name + " has shape " +
                        stored.shape.to_string() + ", but the config says " + shape.to_string());
        used_.insert(name);
        model_.total_elements_ += shape.elements();
        slots_.push_back({&stored, place, gradient, shape.rank() > 1});
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
        need(std::string(names.embedding) + ".weight", {c.vocab_size, c.hidden_size},
             &model_.embedding_, &model_.embedding_gradient_);
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
        tied_ = c.tie_word_embeddings.value_or(files_.find(head) == nullptr);
        if (tied_) {
            refuse_another_head(head, std::string(names.embedding) + ".weight");
        } else {
            need(head, {c.vocab_size, c.hidden_size}, &model_.head_.weight,
                 &model_.head_.weight_gradient);
        }
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

    // A tied model's files may hold the shared matrix twice; two different ones contradict the config.
    void refuse_another_head(const std::string& head_name, const std::string& embedding_name) {
        const StoredTensor* head = files_.find(head_name);
        if (head == nullptr) return;
        const StoredTensor& embedding = files_.at(embedding_name);
        if (head->type != embedding.type || head->bytes != embedding.bytes ||
            std::memcmp(head->data, embedding.data, head->bytes) != 0)
            throw Error(files_.path().string() + ": the config ties " + head_name + " to " +
                        embedding_name +
                        ", but the file holds two different tensors: set tie_word_embeddings to "
                        "false or remove " +
                        head_name);
        used_.insert(head_name);
    }

    void refuse_unknown_tensors() {
        for (const StoredTensor& tensor : files_.tensors()) {
            if (used_.contains(tensor.name) || tensor.name.ends_with("rotary_emb.inv_freq"))
                continue;
            throw Error(files_.path().string() + ": tensor " + tensor.name +
                        " is not part of the model that the config describes (model_type " +
                        model_.config_.model_type + ", " +
                        std::to_string(model_.config_.num_layers) + " layers, attention_bias " +
                        (model_.config_.qkv_bias ? "true" : "false") + ", mlp_bias " +
                        (model_.config_.mlp_bias ? "true" : "false") + ")");
        }
    }

    // A card computes with nothing but its own memory.
    bool in_place(const Slot& slot) const {
        return !card_ && usable_in_place(*slot.stored, model_.compute_);
    }

    bool is_trained_bias(const Slot& slot) const {
        return trained_biases_.contains(slot.stored->name);
    }

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
            if (*slot.place || in_place(slot) || is_trained_bias(slot)) continue;
            bytes += bytes_of(slot.stored->shape, model_.compute_);
        }
        Buffer buffer(model_.device_, bytes, Purpose::weights);
        std::int64_t offset = 0;
        for (const Slot& slot : slots_) {
            const Shape& shape = slot.stored->shape;
            if (*slot.place || is_trained_bias(slot)) continue;
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
                {slot.stored->name, slot.stored->shape, slot.decay, slot.place, slot.gradient});
        }
    }

    void find_adapters() {
        std::vector<std::string> paths;
        for (const auto& [path, linear] : model_.linears_)
            paths.push_back(path);
        const auto adapters = resolve_adapters(*model_.lora_, *model_.config_.family, paths);
        for (const auto& [path, linear] : model_.linears_) {
            const auto adapter = adapters.find(path);
            if (adapter != adapters.end()) adapted_.emplace(linear, adapter->second);
            const std::string& biases = model_.lora_->bias;
            const std::string bias = path + ".bias";
            if (used_.contains(bias) &&
                (biases == "all" || (biases == "lora_only" && adapted_.contains(linear))))
                trained_biases_.insert(bias);
        }
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
            const std::int64_t rank = adapter->second.rank;
            linear->lora.emplace();
            linear->lora->scaling = static_cast<float>(adapter->second.scaling);
            linear->lora->dropout = static_cast<float>(lora.lora_dropout);
            linear->lora->module = module;
            const std::string key = "base_model.model." + path;
            const Shape& shape = files_.at(path + ".weight").shape;
            wanted_.push_back({key + ".lora_A.weight",
                               {rank, shape[1]},
                               true,
                               &linear->lora->A,
                               &linear->lora->A_gradient});
            wanted_.push_back({key + ".lora_B.weight",
                               {shape[0], rank},
                               true,
                               &linear->lora->B,
                               &linear->lora->B_gradient,
                               packed.contains(linear) ? linear->lora->scaling : 1});
            if (lora.use_dora)
                wanted_.push_back({key + ".lora_magnitude_vector",
                                   {shape[0]},
                                   true,
                                   &linear->lora->magnitude,
                                   &linear->lora->magnitude_gradient,
                                   1,
                                   true});
        }
        for (auto& [path, linear] : model_.linears_) {
            const std::string bias = path + ".bias";
            if (!trained_biases_.contains(bias)) continue;
            const char* const inner = adapted_.contains(linear) ? ".base_layer" : "";
            const std::string key = "base_model.model." + path + inner + ".bias";
            bias_of_.emplace(key, &files_.at(bias));
            wanted_.push_back(
                {key, files_.at(bias).shape, false, &linear->bias, &linear->bias_gradient});
        }
        if (!card_) return;
        for (const Packing& p : projections_)
            place_adapters(*p.projection);
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
            if (needs_copies && !wanted.is_magnitude) {
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
        if (!tied_) return;
        model_.head_.weight = model_.embedding_;
        model_.head_.weight_gradient = model_.embedding_gradient_;
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

    // Rows of short sequences, then of long ones where these differ and may come.
    void make_rotary_tables(const RopeConfig& rope, RotaryTables& tables) {
        const std::int64_t positions = model_.max_positions_;
        const std::int64_t sets = model_.longest_short_ > 0 ? 2 : 1;
        const std::int64_t rotary_dim = model_.config_.rotary_dim;
        const Shape shape{sets * positions, rotary_dim / 2};
        const std::int64_t each = bytes_of(shape, DType::f32);
        Buffer buffer(model_.device_, 2 * each, Purpose::weights);
        tables = {buffer.tensor(DType::f32, shape), buffer.tensor(DType::f32, shape, each)};
        if (!dry_) {
            HostTensor cos(setup_.stream, tables.cos, false);
            HostTensor sin(setup_.stream, tables.sin, false);
            for (std::int64_t set = 0; set < sets; ++set) {
                const std::int64_t row = set * positions;
                fill_rope_tables(
                    rope_inverse_frequencies(rope, rotary_dim, set == 0 ? 0 : positions),
                    rope.attention_scaling, cos.tensor().slice_rows(row, row + positions),
                    sin.tensor().slice_rows(row, row + positions));
            }
            cos.write();
            sin.write();
        }
        model_.buffers_.push_back(std::move(buffer));
    }

    void fill() {
        if (options_.trained == Trained::all_weights) {
            for (std::size_t i = 0; i < slots_.size(); ++i)
                read_into(*slots_[i].stored, model_.parameters_[i].master);
        } else {
            for (const Slot& slot : slots_) {
                if (is_trained_bias(slot)) continue;
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
            const auto bias = bias_of_.find(parameter.name);
            if (bias != bias_of_.end()) {
                read_into(*bias->second, parameter.master);
                continue;
            }
            if (parameter.name.ends_with(".lora_B.weight")) continue;
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
    std::set<std::string> trained_biases_;                // beside an adapter: names of the base
    std::map<std::string, const StoredTensor*> bias_of_;  // by parameter
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
