// What of a Decoder's base is quantised: which linears, and where their codes and decoded values lie.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "garam/core/error.h"
#include "garam/io/gguf_architecture.h"
#include "garam/models/decoder_loader.h"
#include "garam/ops/dequantize.h"

namespace garam {

void Decoder::Loader::find_quantized() {
    if (options_.quantize && options_.trained == Trained::all_weights)
        throw Error(
            "load_in_4bit holds the base in 4 bits, but train.method=full trains it: keep "
            "one");
    if (options_.quantize && options_.init.is_pissa())
        throw Error(
            "lora.init_lora_weights=pissa makes weights of its own and does not go with "
            "load_in_4bit: keep one (supported beside it: true, gaussian, "
            "orthogonal, loftq)");
    if (options_.trained == Trained::all_weights) return;
    for (Slot& slot : slots_)
        choose_layout(slot);
    for (Packing& p : projections_)
        p.is_quantized = std::any_of(p.weights.begin(), p.weights.end(), [&](std::size_t weight) {
            return slots_[weight].layout.has_value();
        });
    if (card_) choose_resident();
}

void Decoder::Loader::choose_layout(Slot& slot) const {
    if (slot.linear == nullptr || is_trained(slot) || is_taken_from(slot)) return;
    const std::optional<QuantizedLayout> stored = stored_layout(*slot.stored);
    const bool in_four_bits = stored && is_four_bit(stored->matrix.format);
    if (!in_four_bits && options_.quantize && !is_skipped(*options_.quantize, module_of(slot))) {
        slot.layout = layout_of(*options_.quantize, slot.stored->shape);
        slot.is_to_quantize = true;
        return;
    }
    // The processor decodes GGUF's blocks once where it serves and has room: that is read faster.
    if (in_four_bits || card_ || !options_.own_weights) slot.layout = stored;
}

// Blocks spread over the depth of the model, so that those between have time to be decoded.
void Decoder::Loader::choose_resident() {
    std::vector<std::size_t> streamable;
    for (std::size_t p = 0; p < projections_.size(); ++p) {
        const std::vector<std::size_t>& weights = projections_[p].weights;
        if (std::all_of(weights.begin(), weights.end(),
                        [&](std::size_t weight) { return slots_[weight].layout.has_value(); }))
            streamable.push_back(p);
    }
    model_.streamable_projections_ = static_cast<std::int64_t>(streamable.size());
    if (options_.resident_projections >= model_.streamable_projections_) return;
    const std::size_t in_block = projections_.size() / model_.blocks_.size();
    const auto rank = [&](std::size_t p) {
        constexpr double kGolden = 0.6180339887498949;
        const std::size_t block = p / in_block;
        const double turns = static_cast<double>(block) * kGolden;
        return std::pair(turns - std::floor(turns), p);
    };
    std::sort(streamable.begin(), streamable.end(),
              [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
    const auto resident =
        static_cast<std::size_t>(std::max<std::int64_t>(options_.resident_projections, 0));
    for (std::size_t i = resident; i < streamable.size(); ++i)
        projections_[streamable[i]].is_streamed = true;
}

// Memory for the streamed: a slot for each place in a block.
void Decoder::Loader::make_slots() {
    std::vector<std::int64_t> bytes;
    for (const Packing& p : projections_) {
        if (!p.is_streamed) continue;
        bytes.resize(std::max(bytes.size(), p.place + 1));
        bytes[p.place] = std::max(bytes[p.place], bytes_of(packed_shape(p), model_.compute_));
    }
    if (bytes.empty()) return;
    Buffer buffer(model_.device_, std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}),
                  Purpose::weight_slots);
    clear(setup_.stream, buffer.tensor(DType::u8, {buffer.bytes()}));
    // Sources that leave zeros at the same places of a slot.
    std::vector<std::set<std::vector<std::int64_t>>> shapes(bytes.size());
    const auto shape_of = [&](const Packing& p) {
        std::vector<std::int64_t> shape = {p.in, p.projection->tail};
        for (std::size_t part = 0; part < p.outs.size(); ++part) {
            const auto adapter = adapted_.find(&p.projection->parts[part]);
            shape.push_back(p.outs[part]);
            shape.push_back(adapter == adapted_.end() ? 0 : adapter->second.rank);
        }
        return shape;
    };
    for (const Packing& p : projections_)
        if (p.is_streamed) shapes[p.place].insert(shape_of(p));
    for (const Packing& p : projections_) {
        if (!p.is_streamed) continue;
        std::int64_t offset = 0;
        for (std::size_t place = 0; place < p.place; ++place)
            offset += bytes[place];
        WeightStream::Source source;
        source.matrix = buffer.tensor(model_.compute_, packed_shape(p), offset);
        source.tail = p.projection->tail;
        source.slot = p.place;
        source.clears_tail = source.tail > 0 && shapes[p.place].size() > 1;
        Projection& projection = *p.projection;
        if (is_packed(p)) projection.packed = source.matrix;
        std::int64_t row = 0;
        for (std::size_t part = 0; part < p.outs.size(); ++part) {
            const std::int64_t end = row + p.outs[part];
            projection.parts[part].weight =
                source.matrix.slice_rows(row, end).slice_columns(0, p.in);
            row = end;
        }
        projection.streamed = model_.weight_stream_->add(std::move(source));
    }
    model_.buffers_.push_back(std::move(buffer));
}

// Codes that the CPU computes with, and those of what a card streams.
void Decoder::Loader::place_codes() {
    std::vector<Slot*> wanted;
    std::int64_t bytes = 0;
    const auto want = [&](Slot& slot) {
        slot.linear->quantized = mapped_codes(slot);
        if (slot.linear->quantized) {
            model_.mapped_bytes_ += static_cast<std::int64_t>(slot.stored->bytes);
            return;
        }
        wanted.push_back(&slot);
        bytes += slot.layout->bytes();
    };
    for (const Packing& p : projections_) {
        for (const std::size_t weight : p.weights)
            if (slots_[weight].layout && (!card_ || p.is_streamed)) want(slots_[weight]);
    }
    Buffer buffer(model_.device_, bytes, Purpose::quantized_weights);
    std::int64_t offset = 0;
    for (Slot* slot : wanted) {
        slot->linear->quantized = slot->layout->place(buffer, offset);
        offset += slot->layout->bytes();
    }
    model_.buffers_.push_back(std::move(buffer));
    for (const Packing& p : projections_) {
        if (!p.is_streamed) continue;
        for (const Linear& linear : p.projection->parts)
            model_.weight_stream_->source(p.projection->streamed).parts.push_back(linear.quantized);
    }
}

// The codes in the mapped file, where the CPU can read them as they lie.
QuantizedMatrix Decoder::Loader::mapped_codes(const Slot& slot) const {
    if (card_ || slot.is_to_quantize) return {};
    QuantizedMatrix matrix = quantized_view(*slot.stored);
    for (Tensor* tensor : {&matrix.codes, &matrix.absmax, &matrix.nested_absmax, &matrix.offset})
        if (*tensor)
            *tensor =
                Tensor(tensor->raw(), tensor->dtype(), tensor->shape(), model_.device_.kind());
    return matrix;
}

// Memory that a tensor passes through on its way, as much as one of them needs at most: of codes that are not
// kept, and of values to quantise.
Buffer Decoder::Loader::staging(bool of_values) const {
    std::int64_t bytes = 0;
    for (const Slot& slot : slots_) {
        if (!slot.layout) continue;
        if (of_values && slot.is_to_quantize)
            bytes = std::max(bytes, bytes_of(slot.stored->shape, dtype_to_quantize(*slot.stored)));
        if (!of_values && !slot.linear->quantized) bytes = std::max(bytes, slot.layout->bytes());
    }
    return Buffer(model_.device_, bytes, Purpose::weights);
}

// Of ops/dequantize.h: the scales in full, and a sum for each nested block of them.
std::int64_t Decoder::Loader::quantizing_scratch() const {
    std::int64_t bytes = 0;
    for (const Slot& slot : slots_) {
        if (!slot.layout || !slot.layout->is_double || !slot.is_to_quantize) continue;
        const std::int64_t blocks = slot.layout->matrix.blocks();
        bytes = std::max(bytes, 2 * align_up(4 * blocks));
    }
    return bytes;
}

// Nothing is lost on the way to the quantiser.
DType Decoder::Loader::dtype_to_quantize(const StoredTensor& stored) {
    return stored.type == StoredType::bf16 ? DType::bf16 : DType::f32;
}

void Decoder::Loader::fill_quantized(const Slot& slot, const Buffer& codes, const Buffer& values,
                                     Filling& to) {
    const StoredTensor& stored = *slot.stored;
    const QuantizedMatrix& kept = slot.linear->quantized;
    const QuantizedMatrix matrix = kept ? kept : slot.layout->place(codes, 0);
    if (!slot.is_to_quantize) {
        if (!dry_) check_finite(stored);
        read_codes(stored, matrix, to.upload);
    } else {
        const Tensor dense = values.tensor(dtype_to_quantize(stored), stored.shape);
        to.upload.values(stored, dense);
        quantize(to.setup.stream, dense, matrix);
    }
    if (!kept) dequantize(to.setup.stream, matrix, 0, slot.linear->weight);
}

void Decoder::Loader::read_codes(const StoredTensor& stored, const QuantizedMatrix& matrix,
                                 WeightUpload& upload) {
    const QuantizedMatrix from = stored_codes(stored);
    if (matrix.codes.raw() == from.codes.raw()) return;
    const auto send = [&](const Tensor& bytes, const Tensor& place) {
        if (place) upload.bytes(static_cast<const std::byte*>(bytes.raw()), place);
    };
    send(from.absmax, matrix.absmax);
    send(from.nested_absmax, matrix.nested_absmax);
    send(from.offset, matrix.offset);
    if (stored.permuted_heads == 0) return send(from.codes, matrix.codes);
    // Rows of GGUF are whole blocks.
    const auto row_bytes = static_cast<std::size_t>(from.codes.bytes() / from.rows);
    std::vector<std::byte> rows(stored.bytes);
    const std::int64_t head = from.rows / stored.permuted_heads;
    for (std::int64_t row = 0; row < from.rows; ++row)
        std::memcpy(rows.data() + static_cast<std::size_t>(row) * row_bytes,
                    stored.data + static_cast<std::size_t>(permuted_row(row, head)) * row_bytes,
                    row_bytes);
    upload.bytes(rows.data(), matrix.codes);
}

// A and sB of what is streamed, once more, where they stay: a slot has them only while its matrix is there.
void Decoder::Loader::place_row_adapters() {
    std::int64_t bytes = 0;
    for (const Packing& p : projections_) {
        const std::int64_t tail = p.projection->tail;
        if (!p.is_streamed || tail == 0) continue;
        bytes +=
            bytes_of({tail, p.in}, model_.compute_) + bytes_of({out_of(p), tail}, model_.compute_);
    }
    Buffer buffer(model_.device_, bytes, Purpose::adapter);
    std::int64_t offset = 0;
    const auto next = [&](const Shape& shape) {
        const Tensor tensor = buffer.tensor(model_.compute_, shape, offset);
        offset += bytes_of(shape, model_.compute_);
        clear(setup_.stream, tensor);
        return tensor;
    };
    std::map<const Tensor*, Tensor> row_places;  // by where the pass computes
    for (const Packing& p : projections_) {
        Projection& projection = *p.projection;
        if (!p.is_streamed || projection.tail == 0) continue;
        projection.row_A = next({projection.tail, p.in});
        projection.row_B = next({out_of(p), projection.tail});
        std::int64_t first = 0;
        for (std::size_t part = 0; part < projection.parts.size(); ++part) {
            Linear& linear = projection.parts[part];
            if (!linear.lora) continue;
            const std::int64_t rank = projection.lora.rank;
            const std::int64_t begin = projection.column(part);
            row_places[&linear.lora->A] = projection.row_A.slice_rows(first, first + rank);
            row_places[&linear.lora->B] = projection.row_B.slice_rows(begin, begin + p.outs[part])
                                              .slice_columns(first, first + rank);
            first += rank;
        }
    }
    for (Wanted& wanted : wanted_) {
        const auto place = row_places.find(wanted.place);
        if (place != row_places.end()) wanted.row_place = place->second;
    }
    model_.buffers_.push_back(std::move(buffer));
}

// Scales of DoRA over codes: rows are decoded some at a time.
void Decoder::Loader::place_dora_base(Parameter& magnitude, const Linear& linear) {
    constexpr std::int64_t kBytes = std::int64_t{4} << 20;
    if (!dora_rows_) {
        std::int64_t most = kBytes;
        for (const auto& [adapted, adapter] : adapted_)
            most = std::max(most, bytes_of({adapted->in_features()}, model_.compute_));
        model_.buffers_.emplace_back(model_.device_, most, Purpose::scratch);
        dora_rows_ = model_.buffers_.back().tensor(DType::u8, {most});
    }
    magnitude.dora->weight = {};
    magnitude.dora_base = linear.quantized;
    const std::int64_t in = linear.in_features();
    const std::int64_t rows =
        std::min(linear.out_features(), dora_rows_.bytes() / bytes_of({in}, model_.compute_));
    magnitude.decoded =
        Tensor(dora_rows_.raw(), model_.compute_, {rows, in}, model_.device_.kind());
}

}  // namespace garam
