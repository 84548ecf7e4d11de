#include "garam/ops/attention.h"

#include "ops/attention_cases.h"
#include "ops/op_run.h"

namespace garam::testing {
namespace {

class Attention : public OpTest {};
GARAM_FOR_ALL_PROFILES(Attention);

std::vector<double> joined(std::vector<double> a, const std::vector<double>& b,
                           const std::vector<double>& c) {
    a.insert(a.end(), b.begin(), b.end());
    a.insert(a.end(), c.begin(), c.end());
    return a;
}

std::string name_of_case(const AttentionCase& c) {
    std::string name = std::string(name_of(c.dtype)) + " heads " +
                       std::to_string(c.shape.num_heads) + "/" +
                       std::to_string(c.shape.num_kv_heads) + " head_dim " +
                       std::to_string(c.shape.head_dim) + " lengths";
    for (const std::int32_t length : c.lengths)
        name += " " + std::to_string(length);
    if (c.shape.window > 0) name += " window " + std::to_string(c.shape.window);
    if (c.shape.softcap > 0) name += " softcap " + std::to_string(c.shape.softcap);
    return name;
}

// The segments with their lengths in the device's memory too.
struct DeviceSegments {
    AttentionSegments host;
    int cu_q, cu_k;
    DeviceSegments(OpRun& run, const AttentionSegments& segments)
        : host(segments), cu_q(run.integers(segments.cu_q)), cu_k(run.integers(segments.cu_k)) {}
    AttentionSegments in(const std::vector<Tensor>& t) const {
        AttentionSegments segments = host;
        segments.device_cu_q = t[static_cast<std::size_t>(cu_q)];
        segments.device_cu_k = t[static_cast<std::size_t>(cu_k)];
        return segments;
    }
};

// What rounding probabilities and score gradients may add on a card, and where the processor multiplies
// tiles of bf16: a unit of each sum's size.
double rounding_between(const DeviceProfile& profile, DType dtype) {
    return (profile.is_cuda() || profile.bf16_tiles) && dtype == DType::bf16 ? 1.01 * unit_of(dtype)
                                                                             : 0.0;
}
// A soft cap's tanh by way of a power of two: some units of the cap.
double cap_error(const AttentionShape& shape) {
    return static_cast<double>(shape.softcap) * 0x1p-20;
}

TEST_P(Attention, Forward) {
    for (const AttentionCase& c : attention_cases()) {
        SCOPED_TRACE(name_of_case(c));
        const AttentionSegments segments = attention_segments(c);
        const std::int64_t tq = segments.cu_q.back(), tk = segments.cu_k.back();
        const std::int64_t q_width = c.shape.num_heads * c.shape.head_dim;
        const std::int64_t kv_width = c.shape.num_kv_heads * c.shape.head_dim;
        OpRun run(GetParam());
        const int q = run.input(c.dtype, tq, q_width, c.pad);
        const int k = run.input(c.dtype, tk + c.spare, kv_width, c.pad + 1);
        const int v = run.input(c.dtype, tk + c.spare, kv_width, c.pad + 2);
        const int out = run.output(c.dtype, tq, q_width, c.pad + 3);
        const int lse = run.output(DType::f32, tq, c.shape.num_heads);
        const DeviceSegments lengths(run, segments);
        const double size = static_cast<double>(size_of(c.dtype));
        const double q_elements = static_cast<double>(tq * q_width);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                attention_forward(stream, c.shape, lengths.in(t), t[q], t[k], t[v], t[out], t[lse]);
            },
            {4 * c.pairs * static_cast<double>(q_width),
             size * (q_elements + 2.0 * static_cast<double>(tk * kv_width)),
             size * q_elements + 4.0 * static_cast<double>(tq * c.shape.num_heads)});
        std::vector<double> keys = run.values(k), values = run.values(v);
        keys.resize(static_cast<std::size_t>(tk * kv_width));
        values.resize(keys.size());
        const std::vector<double> x = joined(run.values(q), keys, values);
        std::vector<double> want = attention_reference(x, c.shape, segments);
        const std::vector<double> want_lse(want.begin() + tq * q_width, want.end());
        want.resize(static_cast<std::size_t>(tq * q_width));
        // A score is a sum of head_dim products of total size S <= scale * head_dim * 3 or so; its
        // error, head_dim half units of S, is the probability's relative error; out is a mean of
        // values of size up to 4. Then one rounding.
        const double d = static_cast<double>(c.shape.head_dim);
        const double score_error = (d + 10) * 0x1p-24 * c.shape.scale * d + cap_error(c.shape);
        const AttentionSizes sizes = attention_sizes(x, run.values(q), c.shape, segments);
        std::vector<double> bound;
        for (std::size_t i = 0; i < want.size(); ++i)
            bound.push_back(1.01 * unit_of(c.dtype) * std::abs(want[i]) +
                            rounding_between(GetParam(), c.dtype) * sizes.out[i] +
                            2 * 4 * score_error + 2e-6);
        expect_within(run.values(out), want, bound, "out");
        expect_close(run.values(lse), want_lse, 0x1p-23, score_error + 2e-6, "lse");
    }
}

