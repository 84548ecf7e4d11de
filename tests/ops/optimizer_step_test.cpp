#include "garam/ops/optimizer_step.h"

#include <iostream>

#include "garam/core/json.h"
#include "ops/op_run.h"
#include "ops/optimizer_step_cases.h"
#include "testing/test_data.h"

namespace garam::testing {
namespace {

class OptimizerStep : public OpTest {};
GARAM_FOR_ALL_PROFILES(OptimizerStep);

TEST_P(OptimizerStep, AdamW) {
    for (const AdamWCase& c : adamw_cases()) {
        SCOPED_TRACE(c.n);
        OpRun run(GetParam());
        const int w = run.in_place(DType::f32, 1, c.n);
        const int g = run.input(DType::f32, 1, c.n);
        const int m = run.in_place(DType::f32, 1, c.n);
        const int v = run.in_place(DType::f32, 1, c.n);
        const int scale = run.input(DType::f32, 1, 1);
        run.set(scale, {c.gradient_scale});
        std::vector<double> second = run.values(v);
        for (double& value : second)
            value *= value;  // a mean of squares
        run.set(v, second);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                adamw_step(stream, c.options, t[w], t[g], t[scale], t[m], t[v]);
            },
            c.cost);
        const AdamWOptions& o = c.options;
        std::vector<double> want_w, want_m, want_v;
        const std::vector<double> gradients = run.values(g), old_m = run.before(m),
                                  old_v = run.before(v), old_w = run.before(w);
        for (std::int64_t i = 0; i < c.n; ++i) {
            const double gradient = gradients[i] * c.gradient_scale;
            const double mi = o.beta1 * old_m[i] + (1 - o.beta1) * gradient;
            const double vi = o.beta2 * old_v[i] + (1 - o.beta2) * gradient * gradient;
            const double t = static_cast<double>(o.step);
            double wi = old_w[i] * (1 - o.learning_rate * o.weight_decay);
            wi -= o.learning_rate / (1 - std::pow(o.beta1, t)) * mi /
                  (std::sqrt(vi) / std::sqrt(1 - std::pow(o.beta2, t)) + o.epsilon);
            want_w.push_back(wi);
            want_m.push_back(mi);
            want_v.push_back(vi);
            if (i > 200) i += 97;  // every element is one formula: a sample of the long case
        }
        const auto sampled = [&](int tensor) {
            std::vector<double> some;
            const std::vector<double> all = run.values(tensor);
            for (std::int64_t i = 0; i < c.n; ++i) {
                some.push_back(all[static_cast<std::size_t>(i)]);
                if (i > 200) i += 97;
            }
            return some;
        };
        // Constants and each operation round in fp32; m may cancel between terms of size ~5.
        expect_close(sampled(m), want_m, 4 * 0x1p-24, 20 * 0x1p-24, "m");
        expect_close(sampled(v), want_v, 6 * 0x1p-24, 0, "v");
        expect_close(sampled(w), want_w, 3 * 0x1p-24, 20 * 0x1p-24 * o.learning_rate * 50, "w");
    }
}

TEST_P(OptimizerStep, Sgd) {
    for (const SgdCase& c : sgd_cases()) {
        SCOPED_TRACE(std::to_string(c.n) + " momentum " + std::to_string(c.options.momentum));
        OpRun run(GetParam());
        const bool momentum = c.options.momentum != 0;
        const int w = run.in_place(DType::f32, 1, c.n);
        const int g = run.input(DType::f32, 1, c.n);
        // A first step must not read the buffer.
        const int buffer =
            c.options.step == 1 ? run.output(DType::f32, 1, c.n) : run.in_place(DType::f32, 1, c.n);
        const int scale = run.input(DType::f32, 1, 1);
        run.set(scale, {c.gradient_scale});
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                sgd_step(stream, c.options, t[w], t[g], t[scale], momentum ? t[buffer] : Tensor());
            },
            c.cost);
        const SgdOptions& o = c.options;
        std::vector<double> want, before = run.before(w), gradients = run.values(g),
                                  buffers = run.before(buffer);
        for (std::size_t i = 0; i < before.size(); ++i) {
            double gradient = gradients[i] * c.gradient_scale + o.weight_decay * before[i];
            if (momentum) {
                const double moved =
                    o.step == 1 ? gradient : o.momentum * buffers[i] + (1 - o.dampening) * gradient;
                gradient = o.nesterov ? gradient + o.momentum * moved : moved;
            }
            want.push_back(before[i] - o.learning_rate * gradient);
        }
        expect_close(run.values(w), want, 2 * 0x1p-24, 1e-6, "w");
    }
}

// The step of a loss or gradient that is not finite.
TEST_P(OptimizerStep, ANaNScaleChangesNothing) {
    for (const std::int64_t n : {3, 5000}) {
        OpRun run(GetParam());
        const int w = run.in_place(DType::f32, 1, n);
        const int g = run.input(DType::f32, 1, n);
        const int m = run.in_place(DType::f32, 1, n);
        const int v = run.in_place(DType::f32, 1, n);
        const int scale = run.input(DType::f32, 1, 1);
        run.set(scale, {std::nan("")});
        const auto count = static_cast<double>(n);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                adamw_step(stream, {.learning_rate = 1}, t[w], t[g], t[scale], t[m], t[v]);
                sgd_step(stream, {.learning_rate = 1, .momentum = 0.9, .step = 2}, t[w], t[g],
                         t[scale], t[m]);
            },
            {23 * count, 28 * count, 20 * count});
        for (const int x : {w, m, v})
            EXPECT_EQ(run.values(x), run.before(x));
    }
}

