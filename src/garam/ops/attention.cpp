#include "garam/ops/attention.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "garam/kernels/cuda/attention.h"
#include "garam/ops/checks.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {
namespace {

constexpr std::int64_t kBlock = cpu::kAttentionBlock;
// Query heads of one key/value head that a worker takes together: they share its packed keys.
constexpr std::int64_t kMostHeads = 4;

std::int64_t length(const std::vector<std::int32_t>& cu, std::size_t segment) {
    return cu[segment + 1] - cu[segment];
}

void check_segments(const AttentionSegments& segments, std::int64_t q_tokens, std::int64_t k_tokens,
                    bool equal) {
    const auto& cu_q = segments.cu_q;
    const auto& cu_k = segments.cu_k;
    GARAM_CHECK(!cu_q.empty() && cu_q.size() == cu_k.size(),
                "attention: cu_q and cu_k of different lengths");
    GARAM_CHECK(cu_q.front() == 0 && cu_k.front() == 0 && cu_q.back() == q_tokens &&
                    (equal ? cu_k.back() == k_tokens : cu_k.back() <= k_tokens),
                "attention: segments do not cover the tokens");
    for (std::size_t s = 0; s + 1 < cu_q.size(); ++s) {
        const std::int64_t lq = length(cu_q, s);
        const std::int64_t lk = length(cu_k, s);
        GARAM_CHECK(lq >= 0 && lk >= 0 && (lq == 0 || lk >= lq) && (!equal || lk == lq),
                    "attention: segment " + std::to_string(s) + " has " + std::to_string(lq) +
                        " queries and " + std::to_string(lk) + " keys");
        GARAM_CHECK(segments.max_queries == 0 || lq <= segments.max_queries,
                    "attention: segment " + std::to_string(s) + " has " + std::to_string(lq) +
                        " queries, max_queries is " + std::to_string(segments.max_queries));
    }
}

void check_shape(const Stream& stream, const AttentionShape& shape) {
    GARAM_CHECK(shape.num_heads > 0 && shape.num_kv_heads > 0 && shape.head_dim > 0 &&
                    shape.num_heads % shape.num_kv_heads == 0,
                "attention: " + std::to_string(shape.num_heads) + " query heads over " +
                    std::to_string(shape.num_kv_heads) + " key/value heads");
    GARAM_CHECK(shape.window >= 0 && shape.softcap >= 0, "attention: negative window or soft cap");
    if (stream.is_for_cuda()) {
        GARAM_CHECK(shape.scale > 0, "attention on a card: scale must be positive");
        if (shape.head_dim > cuda::kMostHeadDim)
            throw Error("attention: head_dim " + std::to_string(shape.head_dim) +
                        ", but a card takes at most " + std::to_string(cuda::kMostHeadDim) +
                        ": use device=cpu");
    }
}

// Pairs (query, key) that the causal mask and the window allow.
double allowed_pairs(const AttentionShape& shape, const AttentionSegments& segments) {
    double pairs = 0;
    for (std::size_t s = 0; s + 1 < segments.cu_q.size(); ++s) {
        const std::int64_t lk = length(segments.cu_k, s);
        const std::int64_t lq = length(segments.cu_q, s);
        // Query i of position p sees min(p + 1, window) keys: as many as its position up to `whole`.
        const std::int64_t window = shape.window > 0 ? std::min(shape.window, lk) : lk;
        const std::int64_t begin = lk - lq;
        const std::int64_t whole = std::max(begin, window);
        const auto sum_to = [](std::int64_t n) {
            return static_cast<double>(n) * static_cast<double>(n + 1) / 2;
        };
        pairs += sum_to(whole) - sum_to(begin) +
                 static_cast<double>(lk - whole) * static_cast<double>(window);
    }
    return pairs;
}

// Bytes of the rows of a cache that are filled.
double filled_bytes(const AttentionSegments& segments, const Tensor& cache) {
    return static_cast<double>(segments.cu_k.back()) * static_cast<double>(cache.columns()) *
           static_cast<double>(size_of(cache.dtype()));
}

// --- on a card ----------------------------------------------------------------------------------

cuda::AttentionWork cuda_work(Stream& stream, const char* name, const AttentionShape& shape,
                              const AttentionSegments& segments, const Tensor& q, const Tensor& k,
                              const Tensor& v, const Tensor& out, const Tensor& lse) {
    const auto entries = static_cast<std::int64_t>(segments.cu_q.size());
    check_vector(stream, name, segments.device_cu_q, entries, DType::i32);
    check_vector(stream, name, segments.device_cu_k, entries, DType::i32);
    cuda::AttentionWork work;
    work.dtype = q.dtype();
    work.q = cuda_rows(q);
    work.k = cuda_rows(k);
    work.v = cuda_rows(v);
    work.out = cuda_rows(out);
    work.lse = lse.data<float>();
    work.lse_pitch = lse.pitch();
    work.cu_q = segments.device_cu_q.data<std::int32_t>();
    work.cu_k = segments.device_cu_k.data<std::int32_t>();
    work.segments = entries - 1;
    work.q_tokens = q.rows();
    work.k_tokens = k.rows();
    work.heads = shape.num_heads;
    work.kv_heads = shape.num_kv_heads;
    work.head_dim = shape.head_dim;
    work.scale = shape.scale;
    work.window = shape.window;
    work.softcap = shape.softcap;
    const DeviceProfile& profile = stream.device().profile();
    work.multiprocessors = profile.multiprocessors;
    work.shared_bytes = profile.shared_bytes;
    return work;
}

// Whether, and into how much, the keys are cut. By shapes and promises alone: recorded work serves all
// lengths.
std::optional<cuda::AttentionSplits> splits_of(const AttentionSegments& segments, const Tensor& q,
                                               const Tensor& k) {
    const std::int64_t queries =
        segments.max_queries > 0 ? std::min(segments.max_queries, q.rows()) : q.rows();
    if (queries > cuda::kMostSplitQueries || k.rows() <= cuda::kAttentionChunk) return {};
    cuda::AttentionSplits splits;
    splits.chunks =
        cuda::attention_chunks(k.rows(), static_cast<std::int64_t>(segments.cu_q.size()) - 1);
    splits.queries = queries;
    return splits;
}

// --- on the CPU ---------------------------------------------------------------------------------

const cpu::AttentionKernels& kernels_for(const Stream& stream, DType dtype) {
    return dtype == DType::bf16 && stream.device().profile().bf16_tiles
               ? cpu::tiled_bf16_attention()
               : element_kernels(stream, dtype).attention;
}

// Beyond every length where there is none.
std::int64_t cpu_window(const AttentionShape& shape) {
    return shape.window > 0 ? shape.window : std::int64_t{1} << 40;
}

// A block of queries of the heads [head, head + heads), which share a key/value head.
struct ForwardItem {
    std::size_t segment;
    std::int64_t query;  // within the segment
    std::int64_t head, heads;
};

std::vector<ForwardItem> forward_items(const AttentionShape& shape,
                                       const AttentionSegments& segments) {
    std::vector<ForwardItem> items;
    const std::int64_t group = shape.num_heads / shape.num_kv_heads;
    for (std::size_t s = 0; s + 1 < segments.cu_q.size(); ++s)
        for (std::int64_t query = 0; query < length(segments.cu_q, s); query += kBlock)
            for (std::int64_t kv = 0; kv < shape.num_kv_heads; ++kv)
                for (std::int64_t h = 0; h < group; h += kMostHeads)
                    items.push_back({s, query, kv * group + h, std::min(kMostHeads, group - h)});
    return items;
}

}  // namespace

