// AdamW with states of 8 bits and with paged ones, as the optimiser holds them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "garam/io/safetensors.h"
#include "garam/ops/elementwise.h"
#include "garam/optim/optimizer.h"
#include "garam/runtime/transfer.h"
#include "testing/cards.h"
#include "testing/test_data.h"

namespace garam {
namespace {

// A processor that takes itself for a card: it pages.
DeviceProfile paging_processor() {
    DeviceProfile profile = detect_cpu_profile();
    profile.kind = DeviceKind::cuda;
    return profile;
}

class AdamW8bitStates : public ::testing::TestWithParam<DeviceProfile> {
  protected:
    const std::unique_ptr<Device> device_ =
        GetParam().compute_capability == 0 ? make_cpu_device(GetParam()) : make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Cpu, AdamW8bitStates,
                         ::testing::Values(detect_cpu_profile(), paging_processor()),
                         [](const auto& test) {
                             return std::string(test.param.is_cuda() ? "paging" : "cpu");
                         });
INSTANTIATE_TEST_SUITE_P(Cuda, AdamW8bitStates, ::testing::ValuesIn(testing::cards()),
                         [](const auto& test) { return testing::card_name(test.param); });

struct Setting {
    Shape shape;
    bool weight_decay = true;
    double rate_factor = 1;
};

// Parameters end to end, as an adapter's are, with an optimiser of their own.
class Job {
  public:
    Job(Device& device, const OptimizerOptions& options, const std::vector<Setting>& settings)
        : arena_(device, 1 << 16), stream_(device, arena_, meter_) {
        std::int64_t bytes = 0;
        for (const Setting& setting : settings)
            bytes += align_up(setting.shape.elements() * 4);
        masters_ = Buffer(device, bytes, Purpose::adapter);
        gradients_ = Buffer(device, bytes, Purpose::gradients);
        parameters_.resize(settings.size());
        std::int64_t offset = 0;
        std::vector<Parameter*> pointers;
        for (std::size_t i = 0; i < settings.size(); ++i) {
            Parameter& parameter = parameters_[i];
            parameter.name = "p" + std::to_string(i);
            parameter.weight_decay = settings[i].weight_decay;
            parameter.rate_factor = settings[i].rate_factor;
            parameter.master = masters_.tensor(DType::f32, settings[i].shape, offset);
            parameter.gradient = gradients_.tensor(DType::f32, settings[i].shape, offset);
            offset += align_up(parameter.master.bytes());
            pointers.push_back(&parameter);
            if (stream_.is_dry()) continue;
            HostTensor host(stream_, parameter.master, false);
            for (std::int64_t e = 0; e < host.tensor().elements(); ++e)
                host.tensor().data<float>()[e] = std::cos(static_cast<float>(e % 9973));
            host.write();
        }
        optimizer_ = std::make_unique<Optimizer>(device, options, pointers);
        scale_ = OwnedTensor(device, DType::f32, {1}, Purpose::scratch);
    }

    void step(std::int64_t t, float scale = 0.5f) {
        fill(stream_, scale, scale_.tensor);
        for (std::size_t i = 0; i < parameters_.size() && !stream_.is_dry(); ++i) {
            HostTensor host(stream_, parameters_[i].gradient, false);
            const std::int64_t n = host.tensor().elements();
            for (std::int64_t e = 0; e < n; ++e) {
                // Some decades, and zeros at places of their own in each step.
                const std::int64_t mixed = (e * 2654435761 + t * 40503) >> 7;
                const auto x = static_cast<float>(mixed % 2001 - 1000) * 1e-3f;
                host.tensor().data<float>()[e] = mixed % 11 == 0 ? 0 : x * x * x;
            }
            host.write();
        }
        meter_.clear();
        meter_.enable(true);
        optimizer_->step(stream_, 0.01, scale_.tensor, t);
    }
    Optimizer& optimizer() { return *optimizer_; }
    Meter& meter() { return meter_; }
    Stream& stream() { return stream_; }
    const std::vector<Parameter>& parameters() const { return parameters_; }

