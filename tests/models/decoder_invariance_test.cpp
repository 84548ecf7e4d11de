// What must not depend on how the work is cut up: accumulation, packing, padding, recompute, threads.
//
// Bounds: where only the order of fp32 sums differs, two results of a sum of n products part by at most
// about sqrt(n) units of 2^-24 of the terms' norm; the gradients here pass through some ten such sums of
// up to 300 terms in sequence, so 3e-5 of a tensor's norm is a fair bound (measured: under 1e-6).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "garam/core/parallel.h"
#include "garam/core/philox.h"
#include "models/decoder_harness.h"
#include "testing/golden_batch.h"
#include "testing/temp_dir.h"
#include "testing/tiny_model.h"

namespace garam {
namespace {

using testing::DecoderHarness;
using testing::TempDir;

constexpr double kReordered = 3e-5;
constexpr double kReorderedOnACard = 1e-5;

struct Row {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> labels;
};

std::vector<Row> random_rows(const std::vector<int>& lengths) {
    Random random(11);
    std::vector<Row> rows;
    for (const int length : lengths) {
        Row row;
        for (int t = 0; t < length; ++t) {
            row.ids.push_back(static_cast<std::int32_t>(random.below(256)));
            row.labels.push_back(random.below(3) == 0 ? kIgnore : row.ids.back());
        }
        rows.push_back(row);
    }
    return rows;
}

// The rows in micro-batches of the given sizes.
std::vector<TokenBatch> cut(const std::vector<Row>& rows, const std::vector<std::size_t>& sizes) {
    std::vector<TokenBatch> batches;
    std::size_t next = 0;
    for (const std::size_t size : sizes) {
        batches.emplace_back();
        for (std::size_t i = 0; i < size; ++i, ++next)
            batches.back().append(rows[next].ids, rows[next].labels,
                                  static_cast<std::int64_t>(next));
    }
    return batches;
}

// The dtype of the arithmetic, whether adapters are DoRA's, and what computes.
using Case = std::tuple<DType, bool, DeviceProfile>;

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
    const auto& [dtype, dora, profile] = info.param;
    return std::string(name_of(dtype)) + (dora ? "_dora" : "") +
           (profile.is_cuda() ? "_" + testing::card_name(profile) : "");
}

class DecoderInvariance : public ::testing::TestWithParam<Case> {
  protected:
    static DType compute() { return std::get<0>(GetParam()); }
    static const DeviceProfile& profile() { return std::get<2>(GetParam()); }

    DecoderInvariance() {
        testing::TinyModel model;
        model.biases = true;
        write_tiny_model(dir_.path(), model);
        files_ = std::make_unique<ModelFiles>(ModelFiles::open(dir_.path()));
    }
    std::unique_ptr<DecoderHarness> make(double dropout = 0,
                                         Decoder::Trained trained = Decoder::Trained::adapter) {
        Decoder::Options options;
        options.compute = compute();
        options.trained = trained;
        options.seed = 3;
        if (trained == Decoder::Trained::adapter)
            options.lora = LoraSettings{.r = 4,
                                        .lora_alpha = 8,
                                        .lora_dropout = dropout,
                                        .use_dora = std::get<1>(GetParam()),
                                        .target_modules = {"all-linear"}};
        auto run = std::make_unique<DecoderHarness>(*files_, options, profile());
        // B away from zero, so that every gradient is.
        for (std::size_t p = 0; p < run->model.parameters().size(); ++p) {
            Parameter& parameter = run->model.parameters()[p];
            if (!parameter.name.ends_with("lora_B.weight")) continue;
            Random random(5, p);
            HostTensor master(run->stream, parameter.master);
            for (std::int64_t i = 0; i < parameter.master.elements(); ++i)
                master.tensor().data<float>()[i] = static_cast<float>(0.1 * random.normal());
            master.write();
        }
        run->model.refresh_copies();
        return run;
    }
    double tolerance() const {
        // bf16 activations round to 2^-9; cutting the batch otherwise changes no rounding but that of
        // sums of bf16 products in fp32 and of the residual stream's accumulation.
        if (compute() != DType::f32) return 2e-2;
        return profile().is_cuda() ? kReorderedOnACard : kReordered;
    }
    // Forward passes whose shapes differ give the same bits on the processor. A card's library sums
    // products of other shapes in other orders.
    void expect_same(const std::vector<float>& got, const std::vector<float>& want,
                     std::size_t what) const {
        if (!profile().is_cuda()) {
            EXPECT_EQ(got, want) << what;
            return;
        }
        ASSERT_EQ(got.size(), want.size()) << what;
        EXPECT_LE(testing::relative_error(got.data(), want), tolerance()) << what;
    }

