#include "garam/optim/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <set>

#include "garam/core/error.h"
#include "garam/core/json.h"
#include "garam/ops/elementwise.h"
#include "garam/ops/gradient_scale.h"
#include "testing/test_data.h"

namespace garam {
namespace {

// A parameter with memory of its own.
struct Trained {
    OwnedTensor master;
    OwnedTensor gradient;
    Parameter parameter;

    Trained(Device& device, const std::string& name, const Shape& shape)
        : master(device, DType::f32, shape, Purpose::adapter),
          gradient(device, DType::f32, shape, Purpose::gradients) {
        parameter.name = name;
        parameter.master = master.tensor;
        parameter.gradient = gradient.tensor;
    }
    void set(const Tensor& tensor, const std::vector<float>& values) const {
        std::copy(values.begin(), values.end(), tensor.data<float>());
    }
};

struct Bench {
    std::unique_ptr<Device> device;
    Arena arena;
    Meter meter;
    Stream stream;

    explicit Bench(std::unique_ptr<Device> made)
        : device(std::move(made)), arena(*device, 1 << 16), stream(*device, arena, meter) {}
};

// A factor on gradients as the optimiser takes it.
struct Scale {
    OwnedTensor owned;

    Scale(Stream& stream, float value) : owned(stream.device(), DType::f32, {1}, Purpose::scratch) {
        fill(stream, value, owned.tensor);
    }
    const Tensor& tensor() const { return owned.tensor; }
};

std::vector<float> floats(const Json& values) {
    std::vector<float> out;
    for (const Json& value : values.array())
        out.push_back(static_cast<float>(value.number()));
    return out;
}

double number_or(const Json& object, const char* key, double otherwise) {
    const Json* value = object.find(key);
    return value == nullptr ? otherwise : value->number(key);
}

// Settings of a golden run as ours, or nothing when its mathematics is another (Adam with L2
// decay).
std::optional<OptimizerOptions> options_of(const std::string& name, const Json& settings) {
    for (const auto& [key, value] : settings.object()) {
        static const std::set<std::string> known{"lr",       "betas",     "eps",     "weight_decay",
                                                 "momentum", "dampening", "nesterov"};
        if (!known.contains(key)) return std::nullopt;
    }
    OptimizerOptions options;
    options.weight_decay = number_or(settings, "weight_decay", 0);
    if (name.rfind("SGD", 0) == 0) {
        options.kind = OptimizerKind::sgd;
        options.momentum = number_or(settings, "momentum", 0);
        options.dampening = number_or(settings, "dampening", 0);
        const Json* nesterov = settings.find("nesterov");
        options.nesterov = nesterov != nullptr && nesterov->boolean();
        return options;
    }
    // Adam without decay is AdamW without decay.
    if (name.rfind("AdamW", 0) != 0 && (name.rfind("Adam", 0) != 0 || options.weight_decay != 0))
        return std::nullopt;
    options.beta1 = settings.at("betas").array().at(0).number();
    options.beta2 = settings.at("betas").array().at(1).number();
    options.epsilon = settings.at("eps").number();
    return options;
}

// LoRA+: a parameter's factor is as good as another learning rate, for neighbours in one vector, too.
TEST(Optimizer, ARateFactorScalesTheLearningRate) {
    for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd}) {
        Bench bench(make_cpu_device());
        Trained a(*bench.device, "a", {4});
        Trained b(*bench.device, "b", {4});
        Trained alone(*bench.device, "alone", {4});
        for (const Trained* trained : {&a, &b, &alone}) {
            trained->set(trained->master.tensor, {1, -2, 3, 0.5f});
            trained->set(trained->gradient.tensor, {0.1f, 0.3f, -0.2f, 0.4f});
        }
        b.parameter.rate_factor = 16;
        const OptimizerOptions options{.kind = kind, .weight_decay = 0.1};
        Optimizer both(*bench.device, options, {&a.parameter, &b.parameter});
        Optimizer other(*bench.device, options, {&alone.parameter});
        const Scale one(bench.stream, 1);
        both.step(bench.stream, 0.01, one.tensor(), 1);
        other.step(bench.stream, 0.16, one.tensor(), 1);
        const float* const fast = b.master.tensor.data<float>();
        const float* const slow = a.master.tensor.data<float>();
        const float* const wanted = alone.master.tensor.data<float>();
        for (int i = 0; i < 4; ++i) {
            EXPECT_EQ(fast[i], wanted[i]);
            EXPECT_NE(slow[i], fast[i]);
        }
    }
}

