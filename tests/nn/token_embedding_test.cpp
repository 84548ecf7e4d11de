#include "garam/nn/token_embedding.h"

#include <gtest/gtest.h>

#include "nn/layer_harness.h"

namespace garam {
namespace {

using testing::LayerHarness;
using Values = std::vector<double>;

constexpr std::int64_t kVocab = 7;
constexpr std::int64_t kHidden = 6;
constexpr std::int64_t kRank = 3;
constexpr double kScaling = 1.5;
const std::vector<std::int32_t> kIds{4, 0, 4, 6, 4, 1};

class TokenEmbeddingTest : public ::testing::TestWithParam<DeviceProfile> {};
GARAM_FOR_CPU_AND_CARDS(TokenEmbeddingTest);

// Both uses of the factor, sums over tokens of one id, and no gradient where no token is. The layer is linear
// in each of its tensors, so the gradients are sums of products.
TEST_P(TokenEmbeddingTest, AnAdapterAgainstDoublePrecision) {
    for (const float factor : {1.0f, 2.5f}) {
        LayerHarness h(GetParam());
        TokenEmbedding embedding;
        embedding.table = h.random({kVocab, kHidden});
        embedding.table_gradient = h.zeros({kVocab, kHidden});
        embedding.factor = factor;
        embedding.lora = LoraAdapter{h.random({kRank, kVocab}), h.random({kHidden, kRank}),
                                     h.zeros({kRank, kVocab}), h.zeros({kHidden, kRank}),
                                     static_cast<float>(kScaling)};
        ASSERT_TRUE(embedding.is_trained());
        const auto tokens = static_cast<std::int64_t>(kIds.size());
        const Tensor x = h.random({tokens, kHidden});
        const Tensor dx = h.random({tokens, kHidden});
        token_embedding_forward(h.stream, embedding, h.of(kIds), x);
        token_embedding_backward(h.stream, embedding, h.of(kIds), dx);

        const Values E = h.values(embedding.table), A = h.values(embedding.lora->A),
                     B = h.values(embedding.lora->B), d = h.values(dx);
        Values want, dE(E.size()), dA(A.size()), dB(B.size());
        for (std::size_t t = 0; t < kIds.size(); ++t) {
            const auto id = static_cast<std::size_t>(kIds[t]);
            for (std::size_t c = 0; c < kHidden; ++c) {
                double sum = E[id * kHidden + c];
                const double up = factor * d[t * kHidden + c];
                dE[id * kHidden + c] += up;
                for (std::size_t k = 0; k < kRank; ++k) {
                    const double a = A[k * kVocab + id], b = B[c * kRank + k];
                    sum += kScaling * a * b;
                    dA[k * kVocab + id] += kScaling * up * b;
                    dB[c * kRank + k] += kScaling * up * a;
                }
                want.push_back(factor * sum);
            }
        }
        const auto near = [&](const Tensor& got, const Values& values) {
            const Values read = h.values(got);
            for (std::size_t i = 0; i < values.size(); ++i)
                EXPECT_NEAR(read[i], values[i], 1e-5);
        };
        near(x, want);
        near(embedding.table_gradient, dE);
        near(embedding.lora->A_gradient, dA);
        near(embedding.lora->B_gradient, dB);
        EXPECT_EQ(h.arena.used(), 0);
    }
}

}  // namespace
}  // namespace garam
