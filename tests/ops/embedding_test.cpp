#include "garam/ops/embedding.h"

#include <cmath>

#include "ops/embedding_cases.h"
#include "ops/op_run.h"

namespace garam::testing {
namespace {

class Embedding : public OpTest {};
GARAM_FOR_ALL_PROFILES(Embedding);

std::vector<std::int32_t> random_ids(Random& random, const EmbeddingCase& c) {
    std::vector<std::int32_t> ids;
    for (std::int64_t t = 0; t < c.tokens; ++t)
        ids.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(c.vocab))));
    return ids;
}

TEST_P(Embedding, Forward) {
    for (const EmbeddingCase& c : embedding_cases()) {
        SCOPED_TRACE(std::to_string(c.tokens) + " tokens");
        OpRun run(GetParam());
        const std::vector<std::int32_t> id = random_ids(run.random(), c);
        const int ids = run.integers(id);
        const int table = run.input(c.dtype, c.vocab, c.hidden, c.pad);
        const int out = run.output(c.dtype, c.tokens, c.hidden, c.pad + 8);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                embedding_forward(stream, t[ids], t[table], t[out]);
            },
            c.forward);
        std::vector<double> want;
        const std::vector<double> rows = run.values(table);
        for (const std::int32_t i : id)
            want.insert(want.end(), rows.begin() + i * c.hidden, rows.begin() + (i + 1) * c.hidden);
        EXPECT_EQ(run.values(out), want);
    }
}

TEST_P(Embedding, Backward) {
    for (const EmbeddingCase& c : embedding_cases()) {
        SCOPED_TRACE(std::to_string(c.tokens) + " tokens");
        OpRun run(GetParam());
        const std::vector<std::int32_t> id = random_ids(run.random(), c);
        const int ids = run.integers(id);
        const int dout = run.input(c.dtype, c.tokens, c.hidden, c.pad);
        const int gradient = run.in_place(DType::f32, c.vocab, c.hidden, c.pad + 8);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                embedding_backward(stream, t[ids], t[dout], t[gradient]);
            },
            c.backward);
        // The order of additions is promised, so fp32 arithmetic in that order gives the same bits.
        std::vector<double> want = run.before(gradient);
        const std::vector<double> d = run.values(dout);
        for (std::size_t t = 0; t < id.size(); ++t) {
            for (std::int64_t j = 0; j < c.hidden; ++j) {
                double& sum = want[id[t] * c.hidden + j];
                sum = static_cast<float>(sum) +
                      static_cast<float>(d[static_cast<std::int64_t>(t) * c.hidden + j]);
            }
        }
        EXPECT_EQ(run.values(gradient), want);
    }
}

// The factor is rounded to the dtype first, then the product.
TEST_P(Embedding, WithAFactor) {
    constexpr float kFactor = 55.4256f;  // sqrt(3072), 55.5 in bf16
    for (const EmbeddingCase& c : embedding_cases()) {
        SCOPED_TRACE(std::to_string(c.tokens) + " tokens");
        const double factor = c.dtype == DType::bf16 ? 55.5 : static_cast<double>(kFactor);
        OpRun run(GetParam());
        const std::vector<std::int32_t> id = random_ids(run.random(), c);
        const int ids = run.integers(id);
        const int table = run.input(c.dtype, c.vocab, c.hidden, c.pad);
        const int out = run.output(c.dtype, c.tokens, c.hidden, c.pad + 8);
        const int gradient = run.in_place(DType::f32, c.vocab, c.hidden, c.pad + 8);
        const std::vector<double> rows = run.values(table);
        const double elements = static_cast<double>(c.tokens * c.hidden);
        Cost cost = c.forward;
        cost.flops += elements + c.backward.flops + elements;
        cost.bytes_read += c.backward.bytes_read;
        cost.bytes_written += c.backward.bytes_written;
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                embedding_forward(stream, t[ids], t[table], t[out], kFactor);
                embedding_backward(stream, t[ids], t[out], t[gradient], kFactor);
            },
            cost);
        std::vector<double> want, sums = run.before(gradient);
        for (const std::int32_t i : id) {
            for (std::int64_t j = 0; j < c.hidden; ++j) {
                const double product = rows[i * c.hidden + j] * factor;
                want.push_back(c.dtype == DType::bf16 ? static_cast<double>(static_cast<float>(
                                                            bfloat16(static_cast<float>(product))))
                                                      : static_cast<float>(product));
                sums[i * c.hidden + j] += want.back() * factor;
            }
        }
        EXPECT_EQ(run.values(out), want);
        // An id adds the same row each time: every addition rounds a sum no larger than the last.
        expect_close(run.values(gradient), sums, (static_cast<double>(c.tokens) + 2) * 0x1p-24,
                     static_cast<double>(c.tokens) * 4 * 0x1p-24, "table");
    }
}