TEST_P(Attention, Backward) {
    for (const AttentionCase& c : attention_cases()) {
        if (!c.key_lengths.empty()) continue;
        SCOPED_TRACE(name_of_case(c));
        const AttentionSegments segments = attention_segments(c);
        const std::int64_t tokens = segments.cu_q.back();
        const std::int64_t q_width = c.shape.num_heads * c.shape.head_dim;
        const std::int64_t kv_width = c.shape.num_kv_heads * c.shape.head_dim;
        OpRun run(GetParam());
        const int dout = run.input(c.dtype, tokens, q_width, c.pad + 4);
        const int q = run.input(c.dtype, tokens, q_width, c.pad);
        const int k = run.input(c.dtype, tokens, kv_width, c.pad + 1);
        const int v = run.input(c.dtype, tokens, kv_width, c.pad + 2);
        const int out = run.input(c.dtype, tokens, q_width, c.pad + 3);
        const int lse = run.input(DType::f32, tokens, c.shape.num_heads);
        const int dq = run.output(c.dtype, tokens, q_width, c.pad + 5);
        const int dk = run.output(c.dtype, tokens, kv_width, c.pad + 6);
        const int dv = run.output(c.dtype, tokens, kv_width, c.pad + 7);
        const DeviceSegments lengths(run, segments);
        const std::vector<double> x = joined(run.values(q), run.values(k), run.values(v));
        const std::vector<double> forward = attention_reference(x, c.shape, segments);
        run.set(out, std::vector<double>(forward.begin(), forward.begin() + tokens * q_width));
        run.set(lse, std::vector<double>(forward.begin() + tokens * q_width, forward.end()));
        const double size = static_cast<double>(size_of(c.dtype));
        const double q_elements = static_cast<double>(tokens * q_width);
        const double kv_elements = static_cast<double>(tokens * kv_width);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                attention_backward(stream, c.shape, lengths.in(t), t[dout], t[q], t[k], t[v],
                                   t[out], t[lse], t[dq], t[dk], t[dv]);
            },
            {10 * c.pairs * static_cast<double>(q_width),
             size * (3 * q_elements + 2 * kv_elements) +
                 4.0 * static_cast<double>(tokens * c.shape.num_heads),
             size * (q_elements + 2 * kv_elements)});
        std::vector<double> weights = run.values(dout);
        weights.resize(forward.size(), 0.0);  // no gradient through lse
        const auto f = [&](const std::vector<double>& values) {
            return attention_reference(values, c.shape, segments);
        };
        const bool is_long = c.pairs * static_cast<double>(q_width) > 1e6;
        std::vector<double> want = numeric_gradient(f, x, weights, is_long ? 30 : 150);
        // As in the forward, with dP - delta (size up to ~ head_dim) for the value; `out` rounded
        // to bf16 moves delta by the unit times the root of head_dim, and with it every gradient
        // by that times scale and the size of q or k.
        const double d = static_cast<double>(c.shape.head_dim);
        const double score_error = (d + 10) * 0x1p-24 * c.shape.scale * d + cap_error(c.shape);
        const double delta_error =
            (c.dtype == DType::bf16 ? unit_of(c.dtype) : 0x1p-22) * std::sqrt(d);
        const double absolute = 16 * (score_error + c.shape.scale * delta_error) + 1e-5;
        const std::vector<double> got = joined(run.values(dq), run.values(dk), run.values(dv));
        const AttentionSizes sizes = attention_sizes(x, run.values(dout), c.shape, segments);
        std::vector<double> bound;
        for (std::size_t i = 0; i < want.size(); ++i) {
            if (std::isnan(want[i])) want[i] = got[i];  // not differentiated
            bound.push_back(1.01 * unit_of(c.dtype) * std::abs(want[i]) +
                            rounding_between(GetParam(), c.dtype) * sizes.gradients[i] + absolute);
        }
        expect_within(got, want, bound, "dq, dk, dv");
    }
}