TEST(Optimizer, GoldenRunsOfTorch) {
    GARAM_REQUIRE_DATA("golden/optim_sched/optimizers.json");
    const Json golden =
        Json::parse_file(testing::data_dir() / "golden" / "optim_sched" / "optimizers.json");
    const std::vector<float> start = floats(golden.at("param0"));
    const auto count = static_cast<std::int64_t>(start.size());
    int checked = 0;
    for (const Json& run : golden.at("runs").array()) {
        const std::string name = run.at("name").string();
        SCOPED_TRACE(name);
        const auto options = options_of(name, run.at("settings"));
        if (!options) {
            std::cout << "[ skipped  ] optimiser " << name << ": not supported\n";
            continue;
        }
        Bench bench(make_cpu_device());
        Trained trained(*bench.device, "w", {count});
        trained.set(trained.master.tensor, start);
        Optimizer optimizer(*bench.device, *options, {&trained.parameter});
        const double lr = run.at("settings").at("lr").number();
        const double max_norm = number_or(run, "max_grad_norm", 0);
        OwnedTensor norm(*bench.device, DType::f32, {1}, Purpose::scratch);
        const Json::Array& expected = run.at("params").array();
        for (std::size_t t = 0; t < expected.size(); ++t) {
            trained.set(trained.gradient.tensor, floats(golden.at("grads").array().at(t)));
            fill(bench.stream, 0, norm.tensor);
            add_sum_of_squares(bench.stream, trained.gradient.tensor, norm.tensor);
            const double gradient_norm = std::sqrt(norm.tensor.data<float>()[0]);
            if (max_norm > 0) {
                EXPECT_NEAR(gradient_norm, run.at("grad_norms_before_clip").array()[t].number(),
                            1e-6 * gradient_norm);
            }
            const Scale loss(bench.stream, 0);
            const Scale scale(bench.stream, 0);
            gradient_scale(bench.stream, loss.tensor(), norm.tensor, 1, max_norm, scale.tensor());
            optimizer.step(bench.stream, lr, scale.tensor(), static_cast<std::int64_t>(t) + 1);
            const std::vector<float> reference = floats(expected[t]);
            const float* ours = trained.master.tensor.data<float>();
            for (std::size_t i = 0; i < reference.size(); ++i) {
                // Each step rounds the weight twice (decay, update) here and there, and the update
                // (at most about 10 lr, for SGD with momentum) by about ten roundings of 2^-24.
                const double per_step =
                    (4 * std::abs(reference[i]) + 10 * 10 * lr) * std::ldexp(1.0, -24);
                EXPECT_NEAR(ours[i], reference[i], (t + 1.0) * per_step) << "step " << t + 1;
            }
        }
        // States after the last step, under the names of checkpoints.
        for (const auto& [state_name, state] : optimizer.states()) {
            const Json* reference = run.at("final_state").find(state_name.substr(2));
            ASSERT_NE(reference, nullptr) << state_name;
            const std::vector<float> values = floats(*reference);
            for (std::size_t i = 0; i < values.size(); ++i)
                EXPECT_NEAR(state.data<float>()[i], values[i], 1e-6 * (1e-2 + std::abs(values[i])))
                    << state_name;
        }
        ++checked;
    }
    EXPECT_GT(checked, 0);
}

TEST(Optimizer, DecaysOnlyWhereTheParameterSaysSo) {
    for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd}) {
        Bench bench(make_cpu_device());
        Trained matrix(*bench.device, "matrix", {2, 2});
        Trained norm(*bench.device, "norm", {4});
        norm.parameter.weight_decay = false;
        for (const Trained* trained : {&matrix, &norm}) {
            trained->set(trained->master.tensor, {1, 2, 3, 4});
            trained->set(trained->gradient.tensor, {0, 0, 0, 0});
        }
        OptimizerOptions options;
        options.kind = kind;
        options.weight_decay = 0.5;
        Optimizer optimizer(*bench.device, options, {&matrix.parameter, &norm.parameter});
        optimizer.step(bench.stream, 0.25, Scale(bench.stream, 1).tensor(), 1);
        for (int i = 0; i < 4; ++i) {
            const float before = static_cast<float>(i + 1);
            EXPECT_EQ(matrix.master.tensor.data<float>()[i], before * 0.875f);
            EXPECT_EQ(norm.master.tensor.data<float>()[i], before);
        }
    }
}