    TempDir dir_;
    std::unique_ptr<ModelFiles> files_;
    const std::vector<Row> rows_ = random_rows({17, 3, 40, 9, 28, 1, 33});
};

INSTANTIATE_TEST_SUITE_P(Compute, DecoderInvariance,
                         ::testing::Combine(::testing::Values(DType::f32, DType::bf16),
                                            ::testing::Bool(),
                                            ::testing::Values(detect_cpu_profile())),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, DecoderInvariance,
                         ::testing::Combine(::testing::Values(DType::f32, DType::bf16),
                                            ::testing::Bool(),
                                            ::testing::ValuesIn(testing::card_profiles())),
                         case_name);

// CASES 1, tensor by tensor of ragged samples.
TEST_P(DecoderInvariance, AccumulationSplits) {
    for (const auto trained : {Decoder::Trained::adapter, Decoder::Trained::all_weights}) {
        const auto run = make(0.1, trained);
        const float loss = run->gradients(cut(rows_, {7}));
        const std::vector<float> whole = run->all_gradients();
        for (const auto& sizes : std::vector<std::vector<std::size_t>>{
                 {1, 1, 1, 1, 1, 1, 1}, {2, 2, 2, 1}, {3, 4}, {6, 1}}) {
            EXPECT_NEAR(run->gradients(cut(rows_, sizes)), loss, tolerance() * loss);
            EXPECT_LE(testing::relative_error(run->all_gradients().data(), whole), tolerance());
        }
    }
}

// Padding never reaches the model; what is left of it is where a sample's targets lie. Rows without any
// target add nothing.
TEST_P(DecoderInvariance, RowsWithoutTargetsAddNothing) {
    const auto run = make();
    const auto batches = cut(rows_, {7});
    const float loss = run->gradients(batches);
    const std::vector<float> plain = run->all_gradients();
    std::vector<Row> more = rows_;
    for (Row& row : more)
        row.labels.assign(row.labels.size(), kIgnore);
    auto with_silent = batches;
    for (TokenBatch& silent : cut(more, {3, 4}))
        with_silent.push_back(silent);
    EXPECT_EQ(run->gradients(with_silent), loss);
    EXPECT_EQ(run->all_gradients(), plain);
}

// CASES 3 and 4. A sample alone, beside others, and in another place of the batch gives the same logits; on
// the processor bit for bit: no sum of the forward depends on what else is in the batch.
TEST_P(DecoderInvariance, LogitsOfASampleAreTheSameAloneAndPacked) {
    const auto run = make();
    const std::vector<float> packed = run->logits(cut(rows_, {7}).front());
    std::size_t offset = 0;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
        TokenBatch alone;
        alone.append(rows_[r].ids, rows_[r].labels, static_cast<std::int64_t>(r));
        const std::vector<float> got = run->logits(alone);
        const std::vector<float> want(
            packed.begin() + static_cast<std::ptrdiff_t>(offset),
            packed.begin() + static_cast<std::ptrdiff_t>(offset + got.size()));
        expect_same(got, want, r);
        offset += got.size();
    }
}

// CASES 4. A batch in memory of a larger shape (models/device_batch.h) trains as it does in its own: what
// pads it is no part of any sum.
TEST_P(DecoderInvariance, PaddingOfABatchChangesNoLossAndNoGradient) {
    for (const auto trained : {Decoder::Trained::adapter, Decoder::Trained::all_weights}) {
        const auto run = make(0.1, trained);
        const TokenBatch batch = cut(rows_, {7}).front();
        const auto train = [&](const BatchShape& shape) {
            fill(run->stream, 0, run->model.all_gradients());
            fill(run->stream, 0, run->loss_sum.tensor);
            const Arena::Mark start = run->arena.mark();
            const DeviceBatch on_device = upload(run->stream, batch, shape);
            run->model.train_step(run->stream, on_device, {}, run->loss_sum.tensor);
            run->arena.rewind(start);
            return read_scalar(run->stream, run->loss_sum.tensor);
        };
        const BatchShape own = shape_of(batch);
        const float loss = train(own);
        const std::vector<float> gradients = run->all_gradients();
        for (const BatchShape& larger :
             {shared_shape(own), BatchShape{own.tokens + 77, own.samples + 9, own.targets + 70}}) {
            EXPECT_NEAR(train(larger), loss, tolerance() * loss);
            EXPECT_LE(testing::relative_error(run->all_gradients().data(), gradients), tolerance());
        }
    }
}