void attention_forward(Stream& stream, const AttentionShape& shape,
                       const AttentionSegments& segments, const Tensor& q, const Tensor& k,
                       const Tensor& v, const Tensor& out, const Tensor& lse) {
    constexpr const char* kName = "attention_forward";
    const std::int64_t heads = shape.num_heads;
    const std::int64_t d = shape.head_dim;
    check_shape(stream, shape);
    check_compute_dtype(kName, q);
    check_segments(segments, q.rows(), k.rows(), false);
    check_matrix(stream, kName, q, q.rows(), heads * d, q.dtype());
    check_matrix(stream, kName, k, k.rows(), shape.num_kv_heads * d, q.dtype());
    check_matrix(stream, kName, v, k.rows(), shape.num_kv_heads * d, q.dtype());
    check_matrix(stream, kName, out, q.rows(), heads * d, q.dtype());
    check_matrix(stream, kName, lse, q.rows(), heads, DType::f32);

    Cost cost;
    cost.flops = 4 * allowed_pairs(shape, segments) * static_cast<double>(heads * d);
    cost.bytes_read = bytes_of({&q}) + filled_bytes(segments, k) + filled_bytes(segments, v);
    cost.bytes_written = bytes_of({&out, &lse});
    OpScope op(stream, kName, cost);

    const ScratchScope scope(stream.arena());
    if (stream.is_for_cuda()) {
        std::optional<cuda::AttentionSplits> splits = splits_of(segments, q, k);
        if (splits) {
            const std::int64_t rows = splits->chunks * splits->queries * heads;
            const Tensor sums = stream.arena().scratch(DType::f32, {rows, d});
            const Tensor chunk_lse = stream.arena().scratch(DType::f32, {rows});
            splits->sums = sums.data<float>();
            splits->lse = chunk_lse.data<float>();
        }
        if (!runs_on_cuda(stream)) return;
        const cuda::AttentionWork work =
            cuda_work(stream, kName, shape, segments, q, k, v, out, lse);
        if (splits)
            cuda::attention_kernels().decode(stream.queue(), work, *splits);
        else
            cuda::attention_kernels().forward(stream.queue(), work);
        return;
    }

    const cpu::AttentionKernels& kernels = kernels_for(stream, q.dtype());
    const std::vector<ForwardItem> items = forward_items(shape, segments);
    const std::int64_t count = static_cast<std::int64_t>(items.size());
    const std::int64_t workers = workers_for(stream, count);
    const std::int64_t group = heads / shape.num_kv_heads;
    const Tensor scratch = stream.arena().scratch(
        DType::f32, {workers, kernels.forward_scratch(std::min(kMostHeads, group), d)});
    if (op.dry()) return;

    for_items(workers, count, [&](std::int64_t worker, std::int64_t index) {
        // The blocks with the most keys first, so that no worker ends on a long one.
        const ForwardItem& item = items[static_cast<std::size_t>(count - 1 - index)];
        const std::int64_t q_row = segments.cu_q[item.segment] + item.query;
        const std::int64_t k_row = segments.cu_k[item.segment];
        const std::int64_t lq = length(segments.cu_q, item.segment);
        const std::int64_t lk = length(segments.cu_k, item.segment);
        const std::int64_t kv_column = item.head / group * d;
        cpu::AttentionForward block{};
        block.q = rows_of(q, q_row, item.head * d);
        block.k = rows_of(k, k_row, kv_column);
        block.v = rows_of(v, k_row, kv_column);
        block.out = rows_of(out, q_row, item.head * d);
        block.lse = element_at<float>(lse, q_row, item.head);
        block.lse_pitch = lse.pitch();
        block.queries = std::min(kBlock, lq - item.query);
        block.heads = item.heads;
        block.head_dim = d;
        block.visible = lk - lq + item.query + 1;
        block.window = cpu_window(shape);
        block.scale = shape.scale;
        block.softcap = shape.softcap;
        kernels.forward(block, element_at<float>(scratch, worker, 0));
    });
}