    // Masters and states by their names.
    std::vector<std::pair<std::string, std::vector<std::byte>>> bytes() {
        std::vector<std::pair<std::string, std::vector<std::byte>>> result;
        const auto add = [&](const std::string& name, const Tensor& tensor) {
            const HostTensor host(stream_, tensor);
            const auto* const data = static_cast<const std::byte*>(host.tensor().raw());
            result.emplace_back(name, std::vector<std::byte>(data, data + tensor.bytes()));
        };
        stream_.synchronize();
        for (const Parameter& parameter : parameters_)
            add(parameter.name, parameter.master);
        for (const auto& [name, state] : optimizer_->states())
            add(name, state);
        return result;
    }
    // Takes what bytes() of another run gave.
    void restore(const std::vector<std::pair<std::string, std::vector<std::byte>>>& from) {
        std::size_t next = 0;
        const auto put = [&](const std::string& name, const Tensor& tensor) {
            ASSERT_EQ(from.at(next).first, name);
            HostTensor host(stream_, tensor, false);
            std::memcpy(host.tensor().raw(), from[next++].second.data(),
                        static_cast<std::size_t>(tensor.bytes()));
            host.write();
        };
        for (const Parameter& parameter : parameters_)
            put(parameter.name, parameter.master);
        for (const auto& [name, state] : optimizer_->states())
            put(name, state);
    }

