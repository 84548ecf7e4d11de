// What an adapter adds to a Decoder: its tensors, where they lie, and where they begin.
#include <algorithm>

#include "garam/core/error.h"
#include "garam/io/peft_keys.h"
#include "garam/models/decoder_loader.h"
#include "garam/models/four_bit_base.h"
#include "garam/models/loftq.h"
#include "garam/models/pissa.h"
#include "garam/models/token_rows.h"
#include "garam/ops/dora.h"
#include "garam/ops/elementwise.h"

namespace garam {

bool Decoder::Loader::saves(std::string_view path) const {
    return options_.lora &&
           is_saved_module(*options_.lora, *model_.config_.family, std::string(path));
}

void Decoder::Loader::find_adapters() {
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
    if (options_.init.is_pissa()) {
        if (lora.use_dora)
            throw Error(
                "lora.init_lora_weights=pissa and lora.use_dora do not go together: keep one");
        if (embedding_adapter_ || head_adapter_)
            throw Error("lora.init_lora_weights=pissa is not supported for " +
                        (embedding_adapter_ ? embedding : head) +
                        " (supported: linears of the layers): leave it out of lora.target_modules");
    }
    if (options_.init.is_loftq() && lora.use_dora)
        throw Error("lora.init_lora_weights=loftq and lora.use_dora do not go together: keep one");
    for (const auto& [path, linear] : model_.linears_) {
        if (const auto adapter = adapter_of(path)) {
            adapted_.emplace(linear, *adapter);
            if (options_.init.is_pissa()) take_from(path, adapter->rank);
        }
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

void Decoder::Loader::take_from(const std::string& path, std::int64_t rank) {
    const std::string name = path + ".weight";
    const Shape& shape = files_.at(name).shape;
    if (rank > std::min(shape[0], shape[1]))
        throw Error("lora.init_lora_weights=pissa: rank " + std::to_string(rank) + " of " + path +
                    " is more than its weight " + shape.to_string() + " has: lower it");
    taken_from_.insert(name);
}

void Decoder::Loader::attach_adapters() {
    const LoraSettings& lora = *model_.lora_;
    // A card's packed B has the scale in it.
    std::map<const Linear*, const Projection*> packed;
    for (const Packing& p : projections_)
        for (const Linear& linear : p.projection->parts)
            packed[&linear] = p.projection->packed ? p.projection : nullptr;
    std::uint32_t module = 0;
    for (auto& [path, linear] : model_.linears_) {
        ++module;  // numbers every place, adapted or not: the key of its dropout mask
        const auto adapter = adapted_.find(linear);
        if (adapter == adapted_.end()) continue;
        const Shape& shape = files_.at(path + ".weight").shape;
        attach_adapter(adapter->second, module, linear->lora, shape[1], shape[0],
                       {peft_key(path, kPeftA), peft_key(path, kPeftB)}, packed[linear]);
        if (lora.use_dora)
            wanted_.push_back({peft_key(path, kPeftMagnitude),
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
        attach_adapter(*embedding_adapter_, 0, model_.embedding_.lora, c.vocab_size, c.hidden_size,
                       {peft_key(embedding, kPeftEmbeddingA), peft_key(embedding, kPeftEmbeddingB)},
                       nullptr);
    if (head_adapter_)
        attach_adapter(*head_adapter_, module + 1, model_.head_.lora, c.hidden_size, c.vocab_size,
                       {peft_key(head, kPeftA), peft_key(head, kPeftB)}, nullptr);
    for (const Slot& slot : slots_) {
        if (!is_trained(slot)) continue;
        std::string key = peft_key(slot.name, "");
        const bool inside = has_adapter(module_of(slot));
        if (inside) key.insert(key.rfind('.'), ".base_layer");
        start_of_.emplace(key, slot.stored);
        wanted_.push_back({key, slot.stored->shape, slot.decay, slot.place, slot.gradient});
    }
    if (trains_tokens()) {
        const auto rows = static_cast<std::int64_t>(lora.trainable_token_indices.size());
        wanted_.push_back({peft_key(embedding, kPeftTokens),
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
    if (options_.trained == Trained::nothing && !lora.use_dora) place_row_adapters();
}

bool Decoder::Loader::has_adapter(const std::string& path) const {
    return std::any_of(model_.linears_.begin(), model_.linears_.end(), [&](const auto& linear) {
        return linear.first == path && adapted_.contains(linear.second);
    });
}

void Decoder::Loader::attach_adapter(const ModuleAdapter& adapter, std::uint32_t module,
                                     std::optional<LoraAdapter>& lora, std::int64_t in,
                                     std::int64_t out, const std::array<std::string, 2>& keys,
                                     const Projection* packed) {
    lora.emplace();
    lora->scaling = static_cast<float>(adapter.scaling);
    lora->dropout = static_cast<float>(model_.lora_->lora_dropout);
    lora->module = module;
    wanted_.push_back({keys[0], {adapter.rank, in}, true, &lora->A, &lora->A_gradient});
    wanted_.push_back({keys[1],
                       {out, adapter.rank},
                       true,
                       &lora->B,
                       &lora->B_gradient,
                       packed != nullptr ? lora->scaling : 1});
    if (packed == nullptr) return;
    for (std::size_t w = wanted_.size() - 2; w < wanted_.size(); ++w)
        wanted_[w].streamed = packed->streamed;
}

// A below and B behind the packed weights.
void Decoder::Loader::place_adapters(Projection& projection) {
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
        linear.lora->B = group.B.slice_rows(begin, end).slice_columns(first, first + group.rank);
        group.parts.push_back({begin, end, linear.lora->module, {}, {}});
    }
}

// What DoRA makes of magnitudes, each of which stands behind its module's A and B: of a projection's
// linears end to end.
void Decoder::Loader::place_dora_scales() {
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
            m.dora = {linear.weight, A, B, lora.scaling, m.master, lora.dora_scale, lora.dora_norm};
            if (linear.quantized) place_dora_base(m, linear);
        }
    }
    model_.buffers_.push_back(std::move(buffer));
}

// What the card's adapters add their gradients to; they are allocated after the places.
void Decoder::Loader::link_gradients() {
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
double Decoder::Loader::rate_factor(const Wanted& wanted) const {
    return wanted.name.ends_with(kPeftB) || (options_.lora && wanted.shape.rank() == 1)
               ? options_.b_rate_factor
               : 1;
}

void Decoder::Loader::place_taken_out() {
    std::int64_t bytes = 0;
    std::map<std::string, std::size_t> index;
    for (std::size_t i = 0; i < model_.parameters_.size() && !taken_from_.empty(); ++i)
        index.emplace(model_.parameters_[i].name, i);
    for (const auto& [path, linear] : model_.linears_) {
        const std::string weight = path + ".weight";
        if (!taken_from_.contains(weight)) continue;
        const std::size_t i = index.at(peft_key(path, kPeftA));
        model_.taken_out_.push_back(
            {i, {}, {}, &files_.at(weight), linear->weight, adapted_.at(linear).scaling});
        for (const std::size_t part : {i, i + 1})
            bytes += bytes_of(model_.parameters_[part].master.shape(), DType::f32);
    }
    Buffer buffer(model_.device_, bytes, Purpose::adapter);
    std::int64_t offset = 0;
    for (TakenOut& taken : model_.taken_out_) {
        for (const auto& [tensor, part] :
             {std::pair{&taken.A, taken.parameter}, std::pair{&taken.B, taken.parameter + 1}}) {
            const Shape& shape = model_.parameters_[part].master.shape();
            *tensor = buffer.tensor(DType::f32, shape, offset);
            offset += bytes_of(shape, DType::f32);
        }
    }
    model_.buffers_.push_back(std::move(buffer));
}

// A of a module stands before its B, whose master was cleared.
void Decoder::Loader::initialise_adapters(WeightUpload& upload) {
    for (std::size_t i = 0; i < model_.parameters_.size(); ++i) {
        const Parameter& parameter = model_.parameters_[i];
        const auto start = start_of_.find(parameter.name);
        if (start != start_of_.end()) {
            upload.values(*start->second, parameter.master);
            continue;
        }
        if (options_.init.is_pissa() && parameter.name.ends_with(kPeftA)) continue;
        if (parameter.name.ends_with(kPeftTokens)) {
            HostTensor rows(setup_.stream, parameter.master, false);
            read_rows(files_.at(std::string(model_.config_.family->tensors.embedding) + ".weight"),
                      model_.lora_->trainable_token_indices, rows.tensor().data<float>());
            rows.write();
            continue;
        }
        if (parameter.name.ends_with(kPeftB) || parameter.name.ends_with(kPeftEmbeddingA)) continue;
        if (parameter.name.ends_with(kPeftEmbeddingB)) {
            HostTensor b(setup_.stream, parameter.master, false);
            initialise_embedding_lora(options_.seed, i, b.tensor());
            b.write();
            continue;
        }
        if (parameter.dora) {  // the rows begin as long as they are
            refresh_dora(setup_.stream, parameter);
            cast(setup_.stream, parameter.dora->norm, parameter.master);
            continue;
        }
        if (options_.init.is_loftq() && initialise_loftq(i)) continue;
        HostTensor a(setup_.stream, parameter.master, false);
        HostTensor b(setup_.stream, model_.parameters_[i + 1].master);
        initialise_lora(options_.init.is_loftq() ? LoraInit::Kind::kaiming : options_.init.kind,
                        options_.seed, i, a.tensor(), b.tensor());
        a.write();
        b.write();
    }
    if (options_.init.is_pissa()) initialise_pissa();
}

bool Decoder::Loader::initialise_loftq(std::size_t parameter) {
    const std::string& key = model_.parameters_[parameter].name;
    const std::string path =
        key.substr(kPeftPrefix.size(), key.size() - kPeftPrefix.size() - kPeftA.size());
    const StoredTensor* const weight = files_.find(path + ".weight");
    if (weight == nullptr || four_bit_module(*model_.config_.family, *weight).empty()) return false;
    if (weight->four_bit != nullptr)
        throw Error("lora.init_lora_weights=loftq begins with what quantising takes away: " + path +
                    " is in 4 bits already; give the model that it was made from, with "
                    "load_in_4bit=true");
    GARAM_CHECK(options_.quantize.has_value(), "LoftQ needs a base that is quantised");
    if (is_skipped(*options_.quantize, path)) return false;
    HostTensor a(setup_.stream, model_.parameters_[parameter].master, false);
    HostTensor b(setup_.stream, model_.parameters_[parameter + 1].master);
    const std::int64_t rank = a.tensor().extent(0);
    if (rank > std::min(weight->shape[0], weight->shape[1]))
        throw Error("lora.init_lora_weights=loftq: rank " + std::to_string(rank) + " of " + path +
                    " is more than its weight " + weight->shape.to_string() + " has: lower it");
    HostProducts products;
    loftq_factors(products, *weight, *options_.quantize, LoraTargets(*model_.lora_).scaling(path),
                  options_.seed, parameter, a.tensor(), b.tensor());
    a.write();
    b.write();
    return true;
}

void Decoder::Loader::initialise_pissa() {
    HostProducts products;
    for (const TakenOut& taken : model_.taken_out_) {
        std::vector<float> values(static_cast<std::size_t>(taken.weight->shape.elements()));
        const Tensor w(values.data(), DType::f32, taken.weight->shape, DeviceKind::cpu);
        read_tensor(*taken.weight, values.data());
        HostTensor a(setup_.stream, taken.A, false);
        HostTensor b(setup_.stream, taken.B, false);
        pissa_factors(products, w, taken.scaling, options_.init.iterations, model_.compute_,
                      options_.seed, taken.parameter, a.tensor(), b.tensor());
        a.write();
        b.write();
        cast(setup_.stream, taken.A, model_.parameters_[taken.parameter].master);
        cast(setup_.stream, taken.B, model_.parameters_[taken.parameter + 1].master);
    }
    setup_.stream.synchronize();
    model_.take_out();
}

}  // namespace garam
