// How a Decoder is made: which tensors it needs, where they lie, what is trained. Its parts:
//   decoder_weights.cpp         what the base needs; each kind of memory, allocated once and filled
//   decoder_loader_quantized.cpp  which linears are quantised, and where codes and decoded values lie
//   decoder_loader_adapter.cpp  what an adapter adds: its tensors, where they lie, where they begin
#pragma once

#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "garam/models/adapter_targets.h"
#include "garam/models/decoder.h"
#include "garam/models/quantized_base.h"
#include "garam/models/weight_upload.h"
#include "garam/runtime/transfer.h"

namespace garam {

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

    void load();

  private:
    // Linears that read one input.
    struct Packing {
        Projection* projection;
        std::int64_t in;
        std::vector<std::int64_t> outs;  // of its parts
        bool bias;
        std::vector<std::size_t> weights;  // slots of the parts' weights
        std::size_t place = 0;             // among the projections of its block
        bool is_quantized = false;         // one of its parts is
        bool is_streamed = false;          // it is decoded when a pass needs it
    };
    // A weight of the base.
    struct Slot {
        std::string name;
        const StoredTensor* stored;
        Tensor* place;
        Tensor* gradient;
        bool decay;
        Linear* linear = nullptr;               // of a layer, whose weight it is
        std::optional<QuantizedLayout> layout;  // of a weight that is quantised
        bool is_to_quantize = false;            // … and is not in the file
    };
    // A tensor to train, or of an adapter.
    struct Wanted {
        std::string name;
        Shape shape;
        bool decay;
        Tensor* place;  // where the model computes with it
        Tensor* gradient;
        float factor = 1;           // of the place's values
        bool is_of_tokens = false;  // its places are rows of the embedding
        bool is_magnitude = false;  // of DoRA: the pass reads the master
        int streamed = -1;      // its place is in the memory of this source of the weight stream
        Tensor row_place = {};  // … and there is another, for single rows (Projection::row_A)
    };

    // The queue that fills memory, and what brings values there.
    struct Filling {
        Filling(Device& device, std::int64_t scratch)
            : setup(device, scratch), upload(setup.stream) {}
        SetupStream setup;
        WeightUpload upload;
    };

    // What the base needs.
    void gather_weights();
    void gather_attention(const std::string& layer, const DecoderConfig::Layer& own,
                          SelfAttention& attention);
    void gather_mlp(const std::string& layer, GatedMlp& mlp);
    void need(const std::string& name, const Shape& shape, Tensor* place, Tensor* gradient);
    void need(const std::string& name, const StoredTensor& stored, const Shape& shape,
              Tensor* place, Tensor* gradient);
    void need_projection(Projection& projection, std::int64_t in, bool bias,
                         const std::vector<std::pair<std::string, std::int64_t>>& linears);
    void need_norm(const std::string& path, std::int64_t width, RmsNorm& norm);
    void need_layer_norm(const std::string& layer, std::string_view name, RmsNorm& norm);

    // Where its weights lie.
    static std::int64_t bytes_of(const Shape& shape, DType dtype) {
        return align_up(shape.elements() * static_cast<std::int64_t>(size_of(dtype)));
    }
    bool in_place(const Slot& slot) const;
    void pack_projections();
    bool is_packed(const Packing& p) const;
    static std::int64_t out_of(const Packing& p) {
        return std::accumulate(p.outs.begin(), p.outs.end(), std::int64_t{0});
    }
    Shape packed_shape(const Packing& p) const {
        return {out_of(p) + p.projection->tail, p.in + p.projection->tail};
    }
    void place_weights();
    void train_weights();

    // What of it is quantised.
    void find_quantized();
    void choose_layout(Slot& slot) const;
    void choose_resident();
    void place_codes();
    void make_slots();
    void describe_streamed(const Packing& p, const Tensor& matrix);
    Buffer staging(bool of_values) const;
    static DType dtype_to_quantize(const StoredTensor& stored);
    QuantizedMatrix mapped_codes(const Slot& slot) const;
    std::int64_t quantizing_scratch() const;
    void fill_quantized(const Slot& slot, const Buffer& codes, const Buffer& values, Filling& to);
    static void read_codes(const StoredTensor& stored, const QuantizedMatrix& matrix,
                           WeightUpload& upload);
    void place_row_adapters();
    void place_dora_base(Parameter& magnitude, const Linear& linear);

    // What an adapter adds.
    bool saves(std::string_view path) const;
    bool trains_tokens() const {
        return options_.lora && !options_.lora->trainable_token_indices.empty();
    }
    // Beside an adapter: a bias, or of a module to save.
    bool is_trained(const Slot& slot) const { return trained_.contains(slot.name); }
    static std::string module_of(const Slot& slot) {
        return slot.name.substr(0, slot.name.rfind('.'));
    }
    void find_adapters();
    bool has_adapter(const std::string& path) const;
    void attach_adapters();
    void attach_adapter(const ModuleAdapter& adapter, std::uint32_t module,
                        std::optional<LoraAdapter>& lora, std::int64_t in, std::int64_t out,
                        const std::array<std::string, 2>& keys, const Projection* packed);
    void place_adapters(Projection& projection);
    void place_dora_scales();
    void link_gradients();
    // PiSSA's: the weight is made by its adapter's start.
    bool is_taken_from(const Slot& slot) const { return taken_from_.contains(slot.name); }
    void take_from(const std::string& path, std::int64_t rank);
    void place_taken_out();

    // What is trained: masters, gradients, and the places that compute with them.
    double rate_factor(const Wanted& wanted) const;
    std::vector<std::int64_t> master_offsets() const;
    void allocate_parameters();
    void tie_head();

    void make_rotary_tables();
    void make_rotary_tables(const RopeConfig& rope, RotaryTables& tables);

    // The values.
    void fill();
    void initialise_adapters(WeightUpload& upload);
    void initialise_pissa();
    // Of A, which is that parameter, and its B; false where the module is not quantised.
    bool initialise_loftq(std::size_t parameter);

    Decoder& model_;
    const ModelFiles& files_;
    const Options& options_;
    const bool dry_;
    const bool card_;  // places are those of a card
    SetupStream setup_;
    Tensor dora_rows_;  // room for rows of a quantised weight
    bool tied_ = false;
    std::vector<Packing> projections_;
    std::size_t in_block_ = 0;  // projections of the block that is gathered
    std::map<const Linear*, ModuleAdapter> adapted_;
    std::optional<ModuleAdapter> embedding_adapter_, head_adapter_;
    std::set<std::string> trained_;                        // beside an adapter: names of the base
    std::set<std::string> taken_from_;                     // with PiSSA: weights with an adapter
    std::map<std::string, const StoredTensor*> start_of_;  // of these, by parameter
    std::vector<Slot> slots_;
    std::vector<Wanted> wanted_;
    std::set<std::string> used_;
};

}  // namespace garam
