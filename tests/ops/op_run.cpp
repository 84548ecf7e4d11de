#include "ops/op_run.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "garam/core/parallel.h"

namespace garam::testing {
namespace {

constexpr std::int64_t kArena = std::int64_t{1} << 30;  // address space until it is touched

void poison(std::vector<std::uint64_t>& bytes) {
    std::fill(bytes.begin(), bytes.end(), ~std::uint64_t{0});  // NaN in every float format
}

// A card with the step memory that all cases use in turn, reserved once a process.
class Card {
  public:
    static Card& of(const DeviceProfile& profile) {
        static std::map<std::string, Card> opened;
        return opened.try_emplace(card_name(profile), profile).first->second;
    }
    explicit Card(const DeviceProfile& profile)
        : device_(make_cuda_device(profile)),
          arena_(*device_, kArena),
          soil_(*device_, std::int64_t{64} << 20) {
        std::memset(soil_.raw(), 0xff, static_cast<std::size_t>(soil_.bytes()));
    }
    Device& device() { return *device_; }
    Arena& arena() { return arena_; }
    // The `bytes` that scratch will be taken from.
    void poison_scratch(QueueHandle queue, std::int64_t bytes) {
        if (bytes == 0) return;
        const Tensor scratch = arena_.scratch(DType::u8, {bytes});
        for (std::int64_t at = 0; at < bytes; at += soil_.bytes())
            device_->copy_in(queue, static_cast<char*>(scratch.raw()) + at, soil_.raw(),
                             std::min(soil_.bytes(), bytes - at));
        arena_.rewind({});
    }