void attention_backward(Stream& stream, const AttentionShape& shape,
                        const AttentionSegments& segments, const Tensor& dout, const Tensor& q,
                        const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse,
                        const Tensor& dq, const Tensor& dk, const Tensor& dv) {
    constexpr const char* kName = "attention_backward";
    const std::int64_t heads = shape.num_heads;
    const std::int64_t kv_heads = shape.num_kv_heads;
    const std::int64_t d = shape.head_dim;
    const std::int64_t tokens = q.rows();
    check_shape(stream, shape);
    check_compute_dtype(kName, q);
    check_segments(segments, tokens, k.rows(), true);
    for (const Tensor* x : {&q, &out, &dout, &dq})
        check_matrix(stream, kName, *x, tokens, heads * d, q.dtype());
    for (const Tensor* x : {&k, &v, &dk, &dv})
        check_matrix(stream, kName, *x, tokens, kv_heads * d, q.dtype());
    check_matrix(stream, kName, lse, tokens, heads, DType::f32);

    Cost cost;
    cost.flops = 10 * allowed_pairs(shape, segments) * static_cast<double>(heads * d);
    cost.bytes_read = bytes_of({&dout, &q, &k, &v, &out, &lse});
    cost.bytes_written = bytes_of({&dq, &dk, &dv});
    OpScope op(stream, kName, cost);

    const ScratchScope scope(stream.arena());
    if (stream.is_for_cuda()) {
        const Tensor delta = stream.arena().scratch(DType::f32, {tokens, heads});
        cuda::AttentionGradients gradients;
        const std::int64_t rows = cuda::attention_part_rows(
            q.dtype(), tokens, heads, kv_heads, stream.device().profile().multiprocessors);
        const Tensor part_sums =
            rows > 0 ? stream.arena().scratch(DType::f32, {2 * rows, kv_heads * d}) : Tensor();
        if (!runs_on_cuda(stream)) return;
        gradients.dout = cuda_rows(dout);
        gradients.dq = cuda_rows(dq);
        gradients.dk = cuda_rows(dk);
        gradients.dv = cuda_rows(dv);
        gradients.delta = delta.data<float>();
        gradients.part_rows = rows;
        if (rows > 0) gradients.part_sums = part_sums.data<float>();
        cuda::attention_kernels().backward(
            stream.queue(), cuda_work(stream, kName, shape, segments, q, k, v, out, lse),
            gradients);
        return;
    }

    const cpu::AttentionKernels& attention = kernels_for(stream, q.dtype());
    const std::int64_t num_segments = static_cast<std::int64_t>(segments.cu_q.size()) - 1;
    const std::int64_t count = num_segments * kv_heads;
    const std::int64_t workers = workers_for(stream, count);
    const Tensor scratch =
        stream.arena().scratch(DType::f32, {workers, attention.backward_scratch(d)});
    const Tensor delta = stream.arena().scratch(DType::f32, {tokens, heads});
    // dq is summed over blocks of keys in fp32: in place, or beside when its dtype is narrower.
    const bool in_place = dq.dtype() == DType::f32;
    const Tensor sums = in_place ? dq : stream.arena().scratch(DType::f32, {tokens, heads * d});
    if (op.dry()) return;

    const cpu::ElementKernels& kernels = element_kernels(stream, q.dtype());
    parallel_for(tokens, rows_per_piece(heads * d), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t)
            kernels.attention_delta(element_at(dout, t, 0), element_at(out, t, 0), heads, d,
                                    element_at<float>(delta, t, 0));
    });
    GARAM_CHECK(lse.is_dense(), "attention_backward: lse must be dense");
    const std::int64_t group = heads / kv_heads;
    for_items(workers, count, [&](std::int64_t worker, std::int64_t index) {
        const std::size_t segment = static_cast<std::size_t>(index / kv_heads);
        const std::int64_t kv = index % kv_heads;
        const std::int64_t row = segments.cu_q[segment];
        const std::int64_t head = kv * group;
        cpu::AttentionBackward work{};
        work.q = rows_of(q, row, head * d);
        work.k = rows_of(k, row, kv * d);
        work.v = rows_of(v, row, kv * d);
        work.dout = rows_of(dout, row, head * d);
        work.dk = rows_of(dk, row, kv * d);
        work.dv = rows_of(dv, row, kv * d);
        work.lse = element_at<float>(lse, row, head);
        work.delta = element_at<float>(delta, row, head);
        work.lse_pitch = heads;
        work.dq = element_at<float>(sums, row, head * d);
        work.dq_pitch = sums.pitch();
        work.length = length(segments.cu_q, segment);
        work.heads = group;
        work.head_dim = d;
        work.window = cpu_window(shape);
        work.scale = shape.scale;
        work.softcap = shape.softcap;
        attention.backward(work, element_at<float>(scratch, worker, 0));
    });
    if (in_place) return;
    for_runs(dq.is_dense(), tokens, heads * d,
             [&](std::int64_t row, std::int64_t column, std::int64_t n) {
                 kernels.from_f32(element_at<float>(sums, row, column), element_at(dq, row, column),
                                  n);
             });
}

}  // namespace garam