TEST_P(DecoderInvariance, RecomputeIsBitEqual) {
    for (const double dropout : {0.0, 0.2}) {
        const auto run = make(dropout);
        const auto batches = cut(rows_, {3, 4});
        const float loss = run->gradients(batches, {.seed = 9, .step = 5});
        const std::vector<float> kept = run->all_gradients();
        for (const Recompute recompute :
             {Recompute::norms_and_activation, Recompute::gate_up, Recompute::block}) {
            EXPECT_EQ(run->gradients(batches, {.seed = 9, .step = 5, .recompute = recompute}), loss)
                << name_of(recompute);
            EXPECT_EQ(run->all_gradients(), kept) << name_of(recompute);
        }
        EXPECT_EQ(run->gradients(batches, {.seed = 9, .step = 5}), loss);
        EXPECT_EQ(run->all_gradients(), kept);
    }
}

// Tiles of tokens: each row as it was; one tile with the bits of the whole, several with sums of gradients in
// another order, the same one each time.
TEST_P(DecoderInvariance, TilesAreTheWhole) {
    for (const auto trained : {Decoder::Trained::adapter, Decoder::Trained::all_weights}) {
        for (const double dropout : {0.0, 0.2}) {
            const auto run = make(dropout, trained);
            const auto batches = cut(rows_, {3, 4});
            const TrainingPass whole{.seed = 9, .step = 5, .recompute = Recompute::block};
            const float loss = run->gradients(batches, whole);
            const std::vector<float> want = run->all_gradients();
            for (const std::int64_t tile : {1000, 64, 16, 7}) {
                SCOPED_TRACE(tile);
                TrainingPass tiled = whole;
                tiled.tile = tile;
                const float got = run->gradients(batches, tiled);
                const std::vector<float> gradients = run->all_gradients();
                if (tile >= 1000) {
                    EXPECT_EQ(got, loss);
                    EXPECT_TRUE(gradients == want);
                }
                if (profile().is_cuda()) {
                    EXPECT_NEAR(got, loss, tolerance() * loss);
                } else {
                    EXPECT_EQ(got, loss);
                }
                EXPECT_LE(testing::relative_error(gradients.data(), want), tolerance());
                EXPECT_EQ(run->gradients(batches, tiled), got);
                EXPECT_TRUE(run->all_gradients() == gradients);
            }
        }
    }
}

TEST_P(DecoderInvariance, EvaluationInTilesIsTheWhole) {
    const auto run = make();
    const TokenBatch batch = cut(rows_, {7}).front();
    std::vector<float> want;
    run->model.evaluate(run->stream, batch, run->loss_sum.tensor, &want);
    for (const std::int64_t tile : {1000, 16, 7}) {
        std::vector<float> got;
        run->model.evaluate(run->stream, batch, run->loss_sum.tensor, &got, tile);
        expect_same(got, want, static_cast<std::size_t>(tile));
    }
}

TEST_P(DecoderInvariance, DropoutDependsOnSeedAndStepOnly) {
    const auto run = make(0.3);
    const auto batches = cut(rows_, {7});
    const float loss = run->gradients(batches, {.seed = 1, .step = 1});
    EXPECT_EQ(run->gradients(batches, {.seed = 1, .step = 1}), loss);
    EXPECT_NE(run->gradients(batches, {.seed = 1, .step = 2}), loss);
    EXPECT_NE(run->gradients(batches, {.seed = 2, .step = 1}), loss);
    // Another order of the samples: the same masks, so the same sums but for their order.
    auto reversed = rows_;
    std::reverse(reversed.begin(), reversed.end());
    std::vector<TokenBatch> other(1);
    for (std::size_t r = 0; r < reversed.size(); ++r)
        other[0].append(reversed[r].ids, reversed[r].labels,
                        static_cast<std::int64_t>(reversed.size() - 1 - r));
    EXPECT_NEAR(run->gradients(other, {.seed = 1, .step = 1}), loss, tolerance() * loss);
}

// The cut of the work depends on shapes only, so the bits are the same.
TEST_P(DecoderInvariance, NumberOfThreads) {
    if (profile().is_cuda()) GTEST_SKIP() << "threads of the processor";
    const auto run = make(0.1);
    const auto batches = cut(rows_, {7});
    const int threads = num_threads();
    set_num_threads(1);
    const float loss = run->gradients(batches);
    const std::vector<float> single = run->all_gradients();
    set_num_threads(2);
    EXPECT_EQ(run->gradients(batches), loss);
    EXPECT_EQ(run->all_gradients(), single);
    set_num_threads(threads);
}

