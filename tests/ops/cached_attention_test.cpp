#include "garam/ops/cached_attention.h"

#include <cmath>
#include <numeric>

#include "ops/attention_cases.h"
#include "ops/cached_attention_cases.h"
#include "ops/op_run.h"
#include "ops/rotary_cases.h"

namespace garam::testing {
namespace {

class CachedAttention : public OpTest {};
GARAM_FOR_ALL_PROFILES(CachedAttention);

std::vector<double> columns_of(const std::vector<double>& x, std::int64_t width, std::int64_t begin,
                               std::int64_t end) {
    std::vector<double> part;
    for (std::size_t row = 0; row < x.size(); row += static_cast<std::size_t>(width))
        part.insert(part.end(), x.begin() + static_cast<std::ptrdiff_t>(row) + begin,
                    x.begin() + static_cast<std::ptrdiff_t>(row) + end);
    return part;
}

void append(std::vector<double>& x, const std::vector<double>& more) {
    x.insert(x.end(), more.begin(), more.end());
}

TEST_P(CachedAttention, Forward) {
    for (const CachedAttentionCase& c : cached_attention_cases()) {
        const AttentionShape& shape = c.shape;
        SCOPED_TRACE(std::string(name_of(c.dtype)) + " heads " + std::to_string(shape.num_heads) +
                     "/" + std::to_string(shape.num_kv_heads) + " of " +
                     std::to_string(shape.head_dim) + ", " + std::to_string(c.tokens) +
                     " tokens of " + std::to_string(c.length));
        const std::int64_t q_width = shape.num_heads * shape.head_dim;
        const std::int64_t kv_width = shape.num_kv_heads * shape.head_dim;
        const std::int64_t width = q_width + 2 * kv_width;
        const std::int64_t half = c.rotary_dim / 2;
        const std::int64_t old = c.length - c.tokens;

        OpRun run(GetParam());
        const int qkv = run.in_place(c.dtype, c.tokens, width, c.pad);
        const int cache = run.in_place(c.dtype, c.length + c.spare, 2 * kv_width, c.pad);
        const int out = run.output(c.dtype, c.tokens, q_width, c.pad + 3);
        const int cos = run.input(DType::f32, c.length, half);
        const int sin = run.input(DType::f32, c.length, half);
        std::vector<double> cosines, sines;
        for (std::int64_t p = 0; p < c.length; ++p) {
            for (std::int64_t i = 0; i < half; ++i) {
                const double angle = static_cast<double>(p) / std::pow(100.0, i * 1.0 / half);
                cosines.push_back(static_cast<float>(std::cos(angle)));
                sines.push_back(static_cast<float>(std::sin(angle)));
            }
        }
        run.set(cos, cosines);
        run.set(sin, sines);
        std::vector<std::int32_t> at(static_cast<std::size_t>(c.tokens));
        std::iota(at.begin(), at.end(), static_cast<std::int32_t>(old));
        const int positions = run.integers(at);
        const int arrivals =
            run.integers(std::vector<std::int32_t>(static_cast<std::size_t>(shape.num_heads), 0));
        AttentionSegments segments{{0, static_cast<std::int32_t>(c.tokens)},
                                   {0, static_cast<std::int32_t>(c.length)}};
        const int cu_q = run.integers(segments.cu_q);
        const int cu_k = run.integers(segments.cu_k);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                AttentionSegments here = segments;
                here.device_cu_q = t[static_cast<std::size_t>(cu_q)];
                here.device_cu_k = t[static_cast<std::size_t>(cu_k)];
                cached_attention(stream, shape, here, t[qkv], t[cos], t[sin], t[positions],
                                 {t[cache], t[arrivals]}, t[out]);
            },
            c.cost);

        // q and k are rounded when they are turned.
        const std::vector<double> given = run.before(qkv);
        std::vector<double> turned =
            rotary_reference(columns_of(given, width, 0, q_width + kv_width),
                             {c.dtype,
                              c.tokens,
                              shape.num_heads + shape.num_kv_heads,
                              shape.head_dim,
                              c.rotary_dim,
                              0,
                              {}},
                             cosines, sines, at, false);
        if (c.dtype == DType::bf16)
            for (double& x : turned)
                x = static_cast<float>(bfloat16(static_cast<float>(x)));
        const std::vector<double> cached = run.before(cache);
        std::vector<double> rows(cached.begin(), cached.begin() + old * 2 * kv_width);
        for (std::int64_t t = 0; t < c.tokens; ++t) {
            const auto k = turned.begin() + t * (q_width + kv_width) + q_width;
            rows.insert(rows.end(), k, k + kv_width);
            const auto v = given.begin() + t * width + q_width + kv_width;
            rows.insert(rows.end(), v, v + kv_width);
        }
        std::vector<double> all = rows;
        all.insert(all.end(), cached.begin() + c.length * 2 * kv_width, cached.end());
        expect_close(run.values(cache), all, 2 * unit_of(c.dtype), 1e-6, "cache");

        const std::vector<double> q = columns_of(turned, q_width + kv_width, 0, q_width);
        std::vector<double> x = q;
        append(x, columns_of(rows, 2 * kv_width, 0, kv_width));
        append(x, columns_of(rows, 2 * kv_width, kv_width, 2 * kv_width));
        std::vector<double> want = attention_reference(x, shape, segments);
        want.resize(q.size());
        // As in attention's test; and an entry of size 2 may be rounded the other way when it is turned.
        const double d = static_cast<double>(shape.head_dim);
        const double score_error = (d + 10) * 0x1p-24 * shape.scale * d +
                                   static_cast<double>(shape.softcap) * 0x1p-20 +
                                   (c.dtype == DType::bf16 ? 8 * 0x1p-8 * shape.scale : 1e-6);
        const AttentionSizes sizes = attention_sizes(x, q, shape, segments);
        const double between =
            (GetParam().is_cuda() || GetParam().bf16_tiles) && c.dtype == DType::bf16
                ? 1.01 * unit_of(c.dtype)
                : 0.0;
        std::vector<double> bound;
        for (std::size_t i = 0; i < want.size(); ++i)
            bound.push_back(1.01 * unit_of(c.dtype) * std::abs(want[i]) + between * sizes.out[i] +
                            2 * 4 * score_error + 2e-6);
        expect_within(run.values(out), want, bound, "out");
    }
}

}  // namespace
}  // namespace garam::testing