// What a step does whose loss or gradient is not finite.
TEST(Optimizer, ANaNScaleChangesNothing) {
    for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd}) {
        Bench bench(make_cpu_device());
        Trained trained(*bench.device, "w", {3});
        trained.set(trained.master.tensor, {1, 2, 3});
        trained.set(trained.gradient.tensor, {1, std::numeric_limits<float>::quiet_NaN(), 1});
        OptimizerOptions options;
        options.kind = kind;
        options.momentum = 0.9;
        options.weight_decay = 0.5;
        Optimizer optimizer(*bench.device, options, {&trained.parameter});
        const Scale bad(bench.stream, std::numeric_limits<float>::quiet_NaN());
        optimizer.step(bench.stream, 0.25, bad.tensor(), 1);
        for (int i = 0; i < 3; ++i)
            EXPECT_EQ(trained.master.tensor.data<float>()[i], static_cast<float>(i + 1));
        for (const auto& [name, state] : optimizer.states()) {
            for (int i = 0; i < 3; ++i)
                EXPECT_EQ(state.data<float>()[i], 0) << name;
        }
    }
}

TEST(Optimizer, RefreshesEveryCopyAfterTheUpdate) {
    Bench bench(make_cpu_device());
    Trained trained(*bench.device, "lora_B", {3, 5});
    OwnedTensor narrow(*bench.device, DType::bf16, {3, 64}, Purpose::adapter);
    OwnedTensor exact(*bench.device, DType::f32, {3, 5}, Purpose::adapter);
    OwnedTensor scaled(*bench.device, DType::f32, {3, 5}, Purpose::adapter);
    // A copy inside a wider layout: the columns beyond stay as they are.
    std::memset(narrow.tensor.raw(), 0, static_cast<std::size_t>(narrow.tensor.bytes()));
    trained.parameter.copies = {
        {narrow.tensor.slice_columns(0, 5)}, {exact.tensor}, {scaled.tensor, 0.25f}};
    for (int i = 0; i < 15; ++i) {
        trained.master.tensor.data<float>()[i] = 0.1f * static_cast<float>(i);
        trained.gradient.tensor.data<float>()[i] = 1.0f;
    }
    OptimizerOptions options;
    options.kind = OptimizerKind::sgd;
    Optimizer optimizer(*bench.device, options, {&trained.parameter});
    optimizer.step(bench.stream, 1.0, Scale(bench.stream, 0.5f).tensor(), 1);
    for (int row = 0; row < 3; ++row) {
        for (int column = 0; column < 5; ++column) {
            const int i = row * 5 + column;
            const float updated = 0.1f * static_cast<float>(i) - 0.5f;
            EXPECT_EQ(trained.master.tensor.data<float>()[i], updated);
            EXPECT_EQ(exact.tensor.data<float>()[i], updated);
            EXPECT_EQ(scaled.tensor.data<float>()[i], updated * 0.25f);
            EXPECT_EQ(narrow.tensor.data<bfloat16>()[row * 64 + column].bits,
                      bfloat16(updated).bits);
        }
        EXPECT_EQ(narrow.tensor.data<bfloat16>()[row * 64 + 5].bits, 0);
    }
}