  private:
    std::unique_ptr<Device> device_;
    Arena arena_;
    PinnedBuffer soil_;
};

}  // namespace

std::vector<DeviceProfile> test_profiles() {
    std::vector<DeviceProfile> profiles = cpu_profiles();
    for (const DeviceProfile& card : card_profiles())
        profiles.push_back(card);
    return profiles;
}

std::vector<DeviceProfile> cpu_profiles() {
    const DeviceProfile host = detect_cpu_profile();
    std::vector<DeviceProfile> profiles;
    for (const CpuIsa isa : {CpuIsa::generic, CpuIsa::avx2, CpuIsa::avx512}) {
        if (isa > host.isa) break;
        DeviceProfile lesser = host;
        lesser.isa = isa;
        lesser.fast_bf16 = false;
        lesser.bf16_tiles = false;
        profiles.push_back(lesser);
    }
    if (host.bf16_tiles) {
        DeviceProfile without_tiles = host;
        without_tiles.bf16_tiles = false;
        profiles.push_back(without_tiles);
    }
    if (host.fast_bf16) profiles.push_back(host);
    return profiles;
}

std::string profile_name(const DeviceProfile& profile) {
    if (profile.is_cuda()) return card_name(profile);
    return std::string(name_of(profile.isa)) + (profile.fast_bf16 ? "_bf16" : "") +
           (profile.bf16_tiles ? "_tiles" : "");
}

OpRun::OpRun(const DeviceProfile& profile, std::uint64_t seed)
    : profile_(profile),
      cpu_(profile.is_cuda() ? nullptr : make_cpu_device(profile)),
      random_(seed) {}

int OpRun::add(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t pad, Role role) {
    Memory memory{dtype, rows, columns, columns + pad, role, {}, {}};
    const std::size_t bytes = static_cast<std::size_t>(rows * memory.pitch) * size_of(dtype);
    memory.now.resize(bytes / 8 + 1);
    poison(memory.now);
    memories_.push_back(memory);
    const int number = static_cast<int>(memories_.size()) - 1;
    if (role != Role::output && (dtype == DType::f32 || dtype == DType::bf16)) {
        std::vector<double> values(static_cast<std::size_t>(rows * columns));
        for (double& value : values)
            value = random_.normal();
        set(number, values);
    }
    memories_.back().start = memories_.back().now;
    return number;
}

int OpRun::input(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t pad) {
    return add(dtype, rows, columns, pad, Role::input);
}
int OpRun::output(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t pad) {
    return add(dtype, rows, columns, pad, Role::output);
}
int OpRun::in_place(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t pad) {
    return add(dtype, rows, columns, pad, Role::in_place);
}
int OpRun::integers(const std::vector<std::int32_t>& values) {
    const int number = add(DType::i32, 1, static_cast<std::int64_t>(values.size()), 0, Role::input);
    if (!values.empty()) std::memcpy(memories_.back().now.data(), values.data(), values.size() * 4);
    memories_.back().start = memories_.back().now;
    return number;
}
int OpRun::integers64(const std::vector<std::int64_t>& values) {
    const int number = add(DType::i64, 1, static_cast<std::int64_t>(values.size()), 0, Role::input);
    if (!values.empty()) std::memcpy(memories_.back().now.data(), values.data(), values.size() * 8);
    memories_.back().start = memories_.back().now;
    return number;
}
int OpRun::input_bytes(DType dtype, const void* data, std::int64_t elements) {
    const int number = add(dtype, 1, elements, 0, Role::input);
    const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(dtype);
    if (bytes > 0) std::memcpy(memories_.back().now.data(), data, bytes);
    memories_.back().start = memories_.back().now;
    return number;
}

void OpRun::set(int tensor, const std::vector<double>& values) {
    Memory& memory = memories_[static_cast<std::size_t>(tensor)];
    ASSERT_EQ(static_cast<std::int64_t>(values.size()), memory.rows * memory.columns);
    for (std::int64_t row = 0; row < memory.rows; ++row) {
        for (std::int64_t column = 0; column < memory.columns; ++column) {
            const float value =
                static_cast<float>(values[static_cast<std::size_t>(row * memory.columns + column)]);
            const std::int64_t at = row * memory.pitch + column;
            if (memory.dtype == DType::f32)
                reinterpret_cast<float*>(memory.now.data())[at] = value;
            else if (memory.dtype == DType::bf16)
                reinterpret_cast<bfloat16*>(memory.now.data())[at] = bfloat16(value);
            else if (memory.dtype == DType::u8)
                reinterpret_cast<std::uint8_t*>(memory.now.data())[at] =
                    static_cast<std::uint8_t>(value);
            else
                reinterpret_cast<float16*>(memory.now.data())[at] = float16(value);
        }
    }
    memory.start = memory.now;
}

void OpRun::set_bits(int tensor, const std::vector<std::uint16_t>& bits) {
    Memory& memory = memories_[static_cast<std::size_t>(tensor)];
    ASSERT_EQ(size_of(memory.dtype), 2u);
    ASSERT_EQ(static_cast<std::int64_t>(bits.size()), memory.rows * memory.pitch);
    std::memcpy(memory.now.data(), bits.data(), 2 * bits.size());
    memory.start = memory.now;
}

OpRun::Needs OpRun::plan(const Body& body) const {
    // The plan must not depend on the threads of the moment, only on those of the profile.
    const int before = num_threads();
    set_num_threads(3);
    const auto dry = make_dry_device(profile_);
    std::vector<Buffer> buffers;
    std::vector<Tensor> tensors;
    for (const Memory& memory : memories_) {
        buffers.emplace_back(*dry, memory.bytes(), Purpose::scratch);
        tensors.push_back(memory.view(buffers.back().raw(), DeviceKind::dry));
    }
    Arena arena(*dry, kArena);
    Meter meter;
    meter.enable(true);
    Stream stream(*dry, arena, meter);
    body(stream, tensors);
    set_num_threads(before);
    EXPECT_EQ(arena.used(), 0);
    EXPECT_GT(meter.total().calls, 0);
    return {arena.peak(), meter.total().cost};
}

OpRun::Needs OpRun::compute(const Body& body, int threads) {
    std::vector<Tensor> tensors;
    for (Memory& memory : memories_) {
        memory.now = memory.start;
        tensors.push_back(memory.view(memory.now.data(), DeviceKind::cpu));
    }
    Arena arena(*cpu_, kArena);
    // Scratch comes from the high end; what an op fails to write there must show.
    const Tensor soil = arena.scratch(DType::u8, {1 << 20});
    std::memset(soil.raw(), 0xff, 1 << 20);
    arena.rewind({});
    arena.reset_peak();
    Meter meter;
    meter.enable(true);
    Stream stream(*cpu_, arena, meter);
    const int before = num_threads();
    set_num_threads(threads);
    body(stream, tensors);
    set_num_threads(before);
    EXPECT_EQ(arena.used(), 0) << "the op left scratch behind";
    return {arena.peak(), meter.total().cost};
}

OpRun::Needs OpRun::compute_on_card(const Body& body, bool recorded, std::int64_t planned_peak) {
    Card& card = Card::of(profile_);
    Device& device = card.device();
    Arena& arena = card.arena();
    arena.rewind({});  // a case that threw may have left some
    Meter meter;
    meter.enable(true);
    Stream stream(device, arena, meter);
    // One allocation a tensor, so that a sanitizer sees what lies beyond.
    std::vector<Buffer> buffers;
    std::vector<Tensor> tensors;
    for (const Memory& memory : memories_) {
        buffers.emplace_back(device, memory.bytes(), Purpose::scratch);
        device.copy_in(stream.queue(), buffers.back().raw(), memory.start.data(), memory.bytes());
        tensors.push_back(memory.view(buffers.back().raw(), DeviceKind::cuda));
    }
    card.poison_scratch(stream.queue(), planned_peak);
    arena.reset_peak();
    std::unique_ptr<RecordedWork> work;
    if (recorded) device.begin_recording(stream.queue());
    body(stream, tensors);
    if (recorded) {
        work = device.end_recording(stream.queue());
        work->enqueue(stream.queue());
    }
    for (std::size_t i = 0; i < memories_.size(); ++i)
        device.copy_out(stream.queue(), memories_[i].now.data(), buffers[i].raw(),
                        memories_[i].bytes());
    stream.synchronize();
    EXPECT_EQ(arena.used(), 0) << "the op left scratch behind";
    return {arena.peak(), meter.total().cost};
}

void OpRun::check_untouched(const Memory& memory, std::size_t number) const {
    const std::size_t size = size_of(memory.dtype);
    const char* now = reinterpret_cast<const char*>(memory.now.data());
    const char* start = reinterpret_cast<const char*>(memory.start.data());
    if (memory.role == Role::input) {
        EXPECT_TRUE(memory.now == memory.start) << "input " << number << " was changed";
        return;
    }
    for (std::int64_t row = 0; row < memory.rows; ++row) {
        const std::size_t at = static_cast<std::size_t>(row * memory.pitch + memory.columns) * size;
        const std::size_t pad = static_cast<std::size_t>(memory.pitch - memory.columns) * size;
        EXPECT_EQ(std::memcmp(now + at, start + at, pad), 0)
            << "pad of row " << row << " of tensor " << number << " was written";
    }
}

void OpRun::run(const Body& body, const Cost& cost, bool same_bits_for_any_threads) {
    const Needs planned = plan(body);
    std::vector<std::vector<std::uint64_t>> first;
    for (const int turn : {1, 2, 3}) {
        const Needs needs = profile_.is_cuda() ? compute_on_card(body, turn == 3, planned.peak)
                                               : compute(body, turn);
        EXPECT_EQ(needs.peak, planned.peak) << "plan and run need different scratch";
        EXPECT_EQ(needs.cost.flops, planned.cost.flops);
        EXPECT_EQ(needs.cost.bytes_read, planned.cost.bytes_read);
        EXPECT_EQ(needs.cost.bytes_written, planned.cost.bytes_written);
        for (std::size_t i = 0; i < memories_.size(); ++i) {
            if (turn == 1) {
                first.push_back(memories_[i].now);
            } else if (same_bits_for_any_threads || profile_.is_cuda()) {
                EXPECT_TRUE(memories_[i].now == first[i])
                    << "tensor " << i << " differs between "
                    << (profile_.is_cuda() ? turn == 3 ? "a run and recorded work" : "two runs"
                                           : "numbers of threads");
            }
            check_untouched(memories_[i], i);
        }
    }
    EXPECT_EQ(planned.cost.flops, cost.flops);
    EXPECT_EQ(planned.cost.bytes_read, cost.bytes_read);
    EXPECT_EQ(planned.cost.bytes_written, cost.bytes_written);
}

std::vector<double> OpRun::read(const Memory& memory,
                                const std::vector<std::uint64_t>& bytes) const {
    std::vector<double> values;
    for (std::int64_t row = 0; row < memory.rows; ++row) {
        for (std::int64_t column = 0; column < memory.columns; ++column) {
            const std::int64_t at = row * memory.pitch + column;
            double value = 0;
            switch (memory.dtype) {
                case DType::f32:
                    value = reinterpret_cast<const float*>(bytes.data())[at];
                    break;
                case DType::bf16:
                    value = static_cast<float>(reinterpret_cast<const bfloat16*>(bytes.data())[at]);
                    break;
                case DType::f16:
                    value = static_cast<float>(reinterpret_cast<const float16*>(bytes.data())[at]);
                    break;
                case DType::u8:
                    value = reinterpret_cast<const std::uint8_t*>(bytes.data())[at];
                    break;
                case DType::i32:
                    value = reinterpret_cast<const std::int32_t*>(bytes.data())[at];
                    break;
                default:
                    ADD_FAILURE() << "unexpected dtype";
            }
            values.push_back(value);
        }
    }
    return values;
}

std::vector<double> OpRun::values(int tensor) const {
    const Memory& memory = memories_[static_cast<std::size_t>(tensor)];
    return read(memory, memory.now);
}

std::vector<double> OpRun::before(int tensor) const {
    const Memory& memory = memories_[static_cast<std::size_t>(tensor)];
    return read(memory, memory.start);
}

void expect_within(const std::vector<double>& got, const std::vector<double>& want,
                   const std::vector<double>& bound, const std::string& what) {
    ASSERT_EQ(got.size(), want.size()) << what;
    ASSERT_EQ(got.size(), bound.size()) << what;
    std::size_t failures = 0, worst = 0;
    double worst_ratio = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double error = std::abs(got[i] - want[i]);
        if (error <= bound[i]) continue;
        ++failures;
        const double ratio =
            std::isnan(error) ? std::numeric_limits<double>::infinity() : error / bound[i];
        if (ratio > worst_ratio) {
            worst_ratio = ratio;
            worst = i;
        }
    }
    EXPECT_EQ(failures, 0u) << what << ": of " << got.size() << " elements; worst is [" << worst
                            << "]: got " << got[worst] << ", want " << want[worst] << " +- "
                            << bound[worst];
}

