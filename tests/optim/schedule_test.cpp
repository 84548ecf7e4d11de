#include "garam/optim/schedule.h"

#include <gtest/gtest.h>

#include <iostream>
#include <limits>
#include <optional>
#include <string>

#include "garam/core/error.h"
#include "garam/core/json.h"
#include "testing/test_data.h"

namespace garam {
namespace {

// Which of our names a golden schedule stands for ("cosine_nowarmup_odd" is a cosine).
std::string schedule_of(const Json& golden) {
    const std::string name = golden.at("name").string();
    if (golden.at("settings").find("min_lr_rate") != nullptr) return "cosine_with_min_lr";
    for (const char* known : {"constant_with_warmup", "inverse_sqrt", "cosine", "linear"})
        if (name.rfind(known, 0) == 0) return known;
    return name;
}

std::optional<ScheduleType> supported_type(const std::string& name) {
    try {
        return schedule_type_from_name(name);
    } catch (const Error&) {
        return std::nullopt;
    }
}

std::int64_t setting(const Json& settings, const char* key) {
    const Json* value = settings.find(key);
    return value == nullptr ? 0 : value->integer(key);
}

TEST(Schedule, GoldenFactorsOfTransformers) {
    GARAM_REQUIRE_DATA("golden/optim_sched/schedules.json");
    const Json golden =
        Json::parse_file(testing::data_dir() / "golden" / "optim_sched" / "schedules.json");
    int checked = 0;
    for (const Json& entry : golden.at("schedules").array()) {
        const std::string name = entry.at("name").string();
        const std::optional<ScheduleType> type = supported_type(schedule_of(entry));
        if (!type) {
            std::cout << "[ skipped  ] schedule " << name << ": not supported\n";
            continue;
        }
        SCOPED_TRACE(name);
        const Json& settings = entry.at("settings");
        ScheduleOptions options;
        options.type = *type;
        options.learning_rate = 1.0;
        options.warmup_steps = setting(settings, "warmup");
        options.total_steps = setting(settings, "total");
        if (const Json* rate = settings.find("min_lr_rate"); rate != nullptr)
            options.kwargs.min_lr_rate = rate->number();
        const Json::Array& lr = entry.at("lr").array();
        for (std::size_t n = 0; n < lr.size(); ++n) {
            // The same double arithmetic in the same order; an ulp of 1 is left for another libm.
            EXPECT_NEAR(learning_rate(options, static_cast<std::int64_t>(n)), lr[n].number(),
                        2.3e-16)
                << "step " << n;
        }
        ++checked;
    }
    EXPECT_GT(checked, 0);
}

// Of the schedules with options: made by Transformers, see schedules/README.md.
TEST(Schedule, OptionsAsTransformersHasThem) {
    const Json golden = Json::parse_file(testing::source_dir() / "tests" / "optim" / "schedules" /
                                         "schedules.json");
    for (const Json& entry : golden.at("schedules").array()) {
        const std::string trace = entry.dump();
        SCOPED_TRACE(trace.substr(0, 200));
        ScheduleOptions options;
        options.type = schedule_type_from_name(entry.at("type").string());
        options.learning_rate = entry.at("learning_rate").number();
        options.warmup_steps = entry.at("warmup").integer();
        options.total_steps = entry.at("total").integer();
        ScheduleKwargs& kwargs = options.kwargs;
        for (const auto& [key, value] : entry.at("kwargs").object()) {
            if (key == "num_cycles")
                kwargs.num_cycles = value.number();
            else if (key == "min_lr")
                kwargs.min_lr = value.number();
            else if (key == "min_lr_rate")
                kwargs.min_lr_rate = value.number();
            else if (key == "lr_end")
                kwargs.lr_end = value.number();
            else if (key == "power")
                kwargs.power = value.number();
            else if (key == "timescale")
                kwargs.timescale = value.integer();
            else if (key == "num_decay_steps")
                kwargs.num_decay_steps = value.integer();
            else if (key == "num_stable_steps")
                kwargs.num_stable_steps = value.integer();
            else if (key == "min_lr_ratio")
                kwargs.min_lr_ratio = value.number();
            else if (key == "warmup_type")
                kwargs.warmup_type = value.string();
            else if (key == "decay_type")
                kwargs.decay_type = value.string();
            else
                FAIL() << key;
        }
        check_schedule(options);
        const Json::Array& lr = entry.at("lr").array();
        ASSERT_FALSE(lr.empty());
        for (std::size_t n = 0; n < lr.size(); ++n)
            EXPECT_NEAR(learning_rate(options, static_cast<std::int64_t>(n)), lr[n].number(),
                        4.5e-16 * options.learning_rate)
                << "step " << n;
    }
}

TEST(Schedule, OptionsThatDoNotFitAreRefused) {
    const auto refusal = [](const ScheduleOptions& options) -> std::string {
        try {
            check_schedule(options);
        } catch (const Error& error) {
            return error.what();
        }
        return "accepted";
    };
    ScheduleOptions options;
    EXPECT_EQ(refusal(options), "accepted");
    options.kwargs.num_cycles = 2;
    EXPECT_EQ(refusal(options),
              "train.lr_scheduler_kwargs.num_cycles belongs to cosine, cosine_with_min_lr, "
              "cosine_with_restarts, warmup_stable_decay; train.lr_scheduler_type is linear");
    options = {.type = ScheduleType::cosine_with_min_lr};
    EXPECT_NE(refusal(options).find("needs one of"), std::string::npos);
    options.kwargs.min_lr = 1e-6;
    EXPECT_EQ(refusal(options), "accepted");
    options.kwargs.min_lr_rate = 0.1;
    EXPECT_NE(refusal(options).find("needs one of"), std::string::npos);
    options = {.type = ScheduleType::polynomial, .learning_rate = 1e-8};
    EXPECT_NE(refusal(options).find("lr_end must be below"), std::string::npos);
    options = {.type = ScheduleType::warmup_stable_decay, .warmup_steps = 5, .total_steps = 20};
    EXPECT_NE(refusal(options).find("num_decay_steps"), std::string::npos);
    options.kwargs.num_decay_steps = 16;
    EXPECT_NE(refusal(options).find("more than the run's 20 steps"), std::string::npos);
    options.kwargs.num_decay_steps = 15;
    EXPECT_EQ(refusal(options), "accepted");
}

TEST(Schedule, GoldenTraceOfATrainingRun) {
    GARAM_REQUIRE_DATA("golden/peft/trace_case1/trace.json");
    const Json trace =
        Json::parse_file(testing::data_dir() / "golden" / "peft" / "trace_case1" / "trace.json");
    const Json& settings = trace.at("settings");
    ScheduleOptions options;
    options.type = ScheduleType::cosine;
    options.learning_rate = settings.at("lr").number();
    options.warmup_steps = settings.at("warmup_steps").integer();
    options.total_steps = settings.at("steps").integer();
    const Json::Array& steps = trace.at("token_mean").array();
    ASSERT_FALSE(steps.empty());
    EXPECT_EQ(learning_rate(options, 0), 0.0);
    for (std::size_t n = 0; n < steps.size(); ++n)
        EXPECT_NEAR(learning_rate(options, static_cast<std::int64_t>(n)),
                    steps[n].at("lr").number(), 2.3e-16 * options.learning_rate);
}

TEST(Schedule, ConstantIgnoresWarmup) {
    const ScheduleOptions options{
        .type = ScheduleType::constant, .learning_rate = 3e-4, .warmup_steps = 5, .total_steps = 9};
    for (const std::int64_t n : {0, 3, 8, 100})
        EXPECT_EQ(learning_rate(options, n), 3e-4);
}

TEST(Schedule, InverseSquareRootWithoutWarmupDecaysOver10000) {
    const ScheduleOptions options{.type = ScheduleType::inverse_sqrt, .learning_rate = 1};
    EXPECT_EQ(learning_rate(options, 0), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(options, 30000), 0.5);
}

TEST(Schedule, LinearReachesZeroAtTheEndAndStays) {
    const ScheduleOptions options{.learning_rate = 1, .warmup_steps = 2, .total_steps = 4};
    EXPECT_EQ(learning_rate(options, 3), 0.5);
    EXPECT_EQ(learning_rate(options, 4), 0.0);
    EXPECT_EQ(learning_rate(options, 40), 0.0);
}

TEST(Schedule, WarmupRatioRoundsUp) {
    EXPECT_EQ(resolve_warmup_steps(0, 0.1, 25), 3);
    EXPECT_EQ(resolve_warmup_steps(0, 0.03, 100), 3);
    EXPECT_EQ(resolve_warmup_steps(0, 0.0, 100), 0);
    EXPECT_EQ(resolve_warmup_steps(7, 0.5, 100), 7);   // steps win over the ratio
    EXPECT_EQ(resolve_warmup_steps(0, 0.07, 100), 8);  // 7.000000000000001 in doubles, as in Python
    EXPECT_THROW(resolve_warmup_steps(-1, 0, 100), Error);
    EXPECT_THROW(resolve_warmup_steps(0, 1.5, 100), Error);
    EXPECT_THROW(resolve_warmup_steps(0, std::numeric_limits<double>::quiet_NaN(), 100), Error);
}

TEST(Schedule, UnknownNamesAreRefusedWithTheKnownOnes) {
    try {
        schedule_type_from_name("reduce_lr_on_plateau");
        FAIL() << "accepted";
    } catch (const Error& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find("train.lr_scheduler_type: \"reduce_lr_on_plateau\""),
                  std::string::npos);
        EXPECT_NE(message.find("inverse_sqrt"), std::string::npos);
    }
    EXPECT_EQ(name_of(schedule_type_from_name("cosine")), "cosine");
}

}  // namespace
}  // namespace garam