// Several steps beside torch's own optimisers.
TEST_P(OptimizerStep, GoldenTraces) {
    GARAM_REQUIRE_DATA("golden/optim_sched/optimizers.json");
    const Json golden = Json::parse_file(data_dir() / "golden" / "optim_sched" / "optimizers.json");
    const auto numbers = [](const Json& list) {
        std::vector<double> values;
        for (const Json& value : list.array())
            values.push_back(value.number());
        return values;
    };
    const std::vector<double> start = numbers(golden.at("param0"));
    const std::int64_t n = static_cast<std::int64_t>(start.size());
    int checked = 0;
    for (const Json& trace : golden.at("runs").array()) {
        const std::string name = trace.at("name").string();
        const Json& settings = trace.at("settings");
        const auto setting = [&](const char* key, double otherwise) {
            const Json* value = settings.find(key);
            if (value == nullptr) return otherwise;
            return value->is_bool() ? static_cast<double>(value->boolean()) : value->number();
        };
        SCOPED_TRACE(name + " " + settings.dump());
        const bool sgd = name.rfind("SGD", 0) == 0;
        // Adam is AdamW without decay; Adam's own decay (L2) is no optimiser of ours.
        const bool adamw = name.rfind("AdamW", 0) == 0 ||
                           (name.rfind("Adam", 0) == 0 && settings.find("weight_decay") == nullptr);
        if (!adamw && !sgd) {
            std::cout << "skipped: " << name << "\n";
            continue;
        }
        ++checked;
        // "AdamW_clip0.5": gradients clipped to that norm, as torch does (1e-6 beside the norm).
        const std::size_t clip_at = name.find("clip");
        const double max_norm =
            clip_at == std::string::npos ? 0 : std::stod(name.substr(clip_at + 4));
        std::vector<double> w_now = start, m_now(start.size(), 0.0), v_now(start.size(), 0.0);
        std::int64_t step = 0;
        for (const Json& expected : trace.at("params").array()) {
            const std::vector<double> gradient =
                numbers(golden.at("grads").array()[static_cast<std::size_t>(step)]);
            ++step;
            double norm = 0;
            for (const double value : gradient)
                norm += value * value;
            norm = std::sqrt(norm);
            const float factor =
                max_norm == 0 ? 1.0f : static_cast<float>(std::min(1.0, max_norm / (norm + 1e-6)));
            OpRun run(GetParam());
            const int w = run.in_place(DType::f32, 1, n);
            const int g = run.input(DType::f32, 1, n);
            const int m = run.in_place(DType::f32, 1, n);
            const int v = run.in_place(DType::f32, 1, n);
            run.set(w, w_now);
            run.set(g, gradient);
            run.set(m, m_now);
            run.set(v, v_now);
            const int scale = run.input(DType::f32, 1, 1);
            run.set(scale, {factor});
            AdamWOptions a;
            SgdOptions s;
            a.learning_rate = s.learning_rate = setting("lr", 0);
            a.weight_decay = s.weight_decay = setting("weight_decay", 0);
            a.epsilon = setting("eps", 1e-8);
            if (const Json* betas = settings.find("betas")) {
                a.beta1 = betas->array()[0].number();
                a.beta2 = betas->array()[1].number();
            }
            a.step = s.step = step;
            s.momentum = setting("momentum", 0);
            s.dampening = setting("dampening", 0);
            s.nesterov = setting("nesterov", 0) != 0;
            Cost cost{15.0 * 8, 16.0 * 8, 12.0 * 8};
            if (!adamw) {
                const bool held = s.momentum != 0;
                cost.flops = 8 * (5.0 + (held ? (step > 1 ? 3 : 0) + (s.nesterov ? 2 : 0) : 0));
                cost.bytes_read = 8 * (8.0 + (held && step > 1 ? 4 : 0));
                cost.bytes_written = 8 * (4.0 + (held ? 4 : 0));
            }
            run.run(
                [&](Stream& stream, const std::vector<Tensor>& t) {
                    if (adamw)
                        adamw_step(stream, a, t[w], t[g], t[scale], t[m], t[v]);
                    else
                        sgd_step(stream, s, t[w], t[g], t[scale],
                                 s.momentum != 0 ? t[m] : Tensor());
                },
                cost);
            w_now = run.values(w);
            m_now = run.values(m);
            v_now = run.values(v);
            // Both round in fp32, some operations in another order: a few units a step.
            expect_close(w_now, numbers(expected), 4.0 * static_cast<double>(step) * 0x1p-24,
                         1e-8 * static_cast<double>(step), "step " + std::to_string(step));
        }
        EXPECT_GE(step, 6);
    }
    EXPECT_GE(checked, 1);
}

}  // namespace
}  // namespace garam::testing
