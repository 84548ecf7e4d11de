#include "garam/ops/logit_scale.h"

#include "ops/cross_entropy_cases.h"
#include "ops/op_run.h"

namespace garam::testing {
namespace {

class ScaleLogits : public OpTest {};
GARAM_FOR_ALL_PROFILES(ScaleLogits);

TEST_P(ScaleLogits, InPlace) {
    struct Case {
        DType dtype;
        std::int64_t rows, vocab, pad;
    };
    for (const Case& c : {Case{DType::f32, 1, 1, 0}, Case{DType::f32, 3, 1025, 3},
                          Case{DType::f32, 5, 4096, 0}, Case{DType::bf16, 3, 1025, 1},
                          Case{DType::bf16, 2, 8200, 8}, Case{DType::f32, 0, 7, 0}}) {
        for (const LogitScale& scale :
             {LogitScale{0.125f, 0}, LogitScale{1, 30}, LogitScale{40, 5}}) {
            SCOPED_TRACE(std::to_string(c.rows) + "x" + std::to_string(c.vocab) + " factor " +
                         std::to_string(scale.factor) + " cap " + std::to_string(scale.softcap));
            OpRun run(GetParam());
            const int logits = run.in_place(c.dtype, c.rows, c.vocab, c.pad);
            const auto count = static_cast<double>(c.rows * c.vocab);
            const double bytes = count * static_cast<double>(size_of(c.dtype));
            run.run([&](Stream& stream,
                        const std::vector<Tensor>& t) { scale_logits(stream, t[logits], scale); },
                    {(scale.softcap > 0 ? 4 : 1) * count, bytes, bytes});
            std::vector<double> want;
            for (const double x : run.before(logits))
                want.push_back(scaled(x, scale));
            // tanh to a few units, small arguments too, and the factors around it.
            expect_close(run.values(logits), want, 1.01 * unit_of(c.dtype) + 10 * 0x1p-24, 1e-37,
                         "logits");
        }
    }
}

TEST_P(ScaleLogits, ExtremesAndNan) {
    OpRun run(GetParam());
    const int logits = run.in_place(DType::f32, 1, 8);
    const double inf = std::numeric_limits<double>::infinity();
    run.set(logits, {-inf, -3e38, -1000, -0.0, 1e-30, 1000, inf, std::nan("")});
    run.run(
        [&](Stream& stream, const std::vector<Tensor>& t) {
            scale_logits(stream, t[logits], {1, 30});
        },
        {32, 32, 32});
    const std::vector<double> got = run.values(logits);
    EXPECT_EQ(std::vector<double>(got.begin(), got.begin() + 4),
              (std::vector<double>{-30, -30, -30, 0}));
    EXPECT_NEAR(got[4], 1e-30, 1e-36);
    EXPECT_EQ(got[5], 30);
    EXPECT_EQ(got[6], 30);
    EXPECT_TRUE(std::isnan(got[7]));
}

}  // namespace
}  // namespace garam::testing
