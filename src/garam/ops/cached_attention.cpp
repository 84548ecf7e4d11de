#include "garam/ops/cached_attention.h"

#include <algorithm>

#include "garam/kernels/cuda/attention_step.h"
#include "garam/ops/checks.h"
#include "garam/ops/cuda_kernels.h"
#include "garam/ops/elementwise.h"
#include "garam/ops/rotary.h"

namespace garam {
namespace {

constexpr const char* kName = "cached_attention";

struct Call {
    const AttentionShape& shape;
    const AttentionSegments& segments;
    const Tensor &qkv, &cos, &sin, &positions;
    const AttentionCache& cache;
    const Tensor& out;

    std::int64_t tokens() const { return qkv.rows(); }
    std::int64_t q_width() const { return shape.num_heads * shape.head_dim; }
    std::int64_t kv_width() const { return shape.num_kv_heads * shape.head_dim; }
    std::int64_t length() const { return segments.cu_k.back(); }
    std::int64_t half() const { return cos ? cos.columns() : 0; }
    Tensor q() const { return qkv.slice_columns(0, q_width()); }
    Tensor keys() const { return cache.keys_and_values.slice_columns(0, kv_width()); }
    Tensor values() const {
        return cache.keys_and_values.slice_columns(kv_width(), 2 * kv_width());
    }
};

void check(const Stream& stream, const Call& c) {
    const DType dtype = c.qkv.dtype();
    check_compute_dtype(kName, c.qkv);
    check_matrix(stream, kName, c.qkv, c.tokens(), c.q_width() + 2 * c.kv_width(), dtype);
    check_matrix(stream, kName, c.cache.keys_and_values, c.cache.keys_and_values.rows(),
                 2 * c.kv_width(), dtype);
    check_matrix(stream, kName, c.out, c.tokens(), c.q_width(), dtype);
    check_vector(stream, kName, c.positions, c.tokens(), DType::i32);
    if (c.cos) {
        check_operand(stream, kName, c.cos);
        GARAM_CHECK(2 * c.cos.columns() <= c.shape.head_dim,
                    "cached_attention: more turned entries than a head has");
        check_matrix(stream, kName, c.sin, c.cos.rows(), c.cos.columns(), DType::f32);
    }
    if (c.cache.arrivals)
        check_vector(stream, kName, c.cache.arrivals, c.shape.num_heads, DType::i32);
    GARAM_CHECK(c.segments.cu_k.size() == 2 && c.segments.cu_q.size() == 2,
                "cached_attention: one sequence");
    GARAM_CHECK(
        c.tokens() > 0 && c.length() >= c.tokens() && c.length() <= c.cache.keys_and_values.rows(),
        "cached_attention: more keys than the cache has room for");
}

Cost cost_of(const Call& c) {
    const double window =
        static_cast<double>(c.shape.window > 0 ? c.shape.window : std::int64_t{1} << 40);
    double pairs = 0;
    for (std::int64_t t = 0; t < c.tokens(); ++t)
        pairs += std::min(window, static_cast<double>(c.length() - c.tokens() + t + 1));
    const auto tokens = static_cast<double>(c.tokens());
    const auto size = static_cast<double>(size_of(c.qkv.dtype()));
    const auto half = static_cast<double>(c.half());
    const double row = 2 * static_cast<double>(c.kv_width()) * size;  // of the cache
    Cost cost;
    cost.flops = 6 * tokens * half * static_cast<double>(c.shape.num_heads + c.shape.num_kv_heads) +
                 4 * pairs * static_cast<double>(c.q_width());
    cost.bytes_read = bytes_of({&c.qkv, &c.positions}) + 2 * sizeof(float) * tokens * half +
                      (static_cast<double>(c.length()) - tokens) * row;
    cost.bytes_written = tokens * row + bytes_of({&c.out});
    return cost;
}

bool in_vectors(const Tensor& x) {
    return reinterpret_cast<std::uintptr_t>(x.raw()) % 16 == 0 &&
           x.pitch() * static_cast<std::int64_t>(size_of(x.dtype())) % 16 == 0;
}

// Whether it is one kernel: by shapes, pitches and alignments, which a dry run has too.
bool is_one_kernel(const Stream& stream, const Call& c) {
    return stream.is_for_cuda() && c.tokens() == 1 && c.qkv.dtype() == DType::bf16 &&
           c.cache.arrivals && c.shape.scale > 0 &&
           cuda::attention_step_takes(c.shape.head_dim, c.half()) &&
           reinterpret_cast<std::uintptr_t>(c.qkv.raw()) % 16 == 0 &&
           in_vectors(c.cache.keys_and_values) &&
           (c.half() == 0 || (in_vectors(c.cos) && in_vectors(c.sin)));
}

void run_kernel(Stream& stream, const Call& c) {
    cuda::AttentionSplits splits;
    splits.chunks = cuda::attention_chunks(c.cache.keys_and_values.rows(), 1);
    splits.queries = 1;
    const std::int64_t rows = splits.chunks * c.shape.num_heads;
    const ScratchScope scope(stream.arena());
    const Tensor sums = stream.arena().scratch(DType::f32, {rows, c.shape.head_dim});
    const Tensor lse = stream.arena().scratch(DType::f32, {rows});
    if (!runs_on_cuda(stream)) return;
    check_vector(stream, kName, c.segments.device_cu_k, 2, DType::i32);
    splits.sums = sums.data<float>();
    splits.lse = lse.data<float>();
    cuda::AttentionWork work;
    work.dtype = c.qkv.dtype();
    work.q = cuda_rows(c.q());
    work.k = cuda_rows(c.keys());
    work.v = cuda_rows(c.values());
    work.out = cuda_rows(c.out);
    work.cu_k = c.segments.device_cu_k.data<std::int32_t>();
    work.segments = 1;
    work.q_tokens = 1;
    work.k_tokens = c.cache.keys_and_values.rows();
    work.heads = c.shape.num_heads;
    work.kv_heads = c.shape.num_kv_heads;
    work.head_dim = c.shape.head_dim;
    work.scale = c.shape.scale;
    work.window = c.shape.window;
    work.softcap = c.shape.softcap;
    cuda::AttentionStep step;
    step.key = c.qkv.slice_columns(c.q_width(), c.q_width() + c.kv_width()).raw();
    step.value = c.qkv.slice_columns(c.q_width() + c.kv_width(), c.qkv.columns()).raw();
    if (c.half() > 0) {
        step.cos = cuda_rows(c.cos);
        step.sin = cuda_rows(c.sin);
        step.table_rows = c.cos.rows();
        step.half = c.half();
    }
    step.arrivals = c.cache.arrivals.data<std::int32_t>();
    cuda::attention_step_kernels().run(stream.queue(), work, splits, step);
}

}  // namespace

void cached_attention(Stream& stream, const AttentionShape& shape,
                      const AttentionSegments& segments, const Tensor& qkv, const Tensor& cos,
                      const Tensor& sin, const Tensor& positions, const AttentionCache& cache,
                      const Tensor& out) {
    const Call call{shape, segments, qkv, cos, sin, positions, cache, out};
    check(stream, call);
    OpScope op(stream, kName, cost_of(call));
    if (is_one_kernel(stream, call)) return run_kernel(stream, call);

    const std::int64_t q_width = call.q_width();
    if (call.half() > 0) {
        rotary(stream, qkv.slice_columns(0, q_width + call.kv_width()), shape.head_dim, cos, sin,
               positions, false);
    }
    store_rows(stream, qkv.slice_columns(q_width, qkv.columns()), positions, cache.keys_and_values);
    const ScratchScope scope(stream.arena());
    const Tensor lse = stream.arena().scratch(DType::f32, {call.tokens(), shape.num_heads});
    attention_forward(stream, shape, segments, call.q(), call.keys(), call.values(), out, lse);
}

}  // namespace garam
