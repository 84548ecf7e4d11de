// Attention in bf16 on a card, kernel by kernel, at training shapes: microseconds, and TFLOP/s of the
// products that a causal mask allows (4 flops a pair and head_dim entry forward, 10 backward; of the
// backward's kernels dq and dk+dv alike 5, though each also forms scores and their gradients anew).
//
//   attention_bench [--repeats 30] [--cuts]
//
// With --cuts also other cuts into tiles of each kernel, and how far their results are from the chosen
// one's (largest difference over largest value): rerun it when kernels or cards change, and choose.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "garam/kernels/cuda/attention_backward.cuh"
#include "garam/kernels/cuda/attention_forward.cuh"
#include "garam/kernels/cuda/attention_group_backward.cuh"
#include "garam/kernels/cuda/attention_group_forward.cuh"

namespace garam::cuda {
namespace {

void check(cudaError_t status) {
    if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

template <typename T>
class Buffer {
  public:
    explicit Buffer(std::int64_t count) : count_(count) {
        check(cudaMalloc(&data_, static_cast<std::size_t>(count) * sizeof(T)));
        check(cudaMemset(data_, 0, static_cast<std::size_t>(count) * sizeof(T)));
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { cudaFree(data_); }
    T* data() const { return data_; }
    void set(const std::vector<T>& x) {
        check(cudaMemcpy(data_, x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice));
    }
    std::vector<T> get() const {
        std::vector<T> x(static_cast<std::size_t>(count_));
        check(cudaMemcpy(x.data(), data_, x.size() * sizeof(T), cudaMemcpyDeviceToHost));
        return x;
    }

  private:
    T* data_ = nullptr;
    std::int64_t count_;
};

struct Case {
    std::int64_t segments, length, heads, kv_heads, head_dim;
};

std::uint32_t random_state = 1;
void fill(const Buffer<Bf16>& buffer, std::int64_t count) {
    std::vector<Bf16> x(static_cast<std::size_t>(count));
    for (Bf16& value : x) {
        float sum = -2;  // of four uniform numbers: about a normal one
        for (int i = 0; i < 4; ++i) {
            random_state = random_state * 1664525u + 1013904223u;
            sum += static_cast<float>(random_state >> 8) * 0x1p-24f;
        }
        value = __float2bfloat16_rn(sum * 1.7f);
    }
    check(cudaMemcpy(buffer.data(), x.data(), x.size() * sizeof(Bf16), cudaMemcpyHostToDevice));
}

// Largest difference over the largest value.
double distance(const std::vector<Bf16>& x, const std::vector<Bf16>& y) {
    double difference = 0, largest = 1e-30;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double a = __bfloat162float(x[i]), b = __bfloat162float(y[i]);
        if (!std::isfinite(a)) return HUGE_VAL;
        difference = std::max(difference, std::fabs(a - b));
        largest = std::max(largest, std::fabs(b));
    }
    return difference / largest;
}

class Bench {
  public:
    Bench(const Case& c, int repeats)
        : c_(c),
          repeats_(repeats),
          tokens_(c.segments * c.length),
          q_(tokens_ * c.heads * c.head_dim),
          out_(tokens_ * c.heads * c.head_dim),
          dout_(tokens_ * c.heads * c.head_dim),
          dq_(tokens_ * c.heads * c.head_dim),
          k_(tokens_ * c.kv_heads * c.head_dim),
          v_(tokens_ * c.kv_heads * c.head_dim),
          dk_(tokens_ * c.kv_heads * c.head_dim),
          dv_(tokens_ * c.kv_heads * c.head_dim),
          lse_(tokens_ * c.heads),
          delta_(tokens_ * c.heads),
          parts_(2 * (c.heads / c.kv_heads) * tokens_ * c.kv_heads * c.head_dim),
          cu_(c.segments + 1) {
        for (const Buffer<Bf16>* x : {&q_, &dout_})
            fill(*x, tokens_ * c.heads * c.head_dim);
        for (const Buffer<Bf16>* x : {&k_, &v_})
            fill(*x, tokens_ * c.kv_heads * c.head_dim);
        std::vector<std::int32_t> cu;
        for (std::int64_t i = 0; i <= c.segments; ++i)
            cu.push_back(static_cast<std::int32_t>(i * c.length));
        cu_.set(cu);
        const std::int64_t width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
        work_.dtype = DType::bf16;
        work_.q = {q_.data(), width};
        work_.k = {k_.data(), kv_width};
        work_.v = {v_.data(), kv_width};
        work_.out = {out_.data(), width};
        work_.lse = lse_.data();
        work_.lse_pitch = c.heads;
        work_.cu_q = work_.cu_k = cu_.data();
        work_.segments = c.segments;
        work_.q_tokens = work_.k_tokens = tokens_;
        work_.heads = c.heads;
        work_.kv_heads = c.kv_heads;
        work_.head_dim = c.head_dim;
        work_.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
        gradients_.dout = {dout_.data(), width};
        gradients_.dq = {dq_.data(), width};
        gradients_.dk = {dk_.data(), kv_width};
        gradients_.dv = {dv_.data(), kv_width};
        gradients_.delta = delta_.data();
        gradients_.part_sums = parts_.data();
        int device = 0, multiprocessors = 0;
        check(cudaGetDevice(&device));
        check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
        work_.multiprocessors = multiprocessors;
        int shared_bytes = 0;
        check(
            cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
        work_.shared_bytes = shared_bytes;
        gradients_.part_rows = c.heads / c.kv_heads * tokens_;
        gradients_.parts =
            attention_parts(tokens_, c.heads, c.kv_heads, multiprocessors, kAttentionGroupKeyTile);
        std::printf("%lld x %lld tokens, heads %lld/%lld x %lld, %lld part(s)\n",
                    static_cast<long long>(c.segments), static_cast<long long>(c.length),
                    static_cast<long long>(c.heads), static_cast<long long>(c.kv_heads),
                    static_cast<long long>(c.head_dim), static_cast<long long>(gradients_.parts));
        check(cudaEventCreate(&begin_));
        check(cudaEventCreate(&end_));
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;
    ~Bench() {
        cudaEventDestroy(begin_);
        cudaEventDestroy(end_);
    }

    // The product's own path.
    void ops() {
        const AttentionKernels& kernels = attention_kernels();
        time("forward", 4, [&] { kernels.forward(nullptr, work_); });
        time("backward", 10, [&] { kernels.backward(nullptr, work_, gradients_); });
        base_out_ = out_.get();
        base_dq_ = dq_.get();
        base_dk_ = dk_.get();
        base_dv_ = dv_.get();
    }

    // The backward with the query heads of a key head in 1, 2, 3 … parts.
    void parts() {
        const std::int64_t group = c_.heads / c_.kv_heads;
        const std::int64_t chosen = gradients_.parts;
        for (gradients_.parts = 1; gradients_.parts <= group; ++gradients_.parts) {
            if (group % gradients_.parts != 0) continue;
            const std::string label = "backward: parts " + std::to_string(gradients_.parts);
            time(label.c_str(), 10,
                 [&] { attention_kernels().backward(nullptr, work_, gradients_); });
        }
        gradients_.parts = chosen;
    }

    template <typename Tiles>
    void forward_cut(const char* name) {
        clear(out_, base_out_.size());
        time(name, 4, [&] { launch_forward_cut<Tiles, true>(nullptr, work_); });
        std::printf("   out %.1e", distance(out_.get(), base_out_));
    }
    template <typename Tiles>
    void queries_cut(const char* name) {
        clear(dq_, base_dq_.size());
        time(name, 5, [&] { launch_queries_cut<Tiles, true>(nullptr, work_, gradients_); });
        std::printf("   dq %.1e", distance(dq_.get(), base_dq_));
    }
    // `parts`: 0 as the op chooses; a cut alone is only comparable, and checked, with one.
    template <typename Tiles>
    void keys_cut(const char* name, std::int64_t parts = 0) {
        AttentionGradients gradients = gradients_;
        if (parts > 0) gradients.parts = parts;
        clear(dk_, base_dk_.size());
        clear(dv_, base_dv_.size());
        const std::string label = std::string(name) + (gradients.parts > 1 ? ", parts" : "");
        time(label.c_str(), 5, [&] { launch_keys_cut<Tiles, true>(nullptr, work_, gradients); });
        if (gradients.parts > 1) return;
        std::printf("   dk %.1e dv %.1e", distance(dk_.get(), base_dk_),
                    distance(dv_.get(), base_dv_));
    }

    // Columns, warp groups, keys, stages; overlapping, in turn.
    template <typename Tiles>
    void group_forward_cut() {
        clear(out_, base_out_.size());
        char name[64];
        std::snprintf(name, sizeof(name), "forward: %d groups, %d keys, %d stages%s%s",
                      Tiles::kGroups, Tiles::kKeys, Tiles::kStages,
                      Tiles::kOverlap ? "" : ", apart", Tiles::kInTurn ? ", in turn" : "");
        time(name, 4, [&] { launch_group_forward_cut<Tiles>(nullptr, work_); });
        std::printf("   out %.1e", distance(out_.get(), base_out_));
    }
    template <typename Tiles>
    void group_queries_cut(const char* name) {
        clear(dq_, base_dq_.size());
        time(name, 5, [&] { launch_group_queries_cut<Tiles>(nullptr, work_, gradients_); });
        std::printf("   dq %.1e", distance(dq_.get(), base_dq_));
    }
    template <typename Tiles>
    void group_keys_cut(const char* name, std::int64_t parts = 0) {
        AttentionGradients gradients = gradients_;
        if (parts > 0) gradients.parts = parts;
        clear(dk_, base_dk_.size());
        clear(dv_, base_dv_.size());
        const std::string label = std::string(name) + (gradients.parts > 1 ? ", parts" : "");
        time(label.c_str(), 5, [&] { launch_group_keys_cut<Tiles>(nullptr, work_, gradients); });
        if (gradients.parts > 1) return;
        std::printf("   dk %.1e dv %.1e", distance(dk_.get(), base_dk_),
                    distance(dv_.get(), base_dv_));
    }

  private:
    static void clear(const Buffer<Bf16>& x, std::size_t count) {
        check(cudaMemset(x.data(), 0xff, count * sizeof(Bf16)));
    }

    // Median over runs, each between two events of its own.
    void time(const char* name, double flops_of_pair, const std::function<void()>& run) {
        for (int i = 0; i < 3; ++i)
            run();
        std::vector<float> times;
        for (int i = 0; i < repeats_; ++i) {
            check(cudaEventRecord(begin_));
            run();
            check(cudaEventRecord(end_));
            check(cudaEventSynchronize(end_));
            float milliseconds = 0;
            check(cudaEventElapsedTime(&milliseconds, begin_, end_));
            times.push_back(milliseconds * 1000);
        }
        std::sort(times.begin(), times.end());
        const double middle = times[times.size() / 2];
        const double length = static_cast<double>(c_.length);
        const double pairs = static_cast<double>(c_.segments) * length * (length + 1) / 2;
        const double flops = flops_of_pair * pairs * static_cast<double>(c_.heads * c_.head_dim);
        std::printf("\n  %-44s %8.1f us (%.1f to %.1f) %7.1f TFLOP/s", name, middle,
                    static_cast<double>(times.front()), static_cast<double>(times.back()),
                    flops / middle * 1e-6);
    }

    Case c_;
    int repeats_;
    std::int64_t tokens_;
    Buffer<Bf16> q_, out_, dout_, dq_, k_, v_, dk_, dv_;
    Buffer<float> lse_, delta_, parts_;
    Buffer<std::int32_t> cu_;
    AttentionWork work_;
    AttentionGradients gradients_;
    std::vector<Bf16> base_out_, base_dq_, base_dk_, base_dv_;
    cudaEvent_t begin_{}, end_{};
};

template <int kHeadDim>
void group_forward_cuts(Bench& bench) {
    if constexpr (kHeadDim <= 96) {
        constexpr int kMore = kHeadDim == 64 ? 1 : 0;  // stages that fit
        bench.group_forward_cut<GroupForwardCut<kHeadDim, 3, 64, 4 + kMore>>();
        bench.group_forward_cut<GroupForwardCut<kHeadDim, 3, 64, 4 + kMore, true, true>>();
        bench.group_forward_cut<GroupForwardCut<kHeadDim, 3, 80, 3 + kMore>>();
        bench.group_forward_cut<GroupForwardCut<kHeadDim, 2, 96, 3 + kMore>>();
        bench.group_forward_cut<GroupForwardCut<kHeadDim, 2, 128, 2 + kMore>>();
        bench.group_forward_cut<GroupForwardCut<kHeadDim, 2, 128, 2 + kMore, true, true>>();
    }
    if constexpr (kHeadDim <= 80) {
        bench.group_forward_cut<GroupForwardCut<kHeadDim, 3, 96, 4>>();
        bench.group_forward_cut<GroupForwardCut<kHeadDim, 3, 96, 4, false>>();
        bench.group_forward_cut<GroupForwardCut<kHeadDim, 3, 96, 4, true, true>>();
        bench.group_forward_cut<GroupForwardCut<kHeadDim, 2, 128, 3>>();
    }
    if constexpr (kHeadDim == 64) bench.group_forward_cut<GroupForwardCut<kHeadDim, 3, 128, 3>>();
    if constexpr (kHeadDim == 128) {
        bench.group_forward_cut<GroupForwardCut<kHeadDim, 3, 64, 3>>();
        bench.group_forward_cut<GroupForwardCut<kHeadDim, 3, 64, 3, true, true>>();
        bench.group_forward_cut<GroupForwardCut<kHeadDim, 2, 80, 3>>();
        bench.group_forward_cut<GroupForwardCut<kHeadDim, 2, 96, 2>>();
        bench.group_forward_cut<GroupForwardCut<kHeadDim, 2, 128, 2>>();
        bench.group_forward_cut<GroupForwardCut<kHeadDim, 2, 128, 2, true, true>>();
    }
}

template <int kHeadDim>
void run_case(const Case& c, int repeats, bool cuts) {
    Bench bench(c, repeats);
    bench.ops();
    bench.queries_cut<QueryTiles<kHeadDim>>("dq: as chosen");
    bench.keys_cut<KeyTiles<kHeadDim>>("dk, dv: as chosen");
    bench.group_queries_cut<GroupQueryCut<kHeadDim, 2, 64, 3>>("dq: 2 groups, 64 keys");
    bench.group_keys_cut<GroupKeyCut<kHeadDim, 2, 64, 3>>("dk, dv: 2 groups, 3 stages", 1);
    if constexpr (kHeadDim <= 80) {
        bench.group_queries_cut<GroupQueryCut<kHeadDim, 2, 128, 3>>("dq: 2 groups, 128 keys");
        bench.group_queries_cut<GroupQueryCut<kHeadDim, 3, 64, 4>>("dq: 3 groups, 64 keys");
        bench.group_queries_cut<GroupQueryCut<kHeadDim, 3, 64, 5>>("dq: 3 groups, 5 stages");
        bench.group_keys_cut<GroupKeyCut<kHeadDim, 2, 64, 6>>("dk, dv: 2 groups, 6 stages", 1);
    }
    if constexpr (kHeadDim == 96)
        bench.group_queries_cut<GroupQueryCut<kHeadDim, 3, 64, 3>>("dq: 3 groups, 64 keys");
    if constexpr (kHeadDim <= 96)
        bench.group_keys_cut<GroupKeyCut<kHeadDim, 2, 64, 5>>("dk, dv: 2 groups, 5 stages", 1);
    if (cuts) {
        group_forward_cuts<kHeadDim>(bench);
        bench.parts();
        bench.forward_cut<ForwardCut<kHeadDim, 4, 2, 64, 2>>(
            "forward: 4 warps x 32, 64 keys, 2 blocks");
        bench.forward_cut<ForwardCut<kHeadDim, 4, 2, 32, 2>>(
            "forward: 4 warps x 32, 32 keys, 2 blocks");
        bench.forward_cut<ForwardCut<kHeadDim, 8, 1, 64, 2>>(
            "forward: 8 warps x 16, 64 keys, 2 blocks");
        if constexpr (kHeadDim <= 80) {
            bench.forward_cut<ForwardCut<kHeadDim, 4, 2, 32, 3>>(
                "forward: 4 warps x 32, 32 keys, 3 blocks");
            bench.forward_cut<ForwardCut<kHeadDim, 4, 1, 64, 4>>(
                "forward: 4 warps x 16, 64 keys, 4 blocks");
            bench.forward_cut<ForwardCut<kHeadDim, 4, 1, 64, 3>>(
                "forward: 4 warps x 16, 64 keys, 3 blocks");
            bench.queries_cut<QueryCut<kHeadDim, 4, 2, 64, 2>>(
                "dq: 4 warps x 32, 64 keys, 2 blocks");
        }
        bench.queries_cut<QueryCut<kHeadDim, 4, 2, 32, 2>>("dq: 4 warps x 32, 32 keys, 2 blocks");
        bench.queries_cut<QueryCut<kHeadDim, 4, 1, 32, 3>>("dq: 4 warps x 16, 32 keys, 3 blocks");
        bench.queries_cut<QueryCut<kHeadDim, 8, 1, 32, 2>>("dq: 8 warps x 16, 32 keys, 2 blocks");
        constexpr bool kHeld = kHeadDim <= 80;
        bench.keys_cut<KeyCut<kHeadDim, 1, 1, 64, 64, kHeld, 2>>(
            "dk, dv: 16 keys a warp, 64 queries, 2 blocks", 1);
        bench.keys_cut<KeyCut<kHeadDim, 1, 1, 64, 32, kHeld, 2>>(
            "dk, dv: 16 keys a warp, 64/32 queries, 2 blocks", 1);
        bench.keys_cut<KeyCut<kHeadDim, 1, 1, 32, 32, kHeld, 2>>(
            "dk, dv: 16 keys a warp, 32 queries, 2 blocks", 1);
        if constexpr (kHeadDim <= 80) {
            bench.keys_cut<KeyCut<kHeadDim, 1, 1, 32, 32, false, 3>>(
                "dk, dv: 16 keys a warp, 32 queries, 3 blocks", 1);
            bench.keys_cut<KeyCut<kHeadDim, 2, 1, 32, 32, false, 2>>(
                "dk, dv: 32 keys a warp, 32 queries, 2 blocks", 1);
            bench.keys_cut<KeyCut<kHeadDim, 2, 1, 64, 16, false, 2>>(
                "dk, dv: 32 keys a warp, 64/16 queries, 2 blocks", 1);
        }
    }
    std::printf("\n");
    std::fflush(stdout);
}

void run_all(int repeats, bool cuts) {
    constexpr std::int64_t kLengths[][2] = {{16, 512}, {4, 2048}, {2, 512}};
    for (const auto& [segments, length] : kLengths) {
        run_case<80>({segments, length, 32, 8, 80}, repeats, cuts);
        run_case<128>({segments, length, 32, 8, 128}, repeats, cuts);
        run_case<64>({segments, length, 9, 3, 64}, repeats, cuts);
    }
}

}  // namespace
}  // namespace garam::cuda

int main(int argc, char** argv) {
    int repeats = 30;
    bool cuts = false;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if (argument == "--cuts") {
            cuts = true;
        } else if (argument == "--repeats" && i + 1 < argc && std::atoi(argv[i + 1]) > 0) {
            repeats = std::atoi(argv[++i]);
        } else {
            std::fprintf(stderr, "attention_bench [--repeats N] [--cuts]\n");
            return 2;
        }
    }
    try {
        garam::cuda::run_all(repeats, cuts);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "attention_bench: %s\n", error.what());
        return 1;
    }
}
