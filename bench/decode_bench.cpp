// Where a decoded token of the 2.4B shape spends its time on a card (bf16, no adapter): each kernel of a layer
// by itself, thirty times over the weights of thirty layers, then layers of them without and with
// attention, and all of a token. Recorded; beside the time that the weights' bytes need.
//
//   decode_bench [device]      cuda unless named
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "garam/ops/cached_attention.h"
#include "garam/ops/elementwise.h"
#include "garam/ops/matmul.h"
#include "garam/ops/row_matmul.h"
#include "garam/runtime/transfer.h"

namespace garam::bench {
namespace {

constexpr double kBandwidth = 3.0e12;  // bytes a second
constexpr std::int64_t kLayers = 30, kHidden = 2560, kFfn = 7168, kVocab = 102400;
constexpr std::int64_t kHeads = 32, kKvHeads = 8, kHeadDim = 80, kCapacity = 1024;
constexpr std::int64_t kQkv = (kHeads + 2 * kKvHeads) * kHeadDim;
constexpr float kEps = 1e-5f;

struct Layer {
    Tensor qkv, o, gate_up, down, norm;
    AttentionCache cache;
};

class Bench {
  public:
    explicit Bench(const DeviceProfile& profile)
        : device_(make_device(profile)),
          arena_(*device_, std::int64_t{5} << 30),
          stream_(*device_, arena_, meter_) {
        const Tensor arrivals = zeros(DType::i32, {kHeads});
        for (std::int64_t l = 0; l < kLayers; ++l)
            layers_.push_back({filled(kQkv, kHidden),
                               filled(kHidden, kHidden),
                               filled(2 * kFfn, kHidden),
                               filled(kHidden, kFfn),
                               filled(1, kHidden),
                               {filled(kCapacity, 2 * kKvHeads * kHeadDim), arrivals}});
        head_ = filled(kVocab, kHidden);
        x_ = filled(1, kHidden);
        middle_ = filled(1, kHidden);
        qkv_ = filled(1, kQkv);
        attended_ = filled(1, kHidden);
        gate_up_ = filled(1, 2 * kFfn);
        logits_ = zeros(DType::f32, {1, kVocab});
        cos_ = zeros(DType::f32, {kCapacity, kHeadDim / 2});
        sin_ = zeros(DType::f32, {kCapacity, kHeadDim / 2});
        positions_ = zeros(DType::i32, {1});
        segments_.device_cu_q = zeros(DType::i32, {2});
        segments_.device_cu_k = zeros(DType::i32, {2});
    }

    void run() {
        const std::int64_t qkv = kQkv * kHidden, o = kHidden * kHidden,
                           gate_up = 2 * kFfn * kHidden, down = kHidden * kFfn;
        const std::int64_t layer = qkv + o + gate_up + down;
        row("qkv", qkv, [&](const Layer& l) { project_qkv(l); });
        row("o", o, [&](const Layer& l) { project_o(l); });
        row("gate_up", gate_up, [&](const Layer& l) { project_gate_up(l); });
        row("down", down, [&](const Layer& l) { project_down(l); });
        time("head", kVocab * kHidden, 4, [&] {
            for (int i = 0; i < 4; ++i)
                project_head();
        });
        row("layer, products", layer, [&](const Layer& l) {
            project_qkv(l);
            project_o(l);
            project_gate_up(l);
            project_down(l);
        });
        for (const std::int32_t keys : {100, 200, 1000}) {
            see(keys);
            const std::string of = ", " + std::to_string(keys) + " keys";
            row("attention" + of, keys * 2 * kKvHeads * kHeadDim,
                [&](const Layer& l) { attend(l); });
            row("layer" + of, layer, [&](const Layer& l) { whole(l); });
            time("token" + of, kLayers * layer + kVocab * kHidden, 1, [&] {
                for (const Layer& l : layers_)
                    whole(l);
                project_head();
            });
        }
    }