// Parameters that lie one behind the other are updated in one pass where they decay alike, to the
// bits of parameters that lie apart; states keep their shapes.
TEST(Optimizer, NeighboursAreUpdatedInOnePass) {
    for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd}) {
        Bench bench(make_cpu_device());
        OptimizerOptions options;
        options.kind = kind;
        options.weight_decay = 0.1;
        options.momentum = 0.9;
        const std::vector<Shape> shapes = {{7, 11}, {64}, {3, 5}, {130}, {2, 2}};
        const auto decays = [](std::size_t i) { return i != 3; };
        std::int64_t bytes = 0;
        for (const Shape& shape : shapes)
            bytes += align_up(shape.elements() * 4);
        Buffer masters(*bench.device, bytes, Purpose::adapter);
        Buffer gradients(*bench.device, bytes, Purpose::gradients);
        // Whatever lies in the pads must not matter.
        std::memset(masters.raw(), 0xff, static_cast<std::size_t>(bytes));
        std::memset(gradients.raw(), 0xff, static_cast<std::size_t>(bytes));
        std::vector<Parameter> together(shapes.size());
        std::vector<std::unique_ptr<Trained>> apart;
        std::int64_t offset = 0;
        for (std::size_t i = 0; i < shapes.size(); ++i) {
            together[i].name = std::to_string(i);
            together[i].weight_decay = decays(i);
            together[i].master = masters.tensor(DType::f32, shapes[i], offset);
            together[i].gradient = gradients.tensor(DType::f32, shapes[i], offset);
            offset += align_up(together[i].master.bytes());
            apart.push_back(std::make_unique<Trained>(*bench.device, together[i].name, shapes[i]));
            apart[i]->parameter.weight_decay = decays(i);
            for (std::int64_t e = 0; e < shapes[i].elements(); ++e) {
                const auto x = static_cast<float>(e + 100 * static_cast<std::int64_t>(i));
                for (const Parameter* p : {&together[i], &apart[i]->parameter}) {
                    p->master.data<float>()[e] = std::cos(x);
                    p->gradient.data<float>()[e] = std::sin(3 * x);
                }
            }
        }
        std::vector<Parameter*> near, far;
        for (std::size_t i = 0; i < shapes.size(); ++i) {
            near.push_back(&together[i]);
            far.push_back(&apart[i]->parameter);
        }
        Optimizer joined(*bench.device, options, near);
        Optimizer single(*bench.device, options, far);
        const Scale half(bench.stream, 0.5f);
        for (int t = 1; t <= 3; ++t) {
            bench.meter.enable(true);
            const auto calls = bench.meter.total().calls;
            joined.step(bench.stream, 0.01, half.tensor(), t);
            EXPECT_EQ(bench.meter.total().calls - calls, 3);  // 0 to 2, 3, 4
            single.step(bench.stream, 0.01, half.tensor(), t);
        }
        for (std::size_t i = 0; i < shapes.size(); ++i)
            EXPECT_EQ(std::memcmp(near[i]->master.raw(), far[i]->master.raw(),
                                  static_cast<std::size_t>(near[i]->master.bytes())),
                      0)
                << i;
        const auto near_states = joined.states(), far_states = single.states();
        ASSERT_EQ(near_states.size(), far_states.size());
        for (std::size_t s = 0; s < near_states.size(); ++s) {
            EXPECT_EQ(near_states[s].first, far_states[s].first);
            EXPECT_TRUE(near_states[s].second.shape() == far_states[s].second.shape());
            EXPECT_EQ(std::memcmp(near_states[s].second.raw(), far_states[s].second.raw(),
                                  static_cast<std::size_t>(near_states[s].second.bytes())),
                      0);
        }
    }
}

// Masters and states copied to a second optimiser continue bit for bit: what a checkpoint relies
// on.
TEST(Optimizer, StatesAndMastersAreAllThatARunNeeds) {
    for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd}) {
        Bench bench(make_cpu_device());
        OptimizerOptions options;
        options.kind = kind;
        options.weight_decay = 0.01;
        options.momentum = 0.9;
        const Scale half(bench.stream, 0.5f);
        Trained straight(*bench.device, "w", {33});
        Trained resumed(*bench.device, "w", {33});
        Optimizer whole(*bench.device, options, {&straight.parameter});
        const auto gradient_at = [](int t, int i) {
            return std::sin(static_cast<float>(t * 37 + i * 11));
        };
        const auto run = [&](Optimizer& optimizer, const Trained& trained, int first, int last) {
            for (int t = first; t <= last; ++t) {
                for (int i = 0; i < 33; ++i)
                    trained.gradient.tensor.data<float>()[i] = gradient_at(t, i);
                optimizer.step(bench.stream, 0.01 / t, half.tensor(), t);
            }
        };
        for (int i = 0; i < 33; ++i)
            straight.master.tensor.data<float>()[i] = std::cos(static_cast<float>(i));
        run(whole, straight, 1, 3);
        Optimizer second(*bench.device, options, {&resumed.parameter});
        const auto from = whole.states();
        const auto to = second.states();
        ASSERT_EQ(from.size(), to.size());
        ASSERT_EQ(from.size(), kind == OptimizerKind::adamw ? 2u : 1u);
        for (std::size_t s = 0; s < from.size(); ++s) {
            EXPECT_EQ(from[s].first, to[s].first);
            std::memcpy(to[s].second.raw(), from[s].second.raw(), 33 * 4);
        }
        std::memcpy(resumed.master.tensor.raw(), straight.master.tensor.raw(), 33 * 4);
        run(whole, straight, 4, 6);
        run(second, resumed, 4, 6);
        EXPECT_EQ(std::memcmp(straight.master.tensor.raw(), resumed.master.tensor.raw(), 33 * 4),
                  0);
    }
}

