#include "garam/ops/adamw_8bit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "garam/core/dynamic_code_tables.h"
#include "garam/kernels/cuda/adamw_8bit.h"
#include "garam/ops/checks.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/cuda_kernels.h"

namespace garam {
namespace {

template <typename Step>
Step constants(const AdamWOptions& options) {
    const double t = static_cast<double>(options.step);
    const double root = std::sqrt(1 - std::pow(options.beta2, t));
    Step step{};
    step.decay = static_cast<float>(1 - options.learning_rate * options.weight_decay);
    step.beta1 = static_cast<float>(options.beta1);
    step.beta2 = static_cast<float>(options.beta2);
    // Of the rounded betas, as bitsandbytes takes it: 1 - 0.999f is 5e-5 off 0.001.
    step.one_minus_beta1 = 1.0f - step.beta1;
    step.one_minus_beta2 = 1.0f - step.beta2;
    step.step_size =
        static_cast<float>(-options.learning_rate * root / (1 - std::pow(options.beta1, t)));
    step.epsilon = static_cast<float>(root) * static_cast<float>(options.epsilon);
    return step;
}

// The part of a tensor whose blocks are among [begin, end): its first element and how many; and
// where its states are, in blocks behind `begin`.
struct Part {
    const AdamW8bitItem* item;
    std::int64_t element, elements, block;
};
template <typename Body>
void for_parts(std::span<const AdamW8bitItem> items, std::int64_t begin, std::int64_t end,
               const Body& body) {
    // The first tensor that ends behind `begin`.
    const auto first =
        std::partition_point(items.begin(), items.end(), [begin](const AdamW8bitItem& item) {
            return item.first_block + adamw_8bit_blocks(item.weight.elements()) <= begin;
        });
    for (auto item = first; item != items.end() && item->first_block < end; ++item) {
        const std::int64_t from = std::max(begin - item->first_block, std::int64_t{0});
        const std::int64_t element = from * kAdamW8bitBlock;
        const std::int64_t to =
            std::min((end - item->first_block) * kAdamW8bitBlock, item->weight.elements());
        if (to > element)
            body(Part{&*item, element, to - element, item->first_block + from - begin});
    }
}

}  // namespace

void adamw_8bit_step(Stream& stream, const AdamWOptions& options,
                     std::span<const AdamW8bitItem> items, const AdamW8bitStates& states,
                     std::int64_t first_block, const Tensor& gradient_scale) {
    constexpr const char* kName = "adamw_8bit_step";
    const std::int64_t blocks = states.m_absmax.elements();
    check_vector(stream, kName, states.m_absmax, blocks, DType::f32);
    check_vector(stream, kName, states.v_absmax, blocks, DType::f32);
    check_vector(stream, kName, states.m_codes, blocks * kAdamW8bitBlock, DType::u8);
    check_vector(stream, kName, states.v_codes, blocks * kAdamW8bitBlock, DType::u8);
    check_vector(stream, kName, gradient_scale, 1, DType::f32);
    GARAM_CHECK(options.step >= 1, "adamw_8bit_step: steps count from 1");
    std::int64_t all = 0;
    for (const AdamW8bitItem& item : items) {
        check_vector(stream, kName, item.weight, item.weight.elements(), DType::f32);
        check_vector(stream, kName, item.gradient, item.weight.elements(), DType::f32);
        GARAM_CHECK(item.first_block == all, "adamw_8bit_step: blocks are counted through");
        all += adamw_8bit_blocks(item.weight.elements());
    }
    GARAM_CHECK(first_block >= 0 && first_block + blocks <= all,
                "adamw_8bit_step: blocks beyond the tensors");
    std::int64_t n = 0;
    for_parts(items, first_block, first_block + blocks,
              [&n](const Part& part) { n += part.elements; });

    Cost cost;
    const double scales = 8.0 * static_cast<double>(blocks);
    cost.flops = 20.0 * static_cast<double>(n);
    cost.bytes_read = 10.0 * static_cast<double>(n) + scales;
    cost.bytes_written = 6.0 * static_cast<double>(n) + scales;
    OpScope op(stream, kName, cost);
    if (op.dry() || blocks == 0) return;

    if (runs_on_cuda(stream)) {
        std::vector<cuda::AdamW8bitPart> parts;
        for_parts(items, first_block, first_block + blocks, [&parts](const Part& part) {
            parts.push_back({part.item->weight.data<float>() + part.element,
                             part.item->gradient.data<float>() + part.element, part.elements,
                             part.block});
        });
        cuda::adamw_8bit_kernels().step(
            stream.queue(), constants<cuda::AdamW8bitStep>(options), gradient_scale.data<float>(),
            parts.data(), static_cast<std::int64_t>(parts.size()),
            {states.m_codes.data<std::uint8_t>(), states.v_codes.data<std::uint8_t>(),
             states.m_absmax.data<float>(), states.v_absmax.data<float>()},
            blocks);
        return;
    }
    auto step = constants<cpu::AdamW8bitStep>(options);
    step.gradient_scale = *gradient_scale.data<float>();
    if (std::isnan(step.gradient_scale)) return;
    const auto kernel = kernel_table(stream).adamw_8bit;
    parallel_for(
        blocks, kPieceElements / kAdamW8bitBlock, [&](std::int64_t begin, std::int64_t end) {
            for_parts(items, first_block + begin, first_block + end, [&](const Part& part) {
                const std::int64_t block = begin + part.block;
                kernel(step, kSignedDynamicCode, kUnsignedDynamicCode,
                       part.item->weight.data<float>() + part.element,
                       part.item->gradient.data<float>() + part.element,
                       states.m_codes.data<std::uint8_t>() + block * kAdamW8bitBlock,
                       states.v_codes.data<std::uint8_t>() + block * kAdamW8bitBlock,
                       states.m_absmax.data<float>() + block, states.v_absmax.data<float>() + block,
                       part.elements);
            });
        });
}

}  // namespace garam
