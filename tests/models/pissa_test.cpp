#include "garam/models/pissa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "garam/core/philox.h"
#include "garam/models/gguf_export.h"
#include "models/decoder_harness.h"
#include "testing/cards.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

Tensor of(std::vector<float>& values, std::int64_t rows, std::int64_t columns) {
    return {values.data(), DType::f32, {rows, columns}, DeviceKind::cpu};
}

struct Started {
    std::int64_t out = 60, in = 90, r = 6;
    double scaling = 1.5;
    std::vector<float> w, rest, a, b;
    HostProducts products;

    explicit Started(DType place)
        : a(static_cast<std::size_t>(r * in)), b(static_cast<std::size_t>(out * r)) {
        Random random(3);
        for (std::int64_t e = 0; e < out * in; ++e)
            w.push_back(static_cast<float>(random.normal()));
        rest = w;
        pissa_factors(products, of(w, out, in), scaling, {}, place, 1, 0, of(a, r, in),
                      of(b, out, r));
        take_out(products, of(rest, out, in), scaling, of(a, r, in), of(b, out, r));
    }
};

TEST(Pissa, TheRestAndTheAdapterAreTheWeight) {
    for (const DType place : {DType::f32, DType::bf16}) {
        Started start(place);
        double squares = 0;
        double rest = 0;
        for (std::int64_t o = 0; o < start.out; ++o) {
            for (std::int64_t i = 0; i < start.in; ++i) {
                double sum = start.rest[static_cast<std::size_t>(o * start.in + i)];
                rest += sum * sum;
                for (std::int64_t k = 0; k < start.r; ++k)
                    sum += start.scaling *
                           static_cast<double>(start.b[static_cast<std::size_t>(o * 6 + k)]) *
                           static_cast<double>(start.a[static_cast<std::size_t>(k * 90 + i)]);
                const double w = start.w[static_cast<std::size_t>(o * start.in + i)];
                squares += w * w;
                ASSERT_NEAR(sum, w, 2e-6);
            }
        }
        // What was taken out is the leading part: more than 6 of 60 equal ones would be.
        EXPECT_LT(rest, 0.85 * squares);
        if (place == DType::f32) continue;
        for (const std::vector<float>* values : {&start.a, &start.b})
            for (const float value : *values)
                ASSERT_EQ(static_cast<float>(bfloat16(value)), value);
    }
}

// A's rows are as long as B's columns: sqrt(S / s) both.
TEST(Pissa, FactorsShareTheValuesEvenly) {
    const Started start(DType::f32);
    double before = 1e9;
    for (std::int64_t k = 0; k < start.r; ++k) {
        double a = 0;
        double b = 0;
        for (std::int64_t i = 0; i < start.in; ++i)
            a += std::pow(start.a[static_cast<std::size_t>(k * start.in + i)], 2);
        for (std::int64_t o = 0; o < start.out; ++o)
            b += std::pow(start.b[static_cast<std::size_t>(o * start.r + k)], 2);
        EXPECT_NEAR(a, b, 1e-5 * a);
        EXPECT_LE(a, before * (1 + 1e-6));
        before = a;
    }
}

TEST(Pissa, TheOrdinaryAdapterIsTheDifference) {
    for (const bool stabilised : {false, true}) {
        LoraSettings settings;
        settings.r = 6;
        settings.lora_alpha = 5;
        settings.use_rslora = stabilised;
        settings.rank_pattern = {{"q_proj", 3}};
        settings.alpha_pattern = {{"k_proj", 7}};
        const LoraSettings twice = doubled(settings);
        EXPECT_EQ(twice.r, 12);
        const LoraTargets one(settings);
        const LoraTargets two(twice);
        for (const char* module : {"q_proj", "k_proj", "v_proj"}) {
            EXPECT_EQ(two.rank(module), 2 * one.rank(module));
            EXPECT_NEAR(two.scaling(module), one.scaling(module), 1e-15);
        }
    }
    std::vector<float> a = {1, 2, 3, 4}, a0 = {5, 6, 7, 8}, b = {1, 2, 3, 4, 5, 6},
                       b0 = {7, 8, 9, 10, 11, 12};
    EXPECT_EQ(doubled_a(of(a, 2, 2), of(a0, 2, 2)), (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
    EXPECT_EQ(doubled_b(of(b, 3, 2), of(b0, 3, 2)),
              (std::vector<float>{1, 2, -7, -8, 3, 4, -9, -10, 5, 6, -11, -12}));
}

class PissaDevices : public ::testing::TestWithParam<DeviceProfile> {};
INSTANTIATE_TEST_SUITE_P(Cpu, PissaDevices, ::testing::Values(detect_cpu_profile()),
                         [](const auto&) { return "cpu"; });
INSTANTIATE_TEST_SUITE_P(Cuda, PissaDevices, ::testing::ValuesIn(testing::cards()),
                         [](const auto& test) { return testing::card_name(test.param); });

// Of any base; where the compute dtype is f32 the sums differ in their order alone, in bf16 each weight is
// rounded once more.
TEST_P(PissaDevices, TheModelIsAsItWas) {
    const testing::TempDir dir;
    testing::TinyModel model;
    model.hidden_size = 32;
    model.intermediate_size = 64;
    TokenBatch batch;
    const std::vector<std::int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6};
    batch.append(ids, ids, 0);
    for (const char* type : {"f32", "bf16", "f16", "q8_0"}) {
        std::filesystem::path path = dir / type;
        const bool gguf = type == std::string("q8_0");
        model.dtype = gguf ? "f32" : type;
        write_tiny_model(path, model);
        if (gguf) {
            GgufExportOptions options;
            options.type = StoredType::q8_0;
            write_gguf_model(ModelFiles::open(path), nullptr, "", dir / "model.gguf", options);
            path = dir / "model.gguf";
        }
        const ModelFiles files = ModelFiles::open(path);
        for (const DType compute : {DType::f32, DType::bf16}) {
            SCOPED_TRACE(std::string(type) + ", " + std::string(name_of(compute)));
            Decoder::Options options;
            options.compute = compute;
            testing::DecoderHarness base(files, options, GetParam());
            const std::vector<float> want = base.logits(batch);
            options.trained = Decoder::Trained::adapter;
            options.init = lora_init_from_name("pissa");
            options.lora = LoraSettings{.r = 4, .lora_alpha = 6, .target_modules = {"all-linear"}};
            testing::DecoderHarness run(files, options, GetParam());
            ASSERT_EQ(run.model.taken_out().size(), 14u);
            const std::vector<float> got = run.logits(batch);
            float largest = 0;
            float off = 0;
            for (std::size_t i = 0; i < want.size(); ++i) {
                largest = std::max(largest, std::abs(want[i]));
                off = std::max(off, std::abs(want[i] - got[i]));
            }
            EXPECT_LT(off, (compute == DType::f32 ? 1e-5f : 3e-2f) * largest);
            // And not because nothing was taken out.
            const Parameter& B = run.model.parameters()[1];
            fill(run.stream, 0, B.master);
            run.stream.synchronize();
            run.model.refresh_copies();
            EXPECT_NE(run.logits(batch), got);
        }
    }
}

}  // namespace
}  // namespace garam
