#include "garam/ops/dropout.h"

#include <algorithm>
#include <cmath>

#include "garam/kernels/cuda/dropout.h"
#include "garam/ops/checks.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {

std::uint32_t dropout_threshold(float p) {
    if (p <= 0) return 0;
    const double nearest = std::round(static_cast<double>(p) * 0x1p16);  // the product is exact
    return static_cast<std::uint32_t>(std::clamp(nearest, 1.0, 0x1p16 - 1));
}

std::uint64_t dropout_philox_key(std::uint64_t seed, std::uint32_t module) {
    return seed ^ (std::uint64_t{module} << 32 | module);
}

float dropout_factor(float p) {
    return 0x1p16f / (0x1p16f - static_cast<float>(dropout_threshold(p)));
}

void dropout(Stream& stream, const Tensor& x, float p, const DropoutKey& key, const Tensor& y,
             bool accumulate) {
    constexpr const char* kName = "dropout";
    const std::int64_t tokens = x.rows();
    const std::int64_t columns = x.columns();
    check_compute_dtype(kName, x);
    check_operand(stream, kName, x);
    check_matrix(stream, kName, y, tokens, columns, x.dtype());
    check_vector(stream, kName, key.positions, tokens, DType::i32);
    check_vector(stream, kName, key.samples, tokens, DType::i64);
    check_vector(stream, kName, key.step, 1, DType::i32);
    GARAM_CHECK(p >= 0 && p < 1, "dropout: probability outside [0, 1)");

    Cost cost;
    cost.flops = (accumulate ? 3.0 : 2.0) * static_cast<double>(x.elements());
    cost.bytes_read =
        bytes_of({&x, &key.positions, &key.samples}) + (accumulate ? bytes_of({&y}) : 0.0);
    cost.bytes_written = bytes_of({&y});
    OpScope op(stream, kName, cost);
    if (op.dry()) return;

    const std::uint64_t philox_key = dropout_philox_key(key.seed, key.module);
    const std::uint32_t threshold = dropout_threshold(p);
    const float factor = dropout_factor(p);
    if (runs_on_cuda(stream)) {
        const cuda::DropoutMask mask{philox_key,
                                     threshold,
                                     factor,
                                     key.step.data<std::int32_t>(),
                                     key.positions.data<std::int32_t>(),
                                     key.samples.data<std::int64_t>()};
        cuda::dropout_kernels().run(stream.queue(), cuda_rows(x), mask, cuda_rows(y), x.dtype(),
                                    accumulate, tokens, columns);
        return;
    }
    cpu::DropoutRow mask{};
    mask.key = philox_key;
    mask.threshold = threshold;
    mask.factor = factor;
    const auto kernel = element_kernels(stream, x.dtype()).dropout;
    const auto step = static_cast<std::uint32_t>(*key.step.data<std::int32_t>());
    const std::int32_t* const positions = key.positions.data<std::int32_t>();
    const std::int64_t* const samples = key.samples.data<std::int64_t>();
    parallel_for(tokens, rows_per_piece(columns), [&](std::int64_t begin, std::int64_t end) {
        cpu::DropoutRow row = mask;
        for (std::int64_t t = begin; t < end; ++t) {
            const std::uint64_t sample = static_cast<std::uint64_t>(samples[t]);
            row.position = static_cast<std::uint32_t>(positions[t]);
            row.sample_low = static_cast<std::uint32_t>(sample);
            row.sample_high_xor_step = static_cast<std::uint32_t>(sample >> 32) ^ step;
            kernel(row, element_at(x, t, 0), element_at(y, t, 0), columns, accumulate);
        }
    });
}

}  // namespace garam
