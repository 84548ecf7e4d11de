// Times of the ops on groups of adapters at the 2.4B shape (rank 16, dropout 0.05), beside the time that
// their bytes need: recorded runs over as many operands as outgrow the card's cache.
//
//   lora_bench [device]      cuda unless named
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "garam/core/philox.h"
#include "garam/ops/lora.h"
#include "garam/runtime/transfer.h"

namespace garam::bench {
namespace {

constexpr double kBandwidth = 3.0e12;  // bytes a second
constexpr std::int64_t kRank = 16;
constexpr std::int64_t kCached = std::int64_t{160} << 20;  // bytes that no cache holds
constexpr int kRuns = 48;

struct Linears {
    const char* name;
    std::int64_t in;
    std::vector<std::int64_t> ends;  // of the parts in the stacked output
};

// Operands of one set; the ops go round the sets.
struct Operands {
    Tensor x, dx, dy, u, dh, kept;
};

class Bench {
  public:
    explicit Bench(const DeviceProfile& profile)
        : device_(make_device(profile)),
          arena_(*device_, std::int64_t{6} << 30),
          stream_(*device_, arena_, meter_) {}

    void time(const Linears& linears, std::int64_t tokens) {
        const ScratchScope scope(arena_);
        const std::int64_t out = linears.ends.back();
        const auto parts = static_cast<std::int64_t>(linears.ends.size());
        const std::int64_t tail = (parts * kRank + 31) / 32 * 32;
        LoraGroup group;
        group.rank = kRank;
        group.scaling = 2;
        group.dropout = 0.05f;
        group.A = random(tail, linears.in);
        group.B = random(out, tail);
        std::int64_t begin = 0;
        for (const std::int64_t end : linears.ends) {
            group.parts.push_back({begin, end, static_cast<std::uint32_t>(group.parts.size()),
                                   zeros(DType::f32, {kRank, linears.in}),
                                   zeros(DType::f32, {end - begin, kRank})});
            begin = end;
        }
        LoraMask mask{true, 7, zeros(DType::i32, {1}), zeros(DType::i32, {tokens}),
                      zeros(DType::i64, {tokens})};
        const std::int64_t kept = lora_kept_bytes(group, linears.in);

        const std::int64_t least = tokens * 2 * std::min(linears.in, out);
        const std::int64_t count = std::max<std::int64_t>(3, (kCached + least - 1) / least);
        std::vector<Operands> sets;
        for (std::int64_t i = 0; i < count; ++i)
            sets.push_back({random(tokens, linears.in), random(tokens, linears.in),
                            random(tokens, out), random(tokens, tail), random(tokens, tail),
                            zeros(DType::u8, {tokens, kept})});

        const auto bytes = [&](std::int64_t columns) {
            return 2.0 * static_cast<double>(tokens) * static_cast<double>(columns);
        };
        const double bits = static_cast<double>(tokens) * static_cast<double>(kept);
        const auto with = [&](const Operands& set, bool is_written) {
            mask.kept = set.kept;
            mask.kept_is_written = is_written;
            return mask;
        };
        const auto row = [&](const char* op, double moved,
                             const std::function<void(const Operands&)>& run) {
            const double micro = microseconds(sets, run);
            const double floor = moved / kBandwidth * 1e6;
            std::printf("%-22s %-8s %6lld %9.1f %9.1f %7.2f\n", op, linears.name,
                        static_cast<long long>(tokens), micro, floor, micro / floor);
        };
        row("lora_down", bytes(linears.in) + bits, [&](const Operands& set) {
            lora_down(stream_, group, with(set, false), set.x, set.u);
        });
        row("lora_up_backward", bytes(out),
            [&](const Operands& set) { lora_up_backward(stream_, group, set.dy, set.u, set.dh); });
        row("lora_down_backward", bytes(linears.in) + bits, [&](const Operands& set) {
            lora_down_backward(stream_, group, with(set, true), set.x, set.dh);
        });
        row("lora_input_backward", 2 * bytes(linears.in) + bits, [&](const Operands& set) {
            lora_input_backward(stream_, group, with(set, true), set.dh, set.dx);
        });
        std::fflush(stdout);
    }

  private:
    Tensor zeros(DType dtype, const Shape& shape) {
        const Tensor x = arena_.scratch(dtype, shape);
        device_->clear(stream_.queue(), x.raw(), x.elements() * size_of(dtype));
        return x;
    }
    // Numbers of an ordinary size, the same in every row of 4096 of them.
    Tensor random(std::int64_t rows, std::int64_t columns) {
        const Tensor x = arena_.scratch(DType::bf16, {rows, columns});
        std::vector<bfloat16> values(static_cast<std::size_t>(x.elements()));
        Random numbers(3);
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = i < 4096 ? bfloat16(static_cast<float>(numbers.uniform(-0.1, 0.1)))
                                 : values[i - 4096];
        copy_to_device(stream_, values.data(), x);
        stream_.synchronize();
        return x;
    }

    double microseconds(const std::vector<Operands>& sets,
                        const std::function<void(const Operands&)>& run) {
        const auto runs = [&] {
            for (std::size_t i = 0; i < kRuns; ++i)
                run(sets[i % sets.size()]);
        };
        runs();
        std::unique_ptr<RecordedWork> recorded;
        if (device_->can_record()) {
            device_->begin_recording(stream_.queue());
            runs();
            recorded = device_->end_recording(stream_.queue());
        }
        std::vector<double> seconds;
        for (int repeat = 0; repeat < 5; ++repeat) {
            const auto begin = device_->make_event();
            const auto end = device_->make_event();
            begin->record(stream_.queue());
            if (recorded)
                recorded->enqueue(stream_.queue());
            else
                runs();
            end->record(stream_.queue());
            seconds.push_back(end->seconds_since(*begin));
        }
        std::sort(seconds.begin(), seconds.end());
        return seconds[seconds.size() / 2] / kRuns * 1e6;
    }

    std::unique_ptr<Device> device_;
    Arena arena_;
    Meter meter_;
    Stream stream_;
};

}  // namespace
}  // namespace garam::bench

int main(int argc, char** argv) {
    const garam::DeviceProfile profile = garam::profile_of_device(argc > 1 ? argv[1] : "cuda");
    if (!profile.is_cuda()) {
        std::fprintf(stderr, "lora_bench: the ops exist on a card only\n");
        return 1;
    }
    std::printf("%s\n%-22s %-8s %6s %9s %9s %7s\n", profile.name.c_str(), "op", "linears", "tokens",
                "us", "floor us", "x");
    garam::bench::Bench bench(profile);
    for (const std::int64_t tokens : {8192, 1024}) {
        bench.time({"qkv", 2560, {2560, 3200, 3840}}, tokens);
        bench.time({"o", 2560, {2560}}, tokens);
        bench.time({"gate_up", 2560, {7168, 14336}}, tokens);
        bench.time({"down", 7168, {2560}}, tokens);
    }
    return 0;
}
