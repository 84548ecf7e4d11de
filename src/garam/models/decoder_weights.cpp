// Weights of a Decoder's base: which it needs, where they lie, and the memory of all that is trained.
#include <algorithm>
#include <tuple>

#include "garam/core/error.h"
#include "garam/core/error_source.h"
#include "garam/models/decoder_loader.h"
#include "garam/models/decoder_tensors.h"
#include "garam/models/rotary_tables.h"
#include "garam/models/token_rows.h"
#include "garam/ops/elementwise.h"

namespace garam {

void Decoder::Loader::load() {
    gather_weights();
    refuse_unknown_tensors(files_, used_, model_.config_);
    if (options_.lora) find_adapters();
    find_quantized();
    const bool copies_base = options_.own_weights && adapted_.empty() && trained_.empty();
    if (card_ || copies_base) pack_projections();
    place_codes();
    if (options_.trained == Trained::all_weights) {
        train_weights();
    } else {
        place_weights();
    }
    if (options_.lora) attach_adapters();
    allocate_parameters();
    tie_head();
    make_rotary_tables();
    naming_source(files_.path().string(), [&] {
        fill();
        model_.load_peak_bytes_ = model_.device_.memory().peak;
        setup_.stream.synchronize();
    });
}

// One weight: its file tensor checked against the shape that the config implies.
void Decoder::Loader::need(const std::string& name, const Shape& shape, Tensor* place,
                           Tensor* gradient) {
    need(name, files_.at(name), shape, place, gradient);
}

void Decoder::Loader::need(const std::string& name, const StoredTensor& stored, const Shape& shape,
                           Tensor* place, Tensor* gradient) {
    if (!(stored.shape == shape))
        throw Error(files_.path().string() + ": tensor " + name + " has shape " +
                    stored.shape.to_string() + ", but the config says " + shape.to_string());
    used_.insert(name);
    model_.total_elements_ += shape.elements();
    slots_.push_back({name, &stored, place, gradient, shape.rank() > 1, nullptr, {}, false});
}

// Its linears by path and output features.
void Decoder::Loader::need_projection(
    Projection& projection, std::int64_t in, bool bias,
    const std::vector<std::pair<std::string, std::int64_t>>& linears) {
    projection.parts.resize(linears.size());
    Packing packing{&projection, in, {}, bias, {}, in_block_++};
    for (std::size_t p = 0; p < linears.size(); ++p) {
        const auto& [path, out] = linears[p];
        Linear& linear = projection.parts[p];
        packing.weights.push_back(slots_.size());
        need(path + ".weight", {out, in}, &linear.weight, &linear.weight_gradient);
        slots_.back().linear = &linear;
        if (bias) need(path + ".bias", {out}, &linear.bias, &linear.bias_gradient);
        model_.linears_.emplace_back(path, &linear);
        packing.outs.push_back(out);
    }
    projections_.push_back(std::move(packing));
}

void Decoder::Loader::need_norm(const std::string& path, std::int64_t width, RmsNorm& norm) {
    const DecoderFamily& family = *model_.config_.family;
    need(path + ".weight", {width}, &norm.weight, &norm.weight_gradient);
    norm.eps = static_cast<float>(model_.config_.rms_norm_eps);
    norm.options.weight_offset = family.norm_weights_less_one ? 1.0f : 0.0f;
    norm.options.rounds_once = family.norm_rounds_once;
}

// Of a layer; there may be none.
void Decoder::Loader::need_layer_norm(const std::string& layer, std::string_view name,
                                      RmsNorm& norm) {
    if (!name.empty()) need_norm(layer + std::string(name), model_.config_.hidden_size, norm);
}

void Decoder::Loader::gather_weights() {
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
        in_block_ = 0;
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

void Decoder::Loader::gather_attention(const std::string& layer, const DecoderConfig::Layer& own,
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
    need_projection(attention.o_proj, c.q_width(), c.o_bias, {{at(names.o_proj), c.hidden_size}});
    need_layer_norm(layer, names.attention_end_norm, attention.end.norm);
    attention.end.factor = static_cast<float>(c.residual_factor);
    attention.shape = {c.num_heads, c.num_kv_heads,
                       c.head_dim,  static_cast<float>(c.attention_scale),
                       own.window,  static_cast<float>(c.attention_softcap)};
}

void Decoder::Loader::gather_mlp(const std::string& layer, GatedMlp& mlp) {
    const DecoderConfig& c = model_.config_;
    const TensorNames& names = c.family->tensors;
    const auto at = [&](std::string_view name) { return layer + std::string(name); };
    need_layer_norm(layer, names.mlp_norm, mlp.norm);
    if (names.gate_up_proj.empty()) {
        need_projection(
            mlp.gate_up_proj, c.hidden_size, c.mlp_bias,
            {{at(names.gate_proj), c.intermediate_size}, {at(names.up_proj), c.intermediate_size}});
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
bool Decoder::Loader::in_place(const Slot& slot) const {
    const bool rows_change = trains_tokens() && slot.place == &model_.embedding_.table;
    return !card_ && !options_.own_weights && !rows_change && !is_taken_from(slot) &&
           usable_in_place(*slot.stored, model_.compute_);
}

// One matrix of linears that read one input, and on a card of the adapters around them: nn/projection.h.
void Decoder::Loader::pack_projections() {
    // What is decoded for good has memory of another purpose; what is streamed, of its slot.
    std::int64_t bytes = 0;
    std::int64_t decoded_bytes = 0;
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
        if (p.bias) bytes += bytes_of({out_of(p)}, model_.compute_);
        if (p.is_streamed) continue;
        (p.is_quantized ? decoded_bytes : bytes) += bytes_of(packed_shape(p), model_.compute_);
    }
    make_slots();
    Buffer buffer(model_.device_, bytes, Purpose::weights);
    Buffer decoded(model_.device_, decoded_bytes, Purpose::decoded_weights);
    std::int64_t offset = 0;
    std::int64_t decoded_offset = 0;
    const auto next = [&](const Shape& shape, bool is_decoded) {
        std::int64_t& at = is_decoded ? decoded_offset : offset;
        const Tensor tensor = (is_decoded ? decoded : buffer).tensor(model_.compute_, shape, at);
        at += bytes_of(shape, model_.compute_);
        // What is of no part stays zero.
        clear(setup_.stream, tensor);
        return tensor;
    };
    for (const Packing& p : projections_) {
        if (!is_packed(p)) continue;
        Projection& projection = *p.projection;
        if (!p.is_streamed) projection.packed = next(packed_shape(p), p.is_quantized);
        if (p.bias) projection.bias = next({out_of(p)}, false);
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
    model_.buffers_.push_back(std::move(decoded));
}

// One matrix has adapters of one rank and scale; others are multiplied part by part.
bool Decoder::Loader::is_packed(const Packing& p) const {
    if (!card_ && p.is_quantized) return false;
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

// Frozen weights: in the mapped file where they can be used as they are, else in one allocation.
void Decoder::Loader::place_weights() {
    const auto is_placed = [&](const Slot& slot) {
        return *slot.place || is_trained(slot) || (slot.linear && slot.linear->quantized);
    };
    std::int64_t bytes = 0;
    std::int64_t decoded_bytes = 0;
    for (const Slot& slot : slots_) {
        if (is_placed(slot) || in_place(slot)) continue;
        (slot.layout ? decoded_bytes : bytes) += bytes_of(slot.stored->shape, model_.compute_);
    }
    Buffer buffer(model_.device_, bytes, Purpose::weights);
    Buffer decoded(model_.device_, decoded_bytes, Purpose::decoded_weights);
    std::int64_t offset = 0;
    std::int64_t decoded_offset = 0;
    for (const Slot& slot : slots_) {
        const Shape& shape = slot.stored->shape;
        if (is_placed(slot)) continue;
        if (in_place(slot)) {
            *slot.place = Tensor(const_cast<std::byte*>(slot.stored->data), model_.compute_, shape,
                                 model_.device_.kind());
            model_.mapped_bytes_ += static_cast<std::int64_t>(slot.stored->bytes);
            continue;
        }
        std::int64_t& at = slot.layout ? decoded_offset : offset;
        *slot.place = (slot.layout ? decoded : buffer).tensor(model_.compute_, shape, at);
        at += bytes_of(shape, model_.compute_);
    }
    model_.buffers_.push_back(std::move(buffer));
    model_.buffers_.push_back(std::move(decoded));
}

// Full fine-tuning: each weight is a parameter with a master of its own.
void Decoder::Loader::train_weights() {
    for (const Slot& slot : slots_) {
        wanted_.push_back({slot.name, slot.stored->shape, slot.decay, slot.place, slot.gradient});
    }
}

// Of masters and gradients: what learns alike lies together, so that an optimiser takes it in one pass.
std::vector<std::int64_t> Decoder::Loader::master_offsets() const {
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

void Decoder::Loader::allocate_parameters() {
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
    const bool on_host = options_.masters_on_host && card_ && trains;
    Buffer master_buffer(model_.device_, on_host ? 0 : masters, Purpose::adapter);
    if (on_host) model_.host_masters_ = PinnedBuffer(model_.device_, masters);
    // The card's address of pinned memory is the host's.
    const Tensor all_masters(on_host ? model_.host_masters_.raw() : master_buffer.raw(), DType::f32,
                             {masters / 4}, model_.device_.kind());
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
        parameter.master =
            all_masters.slice_elements(offset / 4, offset / 4 + wanted.shape.elements())
                .reshape(wanted.shape);
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
            if (wanted.streamed < 0) {
                parameter.copies.push_back({*wanted.place, wanted.factor});
            } else {  // made with the rest of the matrix
                model_.weight_stream_->source(wanted.streamed)
                    .adapters.push_back({parameter.master, *wanted.place, wanted.factor});
                if (wanted.row_place) parameter.copies.push_back({wanted.row_place, wanted.factor});
            }
        } else {
            *wanted.place = parameter.master;
        }
        model_.parameters_.push_back(std::move(parameter));
    }
    // Also what lies between the tensors: they are updated as one vector.
    clear(setup_.stream, all_masters);
    if (trains) clear(setup_.stream, model_.all_gradients_);
    if (card_ && trains) link_gradients();
    place_dora_scales();
    place_taken_out();
    model_.buffers_.push_back(std::move(master_buffer));
    model_.buffers_.push_back(std::move(gradient_buffer));
    model_.buffers_.push_back(std::move(copy_buffer));
}

void Decoder::Loader::tie_head() {
    if (model_.embedding_.token_gradient)
        model_.buffers_.push_back(make_token_tables(
            model_.device_, setup_.stream, model_.lora_->trainable_token_indices,
            model_.config_.vocab_size, model_.embedding_.token_places, model_.head_.token_ids));
    if (!tied_) return;
    model_.head_.token_gradient = model_.embedding_.token_gradient;
    model_.head_.weight = model_.embedding_.table;
    model_.head_.weight_gradient = model_.embedding_.table_gradient;
}

void Decoder::Loader::make_rotary_tables() {
    const DecoderConfig& c = model_.config_;
    model_.max_positions_ = options_.max_positions > 0 ? options_.max_positions : c.max_positions;
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

void Decoder::Loader::make_rotary_tables(const RopeConfig& rope, RotaryTables& tables) {
    model_.buffers_.push_back(
        garam::make_rotary_tables(model_.device_, setup_.stream, rope, model_.config_.rotary_dim,
                                  model_.max_positions_, model_.longest_short_ > 0, tables));
}

void Decoder::Loader::fill() {
    setup_.stream.synchronize();  // memory is cleared
    Filling filling(model_.device_, quantizing_scratch());
    if (options_.trained == Trained::all_weights) {
        for (std::size_t i = 0; i < slots_.size(); ++i)
            filling.upload.values(*slots_[i].stored, model_.parameters_[i].master);
    } else {
        const Buffer codes = staging(false);
        const Buffer values = staging(true);
        // The disk reads what comes next, so far ahead.
        constexpr std::size_t kAhead = std::size_t{256} << 20;
        std::size_t expected = 0;
        std::size_t bytes_ahead = 0;
        for (const Slot& slot : slots_) {
            for (; !dry_ && expected < slots_.size() && bytes_ahead < kAhead; ++expected) {
                WeightUpload::expect(*slots_[expected].stored);
                bytes_ahead += slots_[expected].stored->bytes;
            }
            bytes_ahead -= std::min(bytes_ahead, slot.stored->bytes);
            if (is_trained(slot) || is_taken_from(slot)) continue;
            if (slot.layout) {
                fill_quantized(slot, codes, values, filling);
            } else if (!in_place(slot)) {
                filling.upload.values(*slot.stored, *slot.place);
            } else if (!dry_) {
                check_finite(*slot.stored);
            }
        }
        filling.setup.stream.synchronize();  // before staging memory goes
    }
    if (dry_) return;
    if (options_.lora) initialise_adapters(filling.upload);
    // What follows works in a stream of its own, in part in the same memory.
    filling.setup.stream.synchronize();
    setup_.stream.synchronize();
    model_.refresh_copies();
}

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
    weight_stream_ = std::make_unique<WeightStream>(device);
    Loader(*this, files, options).load();
}

}  // namespace garam