  private:
    Tensor zeros(DType dtype, const Shape& shape) {
        const Tensor x = arena_.push(dtype, shape, Purpose::weights);
        clear(stream_, x);
        return x;
    }
    Tensor filled(std::int64_t rows, std::int64_t columns) {
        const Tensor x = arena_.push(DType::bf16, {rows, columns}, Purpose::weights);
        fill(stream_, 0.01f, x);
        return x;
    }
    void see(std::int32_t keys) {
        const std::int32_t position = keys - 1;
        segments_.cu_q = {0, 1};
        segments_.cu_k = {0, keys};
        copy_to_device(stream_, &position, positions_);
        copy_to_device(stream_, segments_.cu_q.data(), segments_.device_cu_q);
        copy_to_device(stream_, segments_.cu_k.data(), segments_.device_cu_k);
        stream_.synchronize();
    }

    void project_qkv(const Layer& l) { rms_norm_matmul(stream_, x_, l.norm, kEps, l.qkv, qkv_); }
    void attend(const Layer& l) {
        cached_attention(stream_, {kHeads, kKvHeads, kHeadDim, 0.11f}, segments_, qkv_, cos_, sin_,
                         positions_, l.cache, attended_);
    }
    void project_o(const Layer& l) {
        matmul(stream_, attended_, l.o, middle_,
               {.transpose_b = true, .b_is_settled = true, .addend = x_});
    }
    void project_gate_up(const Layer& l) {
        rms_norm_matmul(stream_, middle_, l.norm, kEps, l.gate_up, gate_up_);
    }
    void project_down(const Layer& l) {
        gated_activation_matmul(stream_, Activation::silu, gate_up_.slice_columns(0, kFfn),
                                gate_up_.slice_columns(kFfn, 2 * kFfn), l.down, x_,
                                {.addend = middle_});
    }
    void whole(const Layer& l) {
        project_qkv(l);
        attend(l);
        project_o(l);
        project_gate_up(l);
        project_down(l);
    }
    void project_head() {
        rms_norm_matmul(stream_, x_, layers_.front().norm, kEps, head_, logits_);
    }

    void row(const std::string& name, std::int64_t elements,
             const std::function<void(const Layer&)>& run) {
        time(name, elements, kLayers, [&] {
            for (const Layer& layer : layers_)
                run(layer);
        });
    }
    // `runs` of what reads so many elements of bf16 each.
    void time(const std::string& name, std::int64_t elements, std::int64_t runs,
              const std::function<void()>& work) {
        work();  // loads kernels, which is not for a recording
        device_->begin_recording(stream_.queue());
        work();
        const auto recorded = device_->end_recording(stream_.queue());
        std::vector<double> seconds;
        for (int repeat = 0; repeat < 13; ++repeat) {
            const auto begin = device_->make_event();
            const auto end = device_->make_event();
            begin->record(stream_.queue());
            recorded->enqueue(stream_.queue());
            end->record(stream_.queue());
            seconds.push_back(end->seconds_since(*begin));
        }
        std::sort(seconds.begin(), seconds.end());
        const double micro = seconds[seconds.size() / 2] / static_cast<double>(runs) * 1e6;
        const double floor = 2.0 * static_cast<double>(elements) / kBandwidth * 1e6;
        std::printf("%-24s %9.2f %9.2f %9.1f\n", name.c_str(), micro, floor, 100 * floor / micro);
        std::fflush(stdout);
    }

    std::unique_ptr<Device> device_;
    Arena arena_;
    Meter meter_;
    Stream stream_;
    std::vector<Layer> layers_;
    Tensor head_, x_, middle_, qkv_, attended_, gate_up_, logits_, cos_, sin_, positions_;
    AttentionSegments segments_;
};

}  // namespace
}  // namespace garam::bench

int main(int argc, char** argv) {
    const garam::DeviceProfile profile = garam::profile_of_device(argc > 1 ? argv[1] : "cuda");
    if (!profile.is_cuda()) {
        std::fprintf(stderr, "decode_bench: a card's kernels\n");
        return 1;
    }
    std::printf("%s\n%-24s %9s %9s %9s\n", profile.name.c_str(), "one of", "us", "floor us", "%");
    garam::bench::Bench(profile).run();
    return 0;
}