// dq over out, dk over k and dv over v: the bits of gradients in memory of their own.
TEST_P(Attention, BackwardInPlace) {
    for (const AttentionCase& c : attention_cases()) {
        if (!c.key_lengths.empty()) continue;
        SCOPED_TRACE(name_of_case(c));
        const AttentionSegments segments = attention_segments(c);
        const std::int64_t tokens = segments.cu_q.back();
        const std::int64_t q_width = c.shape.num_heads * c.shape.head_dim;
        const std::int64_t kv_width = c.shape.num_kv_heads * c.shape.head_dim;
        const double size = static_cast<double>(size_of(c.dtype));
        const double q_elements = static_cast<double>(tokens * q_width);
        const double kv_elements = static_cast<double>(tokens * kv_width);
        const auto gradients = [&](bool in_place) {
            OpRun run(GetParam());
            const auto operand = [&](std::int64_t width, std::int64_t pad) {
                return in_place ? run.in_place(c.dtype, tokens, width, pad)
                                : run.input(c.dtype, tokens, width, pad);
            };
            const int dout = run.input(c.dtype, tokens, q_width, c.pad + 4);
            const int q = run.input(c.dtype, tokens, q_width, c.pad);
            const int k = operand(kv_width, c.pad + 1);
            const int v = operand(kv_width, c.pad + 2);
            const int out = operand(q_width, c.pad + 3);
            const int lse = run.input(DType::f32, tokens, c.shape.num_heads);
            const int dq = in_place ? out : run.output(c.dtype, tokens, q_width, c.pad + 3);
            const int dk = in_place ? k : run.output(c.dtype, tokens, kv_width, c.pad + 1);
            const int dv = in_place ? v : run.output(c.dtype, tokens, kv_width, c.pad + 2);
            const DeviceSegments lengths(run, segments);
            run.run(
                [&](Stream& stream, const std::vector<Tensor>& t) {
                    attention_backward(stream, c.shape, lengths.in(t), t[dout], t[q], t[k], t[v],
                                       t[out], t[lse], t[dq], t[dk], t[dv]);
                },
                {10 * c.pairs * static_cast<double>(q_width),
                 size * (3 * q_elements + 2 * kv_elements) +
                     4.0 * static_cast<double>(tokens * c.shape.num_heads),
                 size * (q_elements + 2 * kv_elements)});
            return joined(run.values(dq), run.values(dk), run.values(dv));
        };
        EXPECT_EQ(gradients(true), gradients(false));
    }
}

TEST_P(Attention, RefusesSegmentsThatDoNotCover) {
    OpRun run(GetParam());
    const int q = run.input(DType::f32, 4, 2);
    const int out = run.output(DType::f32, 4, 2);
    const int lse = run.output(DType::f32, 4, 1);
    for (const AttentionSegments& segments :
         {AttentionSegments{{0, 3}, {0, 3}}, AttentionSegments{{0, 3, 2, 4}, {0, 3, 2, 4}},
          AttentionSegments{{0, 1, 4}, {0, 2, 4}}, AttentionSegments{{}, {}}})
        EXPECT_THROW(run.run(
                         [&](Stream& stream, const std::vector<Tensor>& t) {
                             attention_forward(stream, {1, 1, 2, 1.0f}, segments, t[q], t[q], t[q],
                                               t[out], t[lse]);
                         },
                         {}),
                     Bug);
}

}  // namespace
}  // namespace garam::testing
