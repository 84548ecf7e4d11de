#include "random_model.h"

#include <fstream>
#include <utility>
#include <vector>

#include "garam/core/error.h"
#include "garam/core/json.h"
#include "garam/core/parallel.h"
#include "garam/core/philox.h"
#include "garam/io/safetensors_writer.h"

namespace garam::bench {
namespace {

const std::vector<ModelShape>& shapes() {
    static const std::vector<ModelShape> all = {
        {"exaone-2.4b", 2560, 30, 32, 8, 80, 7168, 102400, 32768, 1e6, true},
        {"llama-8b", 4096, 32, 32, 8, 128, 14336, 128256, 131072, 5e5, false},
        {"smollm2-135m", 576, 30, 9, 3, 64, 1536, 49152, 8192, 1e5, true},
        {"tiny", 128, 2, 4, 2, 32, 256, 1024, 4096, 1e4, true},
    };
    return all;
}

std::vector<SafetensorsWriter::Entry> entries_of(const ModelShape& s) {
    std::vector<SafetensorsWriter::Entry> entries;
    const auto add = [&](const std::string& name, const Shape& shape) {
        entries.push_back({name, DType::bf16, shape});
    };
    add("model.embed_tokens.weight", {s.vocab, s.hidden});
    for (std::int64_t l = 0; l < s.layers; ++l) {
        const std::string layer = "model.layers." + std::to_string(l) + ".";
        add(layer + "input_layernorm.weight", {s.hidden});
        add(layer + "self_attn.q_proj.weight", {s.heads * s.head_dim, s.hidden});
        add(layer + "self_attn.k_proj.weight", {s.kv_heads * s.head_dim, s.hidden});
        add(layer + "self_attn.v_proj.weight", {s.kv_heads * s.head_dim, s.hidden});
        add(layer + "self_attn.o_proj.weight", {s.hidden, s.heads * s.head_dim});
        add(layer + "post_attention_layernorm.weight", {s.hidden});
        add(layer + "mlp.gate_proj.weight", {s.ffn, s.hidden});
        add(layer + "mlp.up_proj.weight", {s.ffn, s.hidden});
        add(layer + "mlp.down_proj.weight", {s.hidden, s.ffn});
    }
    add("model.norm.weight", {s.hidden});
    if (!s.tied) add("lm_head.weight", {s.vocab, s.hidden});
    return entries;
}

void write_config(const ModelShape& s, const std::filesystem::path& file) {
    const Json config = Json::Object{{"model_type", "llama"},
                                     {"architectures", Json::Array{Json("LlamaForCausalLM")}},
                                     {"hidden_size", s.hidden},
                                     {"intermediate_size", s.ffn},
                                     {"num_hidden_layers", s.layers},
                                     {"num_attention_heads", s.heads},
                                     {"num_key_value_heads", s.kv_heads},
                                     {"head_dim", s.head_dim},
                                     {"vocab_size", s.vocab},
                                     {"max_position_embeddings", s.positions},
                                     {"rms_norm_eps", 1e-5},
                                     {"rope_theta", s.rope_theta},
                                     {"hidden_act", "silu"},
                                     {"attention_bias", false},
                                     {"mlp_bias", false},
                                     {"tie_word_embeddings", s.tied},
                                     {"bos_token_id", std::int64_t{1}},
                                     {"eos_token_id", std::int64_t{2}}};
    std::ofstream(file) << config.dump(2) << '\n';
}

}  // namespace

std::int64_t ModelShape::linear_weights() const {
    const std::int64_t attention = hidden * head_dim * (2 * heads + 2 * kv_heads);
    return layers * (attention + 3 * hidden * ffn);
}

const ModelShape& model_shape(const std::string& name) {
    std::string known;
    for (const ModelShape& shape : shapes()) {
        if (shape.name == name) return shape;
        known += (known.empty() ? "" : ", ") + shape.name;
    }
    throw Error("--shape: \"" + name + "\" is not one of " + known);
}

void make_random_model(const ModelShape& shape, const std::filesystem::path& folder) {
    const std::filesystem::path weights = folder / "model.safetensors";
    std::filesystem::create_directories(folder);
    write_config(shape, folder / "config.json");
    if (std::filesystem::exists(weights)) return;

    constexpr std::int64_t kBlock = 32 << 20;  // elements
    constexpr std::int64_t kPiece = 1 << 16;
    std::vector<bfloat16> block(kBlock);
    parallel_for(kBlock / kPiece, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t piece = begin; piece < end; ++piece) {
            Random random(7, static_cast<std::uint64_t>(piece));
            for (std::int64_t i = 0; i < kPiece; ++i)
                block[static_cast<std::size_t>(piece * kPiece + i)] =
                    bfloat16(static_cast<float>(0.02 * random.normal()));
        }
    });
    const std::vector<SafetensorsWriter::Entry> entries = entries_of(shape);
    SafetensorsWriter writer(weights, entries);
    std::vector<bfloat16> values;
    std::int64_t offset = 0;
    for (const SafetensorsWriter::Entry& entry : entries) {
        const std::int64_t count = entry.shape.elements();
        values.resize(static_cast<std::size_t>(count));
        if (entry.shape.rank() == 1) {
            std::fill(values.begin(), values.end(), bfloat16(1.0f));  // a norm's weight
        } else {
            for (std::int64_t at = 0; at < count;) {
                const std::int64_t run = std::min(count - at, kBlock - offset);
                std::copy_n(block.begin() + offset, run, values.begin() + at);
                at += run;
                offset = (offset + run) % kBlock;
            }
            offset = (offset + 977) % kBlock;
        }
        writer.write(entry.name, values.data(), entry.bytes());
    }
    writer.commit();
}

void make_empty_model(const ModelShape& shape, const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    write_config(shape, folder / "config.json");
    Json header;
    std::int64_t bytes = 0;
    for (const SafetensorsWriter::Entry& entry : entries_of(shape)) {
        Json::Array extents;
        for (int i = 0; i < entry.shape.rank(); ++i)
            extents.emplace_back(entry.shape[i]);
        header.set(entry.name,
                   Json::Object{{"dtype", "BF16"},
                                {"shape", std::move(extents)},
                                {"data_offsets", Json::Array{bytes, bytes + entry.bytes()}}});
        bytes += entry.bytes();
    }
    const std::string text = header.dump();
    const auto length = static_cast<std::uint64_t>(text.size());
    const std::filesystem::path file = folder / "model.safetensors";
    std::ofstream out(file, std::ios::binary);
    for (int byte = 0; byte < 8; ++byte)
        out.put(static_cast<char>(length >> (8 * byte)));
    out << text;
    out.close();
    std::filesystem::resize_file(file, 8 + length + static_cast<std::uint64_t>(bytes));
}

}  // namespace garam::bench
