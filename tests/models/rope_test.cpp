#include "garam/models/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "garam/models/decoder_config.h"
#include "testing/golden_batch.h"
#include "testing/test_data.h"

namespace garam {
namespace {

// Bit for bit where the reference data states the frequencies.
TEST(Rope, FrequenciesOfTheReference) {
    const auto families = testing::data_dir() / "golden" / "families";
    GARAM_REQUIRE_DATA("golden/families");
    int checked = 0;
    for (const std::string& name : testing::folders_in(families)) {
        DecoderConfig config;
        const Json json = Json::parse_file(families / name / "config.json");
        if (json.at("model_type").string() != "llama") continue;
        config = DecoderConfig::from_json(json, name);
        const testing::GoldenFile golden(families / name / "golden.safetensors");
        const std::vector<float> got = rope_inverse_frequencies(config.rope, config.head_dim);
        const std::vector<float>& want = golden.at("rope.inv_freq").values;
        ASSERT_EQ(got.size(), want.size());
        for (std::size_t i = 0; i < got.size();
             ++i)  // 2 units in the last place: pow of the library
            EXPECT_NEAR(got[i], want[i], 2.4e-7f * want[i]) << name << " " << i;
        ++checked;
    }
    EXPECT_GT(checked, 0);
}

TEST(Rope, TablesHoldCosineAndSineOfTheAngle) {
    const auto device = make_cpu_device();
    const OwnedTensor cos(*device, DType::f32, {300, 3}, Purpose::weights);
    const OwnedTensor sin(*device, DType::f32, {300, 3}, Purpose::weights);
    fill_rope_tables({1.0f, 0.25f, 1e-4f}, cos.tensor, sin.tensor);
    EXPECT_FLOAT_EQ(cos.tensor.data<float>()[299 * 3], std::cos(299.0f));
    EXPECT_FLOAT_EQ(sin.tensor.data<float>()[299 * 3 + 1], std::sin(299.0f * 0.25f));
    EXPECT_EQ(cos.tensor.data<float>()[0], 1);
    EXPECT_EQ(sin.tensor.data<float>()[2], 0);
}

}  // namespace
}  // namespace garam
