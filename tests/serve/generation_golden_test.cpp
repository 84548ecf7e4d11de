// Greedy text against Transformers. The smallest margin between the two likeliest tokens in these files is
// 0.0042, ten times what another order of fp32 summation moves a logit, so ids are exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "garam/core/error.h"
#include "garam/io/peft_adapter.h"
#include "garam/serve/generation.h"
#include "garam/serve/session.h"
#include "testing/cards.h"
#include "testing/golden_batch.h"
#include "testing/temp_dir.h"
#include "testing/test_data.h"

namespace garam {
namespace {

using testing::card_name;
using testing::cards;
using testing::data_dir;
using testing::GoldenFile;

std::vector<std::int32_t> ids_of(const GoldenFile& golden, const std::string& name) {
    const std::vector<std::int64_t>& values = golden.at(name).integers;
    return {values.begin(), values.end()};
}

class GreedyGolden : public ::testing::TestWithParam<DeviceProfile> {};
GARAM_FOR_CPU_AND_CARDS(GreedyGolden);

TEST_P(GreedyGolden, Stories260K) {
    GARAM_REQUIRE_DATA("golden/stories260K-hf");
    if (GetParam().is_cuda() && GetParam().shared_bytes != cards().at(0).shared_bytes)
        GTEST_SKIP() << "a session takes the card as it is";
    const std::string device =
        GetParam().is_cuda() ? "cuda:" + std::to_string(GetParam().ordinal) : "cpu";
    Session session(
        {.model = data_dir() / "golden/stories260K-hf", .device = device, .dtype = "f32"});
    const GoldenFile golden(data_dir() / "golden/stories260K-hf/greedy_golden.safetensors");
    const std::vector<std::int32_t> ids = ids_of(golden, "ids");
    ASSERT_EQ(ids.size(), 258u);
    // Of an empty text the tokenizer makes the one BOS that the reference began with.
    const std::vector<std::int32_t> prompt =
        session.tokenizer().encode_ids("", {.add_special_tokens = true});
    ASSERT_EQ(prompt, std::vector<std::int32_t>(ids.begin(), ids.begin() + 1));

    Sequence sequence(session);
    std::string heard;
    const Generation result =
        generate(sequence, prompt, {.max_new_tokens = 257, .eos_ids = session.eos_ids()},
                 [&](std::string_view piece) { heard += piece; });
    EXPECT_EQ(result.ids, std::vector<std::int32_t>(ids.begin() + 1, ids.end()));
    EXPECT_EQ(result.finish_reason, FinishReason::length);
    // The file ends with the line end that its program printed.
    std::string text = testing::read_file(data_dir() / "stories260K/greedy_257.txt");
    text.pop_back();
    EXPECT_EQ(result.text, text);
    EXPECT_EQ(heard, text);
}

// The families' folders hold no tokenizer: decoding is greedy by hand over the decoder.
using Case = std::tuple<std::string, DeviceProfile>;

class FamilyGreedy : public ::testing::TestWithParam<Case> {};

std::vector<std::int32_t> decode_greedily(const DeviceProfile& profile, const ModelFiles& files,
                                          const std::optional<PeftAdapter>& adapter,
                                          const GoldenFile& golden) {
    const std::unique_ptr<Device> device = make_device(profile);
    Arena arena(*device, std::int64_t{64} << 20);
    Meter meter;
    Stream stream(*device, arena, meter);
    Decoder::Options options;
    if (adapter) options.lora = adapter->settings;
    Decoder decoder(*device, files, options);
    if (adapter) decoder.load_adapter(*adapter, "golden");
    const std::vector<std::int32_t> prompt = ids_of(golden, "greedy_prompt");
    const std::size_t count = golden.at("greedy_ids").integers.size();
    KvCache cache = decoder.make_cache(static_cast<std::int64_t>(prompt.size() + count));
    std::vector<float> logits;
    decoder.decode(stream, cache, prompt, logits);
    std::vector<std::int32_t> ids;
    for (;;) {
        ids.push_back(greedy_choice(logits));
        if (ids.size() == count) return ids;
        decoder.decode(stream, cache, {&ids.back(), 1}, logits);
    }
}

TEST_P(FamilyGreedy, IdsAreExact) {
    const auto& [name, profile] = GetParam();
    const std::filesystem::path folder = data_dir() / "golden/families" / name;
    const GoldenFile golden(folder / "golden.safetensors");
    const ModelFiles files = ModelFiles::open(folder);
    try {
        DecoderConfig::from_json(files.config(), folder.string());
    } catch (const Error& error) {
        GTEST_SKIP() << name << ": " << error.what();
    }
    EXPECT_EQ(decode_greedily(profile, files, std::nullopt, golden), ids_of(golden, "greedy_ids"));
    PeftAdapter adapter;
    if (std::filesystem::exists(folder / "adapter")) {
        adapter = read_peft_adapter(folder / "adapter");
    } else {
        adapter.settings = {.r = 4, .lora_alpha = 8, .target_modules = {"all-linear"}};
        for (const auto& [key, tensor] : golden.tensors()) {
            if (key.starts_with("base_model.model."))
                adapter.tensors.push_back({key, tensor.shape, tensor.values});
        }
    }
    EXPECT_EQ(decode_greedily(profile, files, adapter, golden), ids_of(golden, "lora.greedy_ids"));
}

std::string test_name(const ::testing::TestParamInfo<Case>& info) {
    std::string name = std::get<0>(info.param);
    for (char& c : name)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    const DeviceProfile& profile = std::get<1>(info.param);
    return profile.is_cuda() ? name + "_" + card_name(profile) : name;
}

INSTANTIATE_TEST_SUITE_P(
    Golden, FamilyGreedy,
    ::testing::Combine(::testing::ValuesIn(testing::folders_in(data_dir() / "golden/families")),
                       ::testing::Values(detect_cpu_profile())),
    test_name);
INSTANTIATE_TEST_SUITE_P(
    Cuda, FamilyGreedy,
    ::testing::Combine(::testing::ValuesIn(testing::folders_in(data_dir() / "golden/families")),
                       ::testing::ValuesIn(testing::card_profiles())),
    test_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FamilyGreedy);

}  // namespace
}  // namespace garam