void expect_close(const std::vector<double>& got, const std::vector<double>& want, double relative,
                  double absolute, const std::string& what) {
    std::vector<double> bound;
    for (const double w : want)
        bound.push_back(relative * std::abs(w) + absolute);
    expect_within(got, want, bound, what);
}

double numeric_derivative(const Function& f, const std::vector<double>& x, std::size_t i,
                          const std::vector<double>& weights) {
    constexpr double kStep = 1e-5;
    std::vector<double> moved = x;
    const auto loss = [&](double at) {
        moved[i] = at;
        const std::vector<double> y = f(moved);
        double sum = 0;
        for (std::size_t j = 0; j < y.size(); ++j)
            sum += weights[j] * y[j];
        return sum;
    };
    return (loss(x[i] + kStep) - loss(x[i] - kStep)) / (2 * kStep);
}

std::vector<double> numeric_gradient(const Function& f, const std::vector<double>& x,
                                     const std::vector<double>& weights, std::size_t most) {
    std::vector<double> gradient(x.size(), std::numeric_limits<double>::quiet_NaN());
    // A stride that shares no factor with the usual sizes visits rows and columns alike.
    const std::size_t stride = x.size() <= most ? 1 : x.size() / most | 1;
    for (std::size_t i = 0; i < x.size(); i += stride)
        gradient[i] = numeric_derivative(f, x, i, weights);
    return gradient;
}

void expect_gradient(const std::vector<double>& got, const std::vector<double>& want,
                     double relative, double absolute, const std::string& what) {
    std::vector<double> some_got, some_want;
    ASSERT_EQ(got.size(), want.size()) << what;
    for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_FALSE(std::isnan(got[i])) << what << " [" << i << "]";
        if (std::isnan(want[i])) continue;
        some_got.push_back(got[i]);
        some_want.push_back(want[i]);
    }
    EXPECT_FALSE(some_want.empty()) << what;
    expect_close(some_got, some_want, relative, absolute, what);
}

}  // namespace garam::testing