// DoRA's rows begin as long as they are: their factor is 1, and only bias and residual are added in another order.
TEST_P(DecoderInvariance, ANewAdapterIsTheBase) {
    Decoder::Options options;
    options.compute = compute();
    DecoderHarness base(*files_, options, profile());
    options.lora =
        LoraSettings{.r = 4, .use_dora = std::get<1>(GetParam()), .target_modules = {"all-linear"}};
    DecoderHarness adapted(*files_, options, profile());
    const TokenBatch batch = cut(rows_, {3}).front();
    const std::vector<float> got = adapted.logits(batch);
    if (!std::get<1>(GetParam())) return expect_same(got, base.logits(batch), 0);
    EXPECT_LE(testing::relative_error(got.data(), base.logits(batch)), tolerance());
}

// Tokens fed in pieces through the cache see what they see at once; on the processor with the same bits.
TEST_P(DecoderInvariance, CachedDecodingEqualsOnePass) {
    const auto run = make();
    TokenBatch batch;
    batch.append(rows_[2].ids, rows_[2].labels, 0);
    const std::vector<float> whole = run->logits(batch);
    KvCache cache = run->model.make_cache(64);
    std::size_t fed = 0;
    for (const std::size_t piece : {5, 1, 1, 20, 13}) {
        const std::vector<std::int32_t> ids(
            rows_[2].ids.begin() + static_cast<std::ptrdiff_t>(fed),
            rows_[2].ids.begin() + static_cast<std::ptrdiff_t>(fed + piece));
        std::vector<float> got;
        run->model.decode(run->stream, cache, ids, got);
        fed += piece;
        const std::vector<float> want(
            whole.begin() + static_cast<std::ptrdiff_t>((fed - 1) * got.size()),
            whole.begin() + static_cast<std::ptrdiff_t>(fed * got.size()));
        expect_same(got, want, fed);
    }
}

// A card has kernels of its own for one token of a model of these sizes: their attention is cut into chunks
// of keys, and the work is recorded after the first token.
TEST_P(DecoderInvariance, TokenByTokenEqualsOnePass) {
    testing::TinyModel model;
    model.biases = true;
    model.hidden_size = 64;
    model.head_dim = 16;
    model.intermediate_size = 96;
    write_tiny_model(dir_.path() / "wide", model);
    files_ = std::make_unique<ModelFiles>(ModelFiles::open(dir_.path() / "wide"));
    const auto run = make();
    const Row row = random_rows({140}).front();
    TokenBatch batch;
    batch.append(row.ids, row.labels, 0);
    const std::vector<float> whole = run->logits(batch);
    KvCache cache = run->model.make_cache(300);
    std::size_t fed = 0;
    while (fed < row.ids.size()) {
        const std::size_t piece = fed == 0 ? 120 : 1;
        const std::span<const float> logits =
            run->model.decode(run->stream, cache, std::span(row.ids).subspan(fed, piece));
        fed += piece;
        const std::vector<float> want(
            whole.begin() + static_cast<std::ptrdiff_t>((fed - 1) * logits.size()),
            whole.begin() + static_cast<std::ptrdiff_t>(fed * logits.size()));
        expect_same({logits.begin(), logits.end()}, want, fed);
    }
}

// Weights of their own lie beside each other and are multiplied together: the same bits on the processor, in
// the prompt and token by token.
TEST_P(DecoderInvariance, OwnWeightsGiveTheSame) {
    Decoder::Options options;
    options.compute = compute();
    DecoderHarness mapped(*files_, options, profile());
    options.own_weights = true;
    DecoderHarness own(*files_, options, profile());
    TokenBatch batch;
    batch.append(rows_[3].ids, rows_[3].labels, 0);
    const std::vector<float> whole = mapped.logits(batch);
    expect_same(own.logits(batch), whole, 0);
    KvCache cache = own.model.make_cache(16);
    for (std::size_t fed = 0; fed < rows_[3].ids.size(); ++fed) {
        const std::span<const float> logits =
            own.model.decode(own.stream, cache, std::span(rows_[3].ids).subspan(fed, 1));
        const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(fed * logits.size());
        expect_same({logits.begin(), logits.end()},
                    {begin, begin + static_cast<std::ptrdiff_t>(logits.size())}, fed);
    }
}

}  // namespace
}  // namespace garam