  private:
    Arena arena_;
    Meter meter_;
    Stream stream_;
    Buffer masters_, gradients_;
    std::vector<Parameter> parameters_;
    OwnedTensor scale_;
    std::unique_ptr<Optimizer> optimizer_;
};

OptimizerOptions named(const char* name) {
    OptimizerOptions options = optimizer_from_name(name);
    options.weight_decay = 0.1;
    return options;
}

// Tensors around the size where states change, with tails of blocks.
const std::vector<Setting> kAdapter = {{{16, 300}}, {{4095}}, {{64, 64}}, {{3, 5}}, {{5003}}};

TEST_P(AdamW8bitStates, SmallTensorsKeepThirtyTwoBits) {
    Job coded(*device_, named("adamw_8bit"), kAdapter);
    Job plain(*device_, named("adamw_torch"), kAdapter);
    const auto states = coded.optimizer().states();
    const std::vector<std::string> names = {
        "p0.exp_avg.codes",     "p0.exp_avg.absmax", "p0.exp_avg_sq.codes",
        "p0.exp_avg_sq.absmax", "p1.exp_avg",        "p1.exp_avg_sq",
        "p2.exp_avg.codes",     "p2.exp_avg.absmax", "p2.exp_avg_sq.codes",
        "p2.exp_avg_sq.absmax", "p3.exp_avg",        "p3.exp_avg_sq",
        "p4.exp_avg.codes",     "p4.exp_avg.absmax", "p4.exp_avg_sq.codes",
        "p4.exp_avg_sq.absmax"};
    ASSERT_EQ(states.size(), names.size());
    for (std::size_t i = 0; i < names.size(); ++i)
        EXPECT_EQ(states[i].first, names[i]);
    EXPECT_TRUE(states[0].second.shape() == Shape({16, 300}));
    EXPECT_EQ(states[0].second.dtype(), DType::u8);
    EXPECT_TRUE(states[1].second.shape() == Shape({19}));
    for (int t = 1; t <= 3; ++t) {
        coded.step(t);
        plain.step(t);
    }
    const auto a = coded.bytes(), b = plain.bytes();
    EXPECT_EQ(a[1].second, b[1].second);
    EXPECT_EQ(a[3].second, b[3].second);
    EXPECT_NE(a[0].second, b[0].second);
    EXPECT_NE(a[4].second, b[4].second);
}

// Blocks follow each tensor: what lies beside it in memory does not matter. And it is one op for
// all that learn alike.
TEST_P(AdamW8bitStates, TensorsDoNotSeeTheirNeighbours) {
    std::vector<Setting> settings = kAdapter;
    settings[2].weight_decay = false;
    settings.push_back({{70, 70}, true, 16});
    Job together(*device_, named("adamw_8bit"), settings);
    for (int t = 1; t <= 3; ++t)
        together.step(t);
    // 8 bits: 0 and 4, 2, 5; in fp32: 1, 3.
    EXPECT_EQ(together.meter().total().calls, 5);
    const auto all = together.bytes();
    for (std::size_t i = 0; i < settings.size(); ++i) {
        Job alone(*device_, named("adamw_8bit"), {settings[i]});
        for (int t = 1; t <= 3; ++t)
            alone.step(t);
        for (const auto& [name, bytes] : alone.bytes()) {
            const std::string theirs = "p" + std::to_string(i) + name.substr(2);
            for (const auto& [other, value] : all) {
                if (other == theirs) {
                    EXPECT_EQ(value, bytes) << theirs;
                }
            }
        }
    }
}

// More chunks than slots, with a tensor across their edges; what is small stays on the device.
TEST_P(AdamW8bitStates, PagedIsUnpagedToTheBit) {
    const std::vector<Setting> settings = {{{1000, 2000}},      {{4095}},
                                           {{300, 4001}},       {{2500, 2500}},
                                           {{90, 1000}, false}, {{4000}, false}};
    for (const auto& [paged, plain] : {std::pair{"paged_adamw_8bit", "adamw_8bit"},
                                       std::pair{"paged_adamw_32bit", "adamw_torch"}}) {
        Job here(*device_, named(plain), settings);
        for (int t = 1; t <= 3; ++t)
            here.step(t);
        const std::int64_t pinned = device_->pinned().current;
        Job pages(*device_, named(paged), settings);
        EXPECT_EQ(device_->pinned().current > pinned, device_->profile().is_cuda());
        for (int t = 1; t <= 2; ++t)
            pages.step(t);
        pages.step(3, std::numeric_limits<float>::quiet_NaN());  // changes nothing
        pages.step(3);
        EXPECT_EQ(here.bytes(), pages.bytes()) << paged;
    }
}

// Masters and states are all that a run needs: what checkpoints rely on.
TEST_P(AdamW8bitStates, TwiceNStepsAreNStepsResumedAndNSteps) {
    const std::vector<Setting> settings = {{{500, 1000}}, {{4095}}, {{5003}}};
    for (const char* name : {"adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit"}) {
        Job straight(*device_, named(name), settings);
        for (int t = 1; t <= 3; ++t)
            straight.step(t);
        Job resumed(*device_, named(name), settings);
        resumed.step(1);  // what it was before does not matter
        resumed.restore(straight.bytes());
        for (int t = 4; t <= 6; ++t) {
            straight.step(t);
            resumed.step(t);
        }
        EXPECT_EQ(straight.bytes(), resumed.bytes()) << name;
    }
}

TEST_P(AdamW8bitStates, ANaNScaleChangesNothing) {
    Job run(*device_, named("paged_adamw_8bit"), {{{500, 300}}, {{5003}, false}});
    run.step(1);
    const auto before = run.bytes();
    run.step(2, std::numeric_limits<float>::quiet_NaN());
    EXPECT_EQ(run.bytes(), before);
}

// Bytes of the plan are the bytes taken: a quarter of fp32's and 2 / 64 of that for the scales;
// paged, slots for them on the device and all of them on the host.
TEST(AdamW8bit, TheDryDeviceCountsTheSameBytes) {
    const std::vector<Setting> settings = {{{5120, 1000}}, {{4095}}};  // 20,000 blocks
    struct Case {
        const char* name;
        std::int64_t device, host;
    };
    const std::int64_t codes = 2 * 5120000, scales = 2 * align_up(80000);
    const std::int64_t small = 2 * align_up(4095 * 4);
    const std::int64_t slot = 2 * 8192 * 256 + 2 * 8192 * 4;
    for (const Case& c : {Case{"adamw_8bit", codes + scales + small, 0},
                          Case{"paged_adamw_8bit", 3 * slot + small, codes + scales},
                          Case{"paged_adamw_32bit", 3 * (8 << 19), 2 * align_up(5124095 * 4)}}) {
        MemoryUse use[2];
        PinnedUse pinned[2];
        Cost cost[2];
        for (const bool dry : {false, true}) {
            const auto device =
                dry ? make_dry_device(paging_processor()) : make_cpu_device(paging_processor());
            Job run(*device, named(c.name), settings);
            run.step(1);
            run.optimizer().states();
            use[dry] = device->memory();
            pinned[dry] = device->pinned();
            cost[dry] = run.meter().total().cost;
        }
        EXPECT_EQ(use[0].peak_by, use[1].peak_by) << c.name;
        EXPECT_EQ(pinned[0].peak, pinned[1].peak);
        EXPECT_EQ(use[1].current_by[static_cast<int>(Purpose::optimizer)], c.device) << c.name;
        EXPECT_EQ(pinned[1].current, c.host) << c.name;
        EXPECT_EQ(cost[0].flops, cost[1].flops);
        EXPECT_EQ(cost[0].bytes_read, cost[1].bytes_read);
        EXPECT_EQ(cost[0].bytes_written, cost[1].bytes_written);
    }
}

// bitsandbytes' own 8-bit optimiser on a tensor that keeps fp32 states.
TEST(AdamW8bit, GoldenSmallTensor) {
    GARAM_REQUIRE_DATA("golden/optim8bit/adamw8bit_small_3x100_fp32state.safetensors");
    const auto file = SafetensorsFile::open(testing::data_dir() / "golden" / "optim8bit" /
                                            "adamw8bit_small_3x100_fp32state.safetensors");
    const auto values = [&](const std::string& name) {
        const StoredTensor* const stored = file->find(name);
        std::vector<float> result(static_cast<std::size_t>(stored->shape.elements()));
        std::memcpy(result.data(), stored->data, stored->bytes);
        return result;
    };
    const auto device = make_cpu_device();
    OptimizerOptions options = optimizer_from_name("adamw_8bit");
    options.weight_decay = 0.01;
    Job run(*device, options, {{{3, 100}}});
    const Parameter& parameter = run.parameters()[0];
    const std::vector<float> start = values("param0"), gradients = values("grads");
    std::copy(start.begin(), start.end(), parameter.master.data<float>());
    OwnedTensor one(*device, DType::f32, {1}, Purpose::scratch);
    one.tensor.data<float>()[0] = 1;
    for (int t = 1; t <= 5; ++t) {
        std::copy_n(gradients.begin() + (t - 1) * 300, 300, parameter.gradient.data<float>());
        run.optimizer().step(run.stream(), 1e-3, one.tensor, t);
        const std::string step = "bnb_cpu.step" + std::to_string(t);
        const auto states = run.optimizer().states();
        const std::vector<float> want = values(step + ".param"), m = values(step + ".state1"),
                                 v = values(step + ".state2");
        for (std::size_t i = 0; i < 300; ++i) {
            // Each step rounds the weight twice and the update, 10 lr at most, some ten times.
            EXPECT_NEAR(parameter.master.data<float>()[i], want[i],
                        t * (4 * std::abs(want[i]) + 0.1) * 0x1p-24)
                << "step " << t << " [" << i << "]";
            // 1 - beta of the rounded beta is 5e-5 off.
            EXPECT_NEAR(states[0].second.data<float>()[i], m[i], 1e-6 + 1e-6 * std::abs(m[i]));
            EXPECT_NEAR(states[1].second.data<float>()[i], v[i], 1e-4 * v[i]);
        }
    }
}

}  // namespace
}  // namespace garam
