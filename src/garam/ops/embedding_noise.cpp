#include "garam/ops/embedding_noise.h"

#include <algorithm>
#include <cmath>

#include "garam/core/philox.h"
#include "garam/kernels/cuda/embedding_noise.h"
#include "garam/ops/checks.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {
namespace {

// Keeps the noise apart from everything else that is drawn with the run's seed.
constexpr std::uint64_t kNoiseKey = 0x6e656674756e6500;  // "neftune"

template <typename T>
void add_noise(T* x, std::int64_t columns, const PhiloxWords& line, std::uint64_t key,
               float magnitude) {
    PhiloxWords words{};
    for (std::int64_t c = 0; c < columns; ++c) {
        if (c % 4 == 0)
            words = philox<7>({static_cast<std::uint32_t>(c / 4), line[1], line[2], line[3]}, key);
        const float u = uniform01(words[static_cast<std::size_t>(c % 4)]);
        x[c] = T(static_cast<float>(x[c]) + (2.0f * u - 1.0f) * magnitude);
    }
}

}  // namespace

void embedding_noise(Stream& stream, const Tensor& x, float alpha, const DropoutKey& key,
                     const Tensor& cu_seqlens) {
    constexpr const char* kName = "embedding_noise";
    const std::int64_t tokens = x.rows();
    const std::int64_t columns = x.columns();
    const std::int64_t segments = cu_seqlens.elements() - 1;
    check_compute_dtype(kName, x);
    check_operand(stream, kName, x);
    check_vector(stream, kName, key.positions, tokens, DType::i32);
    check_vector(stream, kName, key.samples, tokens, DType::i64);
    check_vector(stream, kName, key.step, 1, DType::i32);
    check_vector(stream, kName, cu_seqlens, segments + 1, DType::i32);
    GARAM_CHECK(alpha >= 0 && segments >= 1, "embedding_noise: alpha and segments");

    Cost cost;
    cost.flops = 2.0 * static_cast<double>(x.elements());
    cost.bytes_read = bytes_of({&x, &key.positions, &key.samples, &cu_seqlens});
    cost.bytes_written = bytes_of({&x});
    OpScope op(stream, kName, cost);
    if (op.dry()) return;
    const std::uint64_t philox_key = key.seed ^ kNoiseKey;
    const std::int32_t* const positions = key.positions.data<std::int32_t>();
    const std::int64_t* const samples = key.samples.data<std::int64_t>();
    const std::int32_t* const cu = cu_seqlens.data<std::int32_t>();
    if (runs_on_cuda(stream)) {
        cuda::embedding_noise_kernels().run(
            stream.queue(),
            {cuda_rows(x), x.dtype(), tokens, columns, alpha, philox_key,
             key.step.data<std::int32_t>(), positions, samples, cu, static_cast<int>(segments)});
        return;
    }
    const auto step = static_cast<std::uint32_t>(*key.step.data<std::int32_t>());
    parallel_for(tokens, rows_per_piece(columns), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
            // The last segment that begins at or before t; empty ones begin where the next does.
            const std::int32_t* const after =
                std::upper_bound(cu, cu + segments + 1, static_cast<std::int32_t>(t));
            GARAM_CHECK(after != cu && after != cu + segments + 1,
                        "embedding_noise: a token in no segment");
            const auto length = static_cast<std::int64_t>(*after) - after[-1];
            const float magnitude = alpha / std::sqrt(static_cast<float>(length * columns));
            const auto sample = static_cast<std::uint64_t>(samples[t]);
            const PhiloxWords line = {0, static_cast<std::uint32_t>(positions[t]),
                                      static_cast<std::uint32_t>(sample),
                                      static_cast<std::uint32_t>(sample >> 32) ^ step};
            if (x.dtype() == DType::bf16)
                add_noise(element_at<bfloat16>(x, t, 0), columns, line, philox_key, magnitude);
            else
                add_noise(element_at<float>(x, t, 0), columns, line, philox_key, magnitude);
        }
    });
}

}  // namespace garam