// The same cases with a table of columns: a rank of `hidden`.
TEST_P(Embedding, Columns) {
    for (const EmbeddingCase& c : embedding_cases()) {
        SCOPED_TRACE(std::to_string(c.tokens) + " tokens");
        OpRun run(GetParam());
        const std::vector<std::int32_t> id = random_ids(run.random(), c);
        const int ids = run.integers(id);
        const int table = run.input(c.dtype, c.hidden, c.vocab, c.pad);
        const int out = run.output(c.dtype, c.tokens, c.hidden, c.pad + 8);
        const int dout = run.input(c.dtype, c.tokens, c.hidden, c.pad);
        const int gradient = run.in_place(DType::f32, c.hidden, c.vocab, c.pad + 8);
        Cost cost = c.forward;
        cost.flops += c.backward.flops;
        cost.bytes_read += c.backward.bytes_read;
        cost.bytes_written += c.backward.bytes_written;
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                embedding_columns_forward(stream, t[ids], t[table], t[out]);
                embedding_columns_backward(stream, t[ids], t[dout], t[gradient]);
            },
            cost);
        const std::vector<double> columns = run.values(table), d = run.values(dout);
        std::vector<double> want, sums = run.before(gradient);
        for (std::size_t t = 0; t < id.size(); ++t) {
            for (std::int64_t k = 0; k < c.hidden; ++k) {
                const auto at = static_cast<std::size_t>(k * c.vocab + id[t]);
                want.push_back(columns[at]);
                sums[at] =
                    static_cast<float>(sums[at]) +
                    static_cast<float>(
                        d[t * static_cast<std::size_t>(c.hidden) + static_cast<std::size_t>(k)]);
            }
        }
        EXPECT_EQ(run.values(out), want);
        EXPECT_EQ(run.values(gradient), sums);
    }
}

TEST_P(Embedding, RefusesAnIdOutsideTheVocabulary) {
    for (const std::int32_t id : {-1, 4}) {
        OpRun run(GetParam());
        const int ids = run.integers({0, id});
        const int table = run.in_place(DType::f32, 4, 3);
        const int out = run.in_place(DType::f32, 2, 3);
        const OpRun::Body forward = [&](Stream& stream, const std::vector<Tensor>& t) {
            embedding_forward(stream, t[ids], t[table], t[out]);
        };
        const OpRun::Body backward = [&](Stream& stream, const std::vector<Tensor>& t) {
            embedding_backward(stream, t[ids], t[out], t[table]);
        };
        if (!GetParam().is_cuda()) {
            EXPECT_THROW(run.run(forward, {}), Bug);
            if (id != -1) {
                EXPECT_THROW(run.run(backward, {}), Bug);
            }
            continue;
        }
        run.run(forward, {0, 32, 24});
        const std::vector<double> rows = run.values(out);
        for (std::size_t i = 0; i < 6; ++i)
            EXPECT_EQ(std::isnan(rows[i]), i >= 3);
    }
}

}  // namespace
}  // namespace garam::testing