TEST(Optimizer, TheDryDeviceCountsTheSameBytesAndTouchesNone) {
    struct Case {
        OptimizerKind kind;
        double momentum;
        std::int64_t states;
    };
    for (const Case& c : {Case{OptimizerKind::adamw, 0, 2}, Case{OptimizerKind::sgd, 0, 0},
                          Case{OptimizerKind::sgd, 0.9, 1}}) {
        OptimizerOptions options;
        options.kind = c.kind;
        options.momentum = c.momentum;
        MemoryUse use[2];
        Cost cost[2];
        for (const bool dry : {false, true}) {
            Bench bench(dry ? make_dry_device(detect_cpu_profile()) : make_cpu_device());
            bench.meter.enable(true);
            Trained a(*bench.device, "a", {7, 100});
            Trained b(*bench.device, "b", {3});
            OwnedTensor copy(*bench.device, DType::bf16, {7, 100}, Purpose::adapter);
            a.parameter.copies = {{copy.tensor}};
            if (!dry) {
                for (const Trained* trained : {&a, &b}) {
                    const auto bytes = static_cast<std::size_t>(trained->parameter.master.bytes());
                    std::memset(trained->master.tensor.raw(), 0, bytes);
                    std::memset(trained->gradient.tensor.raw(), 0, bytes);
                }
            }
            Optimizer optimizer(*bench.device, options, {&a.parameter, &b.parameter});
            optimizer.step(bench.stream, 1e-3, Scale(bench.stream, 1).tensor(), 1);
            use[dry] = bench.device->memory();
            cost[dry] = bench.meter.total().cost;
            const auto states = optimizer.states();
            EXPECT_EQ(static_cast<std::int64_t>(states.size()), 2 * c.states);
        }
        EXPECT_EQ(use[0].peak, use[1].peak);
        EXPECT_EQ(use[0].peak_by, use[1].peak_by);
        EXPECT_EQ(use[1].current_by[static_cast<int>(Purpose::optimizer)],
                  c.states * (align_up(2800) + align_up(12)));
        EXPECT_EQ(cost[0].flops, cost[1].flops);
        EXPECT_EQ(cost[0].bytes_read, cost[1].bytes_read);
        EXPECT_EQ(cost[0].bytes_written, cost[1].bytes_written);
        EXPECT_GT(cost[1].bytes_written, 0);
    }
}

TEST(Optimizer, NamesAreTransformers) {
    struct Case {
        const char* name;
        bool eight_bit, paged;
        const char* update;
    };
    for (const Case& c : {Case{"adamw_torch", false, false, "adamw_torch"},
                          Case{"adamw_torch_fused", false, false, "adamw_torch_fused"},
                          Case{"adamw_8bit", true, false, "adamw_8bit"},
                          Case{"adamw_bnb_8bit", true, false, "adamw_8bit"},
                          Case{"paged_adamw_8bit", true, true, "adamw_8bit"},
                          Case{"paged_adamw_32bit", false, true, "adamw_torch"},
                          Case{"paged_adamw", false, true, "adamw_torch"}}) {
        const OptimizerOptions options = optimizer_from_name(c.name);
        EXPECT_EQ(options.kind, OptimizerKind::adamw);
        EXPECT_EQ(options.eight_bit, c.eight_bit) << c.name;
        EXPECT_EQ(options.paged, c.paged) << c.name;
        EXPECT_EQ(update_name(c.name), c.update);
    }
    EXPECT_EQ(optimizer_from_name("sgd").kind, OptimizerKind::sgd);
    EXPECT_EQ(update_name("sgd"), "sgd");
    for (const char* name : {"adafactor", "lion_8bit", "adamw_hf", "AdamW", "paged_sgd", ""}) {
        try {
            optimizer_from_name(name);
            FAIL() << name << " accepted";
        } catch (const Error& error) {
            const std::string message = error.what();
            EXPECT_NE(message.find("train.optim: \"" + std::string(name) + "\""),
                      std::string::npos);
            EXPECT_NE(message.find("adamw_torch"), std::string::npos);
        }
    }
}

TEST(Optimizer, OptionsOutOfRangeAreNamed) {
    const auto device = make_cpu_device();
    const auto message_of = [&](const OptimizerOptions& options) -> std::string {
        try {
            Optimizer(*device, options, {});
        } catch (const Error& error) {
            return error.what();
        }
        return "accepted";
    };
    EXPECT_EQ(message_of({}), "accepted");
    EXPECT_EQ(message_of({.beta2 = 1.0}).rfind("train.adam_beta2", 0), 0u);
    EXPECT_EQ(message_of({.epsilon = -1}).rfind("train.adam_epsilon", 0), 0u);
    EXPECT_EQ(message_of({.weight_decay = std::numeric_limits<double>::quiet_NaN()})
                  .rfind("train.weight_decay", 0),
              0u);
    EXPECT_EQ(message_of({.kind = OptimizerKind::sgd, .nesterov = true}).rfind("train.nesterov", 0),
              0u);
}

}  // namespace
}  // namespace garam
