// docs/support.md is what the table of families and the goldens say. GARAM_WRITE_DOCS=1 writes it anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "garam/models/decoder_config.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

using Family = DecoderFamily;

std::string join(const std::vector<std::string>& parts, const char* between) {
    std::string text;
    for (const std::string& part : parts)
        text += (text.empty() ? "" : between) + part;
    return text;
}

std::string norms_of(const Family& family) {
    std::vector<std::string> parts;
    if (family.pre_norms()) parts.emplace_back("before");
    if (family.end_norms()) parts.emplace_back("after");
    std::string text = join(parts, " and ");
    if (family.norm_weights_less_one) text += ", 1 + w";
    if (family.qk_norm == Family::QkNorm::heads) text += "; q, k by head";
    if (family.qk_norm == Family::QkNorm::width) text += "; q, k whole";
    return text;
}

std::string biases_of(const Family& family) {
    switch (family.biases) {
        case Family::Biases::none:
            return "none";
        case Family::Biases::by_config:
            return "by config";
        case Family::Biases::qkv:
            return "q, k, v";
    }
    return "";
}

std::string windows_of(const Family& family) {
    const std::string switched = family.use_sliding_window ? " if use_sliding_window" : "";
    switch (family.windows) {
        case Family::Windows::none:
            return "none";
        case Family::Windows::all_layers:
            return "all layers" + switched;
        case Family::Windows::upper_layers:
            return "layers from max_window_layers on" + switched;
        case Family::Windows::periodic:
            return "all but each " + std::to_string(family.window_period) +
                   (family.window_period == 2 ? "nd" : "th") + " layer, or layer_types";
        case Family::Windows::unturned_layers:
            return "layers without RoPE" + switched;
    }
    return "";
}

std::string rope_of(const Family& family) {
    std::string text = "all layers";
    if (family.rotary == Family::Rotary::no_rope_layers) text = "by no_rope_layers";
    if (family.rotary == Family::Rotary::windowed_layers) text = "layers with a window";
    if (family.partial_rotary) text += ", part of a head";
    if (family.local_rope) text += ", a base of their own under a window";
    return text;
}

std::string else_of(const Family& family) {
    std::vector<std::string> parts;
    if (!family.tensors.qkv_proj.empty()) parts.emplace_back("fused qkv, gate_up");
    if (family.tensors.layers != TensorNames{}.layers) parts.emplace_back("names of its own");
    if (family.scales_embedding) parts.emplace_back("scaled embedding");
    if (family.query_pre_attn_scalar) parts.emplace_back("scale of scores");
    if (family.soft_caps) parts.emplace_back("soft caps");
    if (family.multipliers) parts.emplace_back("multipliers");
    if (family.activation != "silu") parts.emplace_back("tanh GELU");
    return join(parts, ", ");
}

// The goldens' folders by model_type.
std::map<std::string, std::vector<std::string>> goldens() {
    std::map<std::string, std::vector<std::string>> by_type;
    const auto families = testing::data_dir() / "golden" / "families";
    for (const std::string& name : testing::folders_in(families)) {
        const Json config = Json::parse_file(families / name / "config.json");
        by_type[config.at("model_type").string()].push_back(name);
    }
    return by_type;
}

std::string page() {
    std::ostringstream out;
    out << "# Models that garam computes\n"
           "This page is written by `tests/models/support_table_test.cpp` from the table of "
           "families "
           "(`src/garam/models/decoder_family.cpp`)\n"
           "and the reference data, and the test fails when it is not what they say.\n\n"
           "Logits, loss, the gradient of every weight and of an adapter on every linear, greedy "
           "ids "
           "and merging of each family are\nheld against Transformers and PEFT by the goldens "
           "named (`golden/families/`).\n\n"
           "| family | model_type | goldens |\n|---|---|---|\n";
    const auto tested = goldens();
    for (const Family& family : decoder_families()) {
        std::vector<std::string> types, names;
        for (const std::string_view type : family.model_types) {
            if (type.empty()) continue;
            types.emplace_back(type);
            const auto found = tested.find(std::string(type));
            if (found == tested.end()) continue;
            names.insert(names.end(), found->second.begin(), found->second.end());
        }
        out << "| " << family.name << " | " << join(types, ", ") << " | " << join(names, ", ")
            << " |\n";
    }
    out << "\n## What sets them apart\n"
           "| model_type | norms | biases | windows | RoPE in | else "
           "|\n|---|---|---|---|---|---|\n";
    for (const Family& family : decoder_families()) {
        out << "| " << family.model_types.front() << " | " << norms_of(family) << " | "
            << biases_of(family) << " | " << windows_of(family) << " | " << rope_of(family) << " | "
            << else_of(family) << " |\n";
    }
    const auto ropes = testing::source_dir() / "tests" / "models" / "rope_goldens";
    out << "\nRoPE scaling: default, linear and llama3 (in the goldens above), dynamic, yarn and "
           "longrope "
           "(`tests/models/rope_goldens/`: "
        << join(testing::folders_in(ropes), ", ")
        << ").\n\n"
           "Mixtures of experts, vision and audio towers, ALiBi, other model types and other RoPE "
           "types are refused by name.\n";
    return out.str();
}

TEST(SupportTable, TellsWhatTheTableAndTheGoldensSay) {
    GARAM_REQUIRE_DATA("golden/families");
    const std::filesystem::path file = testing::source_dir() / "docs" / "support.md";
    const std::string wanted = page();
    if (std::getenv("GARAM_WRITE_DOCS") != nullptr) std::ofstream(file) << wanted;
    EXPECT_EQ(testing::read_file(file), wanted) << "write it anew with GARAM_WRITE_DOCS=1";
}

}  // namespace
}  // namespace garam
