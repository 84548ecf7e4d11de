#include "garam/ops/lora.h"

#include <cstdint>

#include "garam/kernels/cuda/lora.h"
#include "garam/ops/checks.h"
#include "garam/ops/cuda_kernels.h"
#include "garam/ops/dropout.h"
#include "garam/ops/elementwise.h"
#include "garam/ops/matmul.h"

namespace garam {
namespace {

std::int64_t parts_of(const LoraGroup& group) {
    return static_cast<std::int64_t>(group.parts.size());
}
// Columns of the tail that parts own.
std::int64_t owned(const LoraGroup& group) {
    return parts_of(group) * group.rank;
}
bool is_masked(const LoraGroup& group, const LoraMask& mask) {
    return mask.active && group.dropout > 0;
}
Tensor columns_of_part(const LoraGroup& group, const Tensor& x, std::int64_t part) {
    return x.slice_columns(part * group.rank, (part + 1) * group.rank);
}
Tensor A_of_part(const LoraGroup& group, std::int64_t part) {
    return group.A.slice_rows(part * group.rank, (part + 1) * group.rank);
}
DropoutKey key_of_part(const LoraGroup& group, const LoraMask& mask, std::int64_t part) {
    return {mask.seed, mask.step, group.parts[static_cast<std::size_t>(part)].module,
            mask.positions, mask.samples};
}

void check_group(const Stream& stream, const char* op, const LoraGroup& group, const LoraMask& mask,
                 std::int64_t tokens, DType dtype) {
    GARAM_CHECK(stream.is_for_cuda(),
                std::string(op) + ": on a card only; elsewhere nn/linear.h multiplies the parts");
    GARAM_CHECK(group.rank > 0 && !group.parts.empty(), std::string(op) + ": no adapter");
    const std::int64_t tail = group.A.rows();
    GARAM_CHECK(tail % 16 == 0 && owned(group) <= tail,
                std::string(op) + ": the parts do not fit into the tail");
    check_matrix(stream, op, group.A, tail, group.A.columns(), dtype);
    if (!is_masked(group, mask)) return;
    GARAM_CHECK(group.dropout < 1, std::string(op) + ": probability outside [0, 1)");
    check_vector(stream, op, mask.positions, tokens, DType::i32);
    check_vector(stream, op, mask.samples, tokens, DType::i64);
    check_vector(stream, op, mask.step, 1, DType::i32);
    if (mask.kept)
        check_vector(stream, op, mask.kept, tokens * lora_kept_bytes(group, group.A.columns()),
                     DType::u8);
}

double elements(std::int64_t rows, std::int64_t columns) {
    return static_cast<double>(rows) * static_cast<double>(columns);
}
double bytes_of_elements(std::int64_t rows, std::int64_t columns, DType dtype) {
    return elements(rows, columns) * static_cast<double>(size_of(dtype));
}
double mask_bytes(const LoraGroup& group, const LoraMask& mask) {
    return is_masked(group, mask) ? bytes_of({&mask.positions, &mask.samples}) : 0.0;
}

// Rows of whole vectors of 16 bytes.
bool in_vectors(const Tensor& rows) {
    constexpr std::int64_t kVector = 16;
    const auto size = static_cast<std::int64_t>(size_of(rows.dtype()));
    return reinterpret_cast<std::uintptr_t>(rows.raw()) % kVector == 0 &&
           rows.pitch() * size % kVector == 0;
}

// Whether the kernels of kernels/cuda/lora.h take it. Depends on shapes, pitches and alignments, which a
// dry run has too.
bool fuses(const LoraGroup& group, const Tensor& x, const Tensor& h) {
    bool gradients_fit = true;
    for (const LoraPart& part : group.parts)
        gradients_fit = gradients_fit && (!part.A_gradient || in_vectors(part.A_gradient));
    return x.dtype() == DType::bf16 && cuda::lora_fuses(parts_of(group), group.rank, x.columns()) &&
           in_vectors(x) && in_vectors(h) && in_vectors(group.A) && gradients_fit;
}

cuda::LoraArguments arguments_of(const Stream& stream, const LoraGroup& group, const LoraMask& mask,
                                 const Tensor& x, const Tensor& h) {
    cuda::LoraArguments arguments;
    arguments.tokens = x.rows();
    arguments.in = x.columns();
    arguments.parts = static_cast<int>(parts_of(group));
    arguments.rank = static_cast<int>(group.rank);
    arguments.tail = static_cast<int>(h.columns());
    arguments.x = cuda_rows(x);
    arguments.A = cuda_rows(group.A);
    arguments.h = cuda_rows(h);
    arguments.multiprocessors = stream.device().profile().multiprocessors;
    cuda::LoraMasks& masks = arguments.masks;
    masks.active = is_masked(group, mask);
    if (masks.active) {
        masks.common.threshold = dropout_threshold(group.dropout);
        masks.common.factor = dropout_factor(group.dropout);
        masks.common.step = mask.step.data<std::int32_t>();
        masks.common.positions = mask.positions.data<std::int32_t>();
        masks.common.samples = mask.samples.data<std::int64_t>();
        arguments.kept = static_cast<std::uint32_t*>(mask.kept.raw());
    }
    for (std::size_t i = 0; i < group.parts.size(); ++i) {
        const LoraPart& part = group.parts[i];
        masks.keys[i] = dropout_philox_key(mask.seed, part.module);
        if (part.A_gradient) arguments.A_gradient[i] = cuda_rows(part.A_gradient);
    }
    return arguments;
}

// The same for the backward, which reads masks that were kept.
bool backward_fuses(const LoraGroup& group, const LoraMask& mask, const Tensor& x,
                    const Tensor& dh) {
    return (!is_masked(group, mask) || mask.kept_is_written) && fuses(group, x, dh);
}

float* partial_sums(Stream& stream, std::int64_t floats) {
    return floats == 0 ? nullptr
                       : static_cast<float*>(stream.arena().scratch(DType::f32, {floats}).raw());
}

// Calls body(part, mask_part(x)).
template <typename Body>
void for_masked(Stream& stream, const LoraGroup& group, const LoraMask& mask, const Tensor& x,
                const Body& body) {
    const ScratchScope scope(stream.arena());
    Tensor masked = x;
    if (is_masked(group, mask)) masked = stream.arena().scratch(x.dtype(), {x.rows(), x.columns()});
    for (std::int64_t part = 0; part < parts_of(group); ++part) {
        if (is_masked(group, mask))
            dropout(stream, x, group.dropout, key_of_part(group, mask, part), masked, false);
        body(part, masked);
    }
}

void down_by_parts(Stream& stream, const LoraGroup& group, const LoraMask& mask, const Tensor& x,
                   const Tensor& u) {
    if (!is_masked(group, mask))
        return matmul(stream, x, group.A, u, {.transpose_b = true, .b_is_settled = true});
    for_masked(stream, group, mask, x, [&](std::int64_t part, const Tensor& masked) {
        matmul(stream, masked, A_of_part(group, part), columns_of_part(group, u, part),
               {.transpose_b = true});
    });
    if (owned(group) < u.columns()) fill(stream, 0, u.slice_columns(owned(group), u.columns()));
}

void down_backward_by_parts(Stream& stream, const LoraGroup& group, const LoraMask& mask,
                            const Tensor& x, const Tensor& dh) {
    for_masked(stream, group, mask, x, [&](std::int64_t part, const Tensor& masked) {
        const Tensor& gradient = group.parts[static_cast<std::size_t>(part)].A_gradient;
        if (!gradient) return;
        matmul(stream, columns_of_part(group, dh, part), masked, gradient,
               {.transpose_a = true, .accumulate = true});
    });
}

void input_backward_by_parts(Stream& stream, const LoraGroup& group, const LoraMask& mask,
                             const Tensor& dh, const Tensor& dx) {
    if (!is_masked(group, mask))
        return matmul(stream, dh.slice_columns(0, owned(group)),
                      group.A.slice_rows(0, owned(group)), dx, {.accumulate = true});
    const ScratchScope scope(stream.arena());
    const Tensor term = stream.arena().scratch(dx.dtype(), {dx.rows(), dx.columns()});
    for (std::int64_t part = 0; part < parts_of(group); ++part) {
        matmul(stream, columns_of_part(group, dh, part), A_of_part(group, part), term);
        dropout(stream, term, group.dropout, key_of_part(group, mask, part), dx, true);
    }
}

void up_backward_by_parts(Stream& stream, const LoraGroup& group, const Tensor& dy, const Tensor& u,
                          const Tensor& dh) {
    matmul(stream, dy, group.B, dh);
    for (std::int64_t i = 0; i < parts_of(group); ++i) {
        const LoraPart& part = group.parts[static_cast<std::size_t>(i)];
        if (!part.B_gradient) continue;
        matmul(stream, dy.slice_columns(part.begin, part.end), columns_of_part(group, u, i),
               part.B_gradient, {.transpose_a = true, .alpha = group.scaling, .accumulate = true});
    }
}

// As fuses(), for dy. Where nothing is trained, dh is a product like any other.
bool up_fuses(const LoraGroup& group, const Tensor& dy, const Tensor& u, const Tensor& dh) {
    bool fit = dy.dtype() == DType::bf16 && cuda::lora_up_fuses(parts_of(group), group.rank) &&
               in_vectors(dy) && in_vectors(group.B) && in_vectors(u) && in_vectors(dh);
    bool trains = false;
    for (const LoraPart& part : group.parts) {
        trains = trains || part.B_gradient;
        fit = fit && part.begin % 8 == 0 && part.end % 8 == 0 &&
              (!part.B_gradient || in_vectors(part.B_gradient));
    }
    return fit && trains;
}

cuda::LoraUpArguments up_arguments_of(const Stream& stream, const LoraGroup& group,
                                      const Tensor& dy, const Tensor& u, const Tensor& dh) {
    cuda::LoraUpArguments arguments;
    arguments.tokens = dy.rows();
    arguments.parts = static_cast<int>(parts_of(group));
    arguments.rank = static_cast<int>(group.rank);
    arguments.tail = static_cast<int>(dh.columns());
    arguments.scaling = group.scaling;
    arguments.dy = cuda_rows(dy);
    arguments.B = cuda_rows(group.B);
    arguments.u = cuda_rows(u);
    arguments.dh = cuda_rows(dh);
    arguments.multiprocessors = stream.device().profile().multiprocessors;
    for (std::size_t i = 0; i < group.parts.size(); ++i) {
        const LoraPart& part = group.parts[i];
        arguments.begin[i] = part.begin;
        arguments.end[i] = part.end;
        if (part.B_gradient) arguments.B_gradient[i] = cuda_rows(part.B_gradient);
    }
    return arguments;
}

}  // namespace

std::int64_t lora_kept_bytes(const LoraGroup& group, std::int64_t in) {
    if (!cuda::lora_fuses(parts_of(group), group.rank, in)) return 0;
    return parts_of(group) * cuda::lora_kept_words(in) *
           static_cast<std::int64_t>(sizeof(std::uint32_t));
}

bool lora_down(Stream& stream, const LoraGroup& group, const LoraMask& mask, const Tensor& x,
               const Tensor& u) {
    constexpr const char* kName = "lora_down";
    const std::int64_t tokens = x.rows();
    check_compute_dtype(kName, x);
    check_group(stream, kName, group, mask, tokens, x.dtype());
    check_matrix(stream, kName, x, tokens, group.A.columns(), x.dtype());
    check_matrix(stream, kName, u, tokens, group.A.rows(), x.dtype());

    Cost cost;
    cost.flops = 2 * elements(tokens, x.columns()) * static_cast<double>(owned(group));
    if (is_masked(group, mask))
        cost.flops += 2 * elements(tokens, x.columns()) * static_cast<double>(parts_of(group));
    cost.bytes_read = bytes_of({&x}) + bytes_of_elements(owned(group), x.columns(), x.dtype()) +
                      mask_bytes(group, mask);
    cost.bytes_written = bytes_of({&u});
    const OpScope op(stream, kName, cost);
    if (tokens == 0) return mask.kept_is_written;
    if (!is_masked(group, mask) || !fuses(group, x, u)) {
        down_by_parts(stream, group, mask, x, u);
        return mask.kept_is_written;
    }
    const ScratchScope scope(stream.arena());
    float* const partial =
        partial_sums(stream, cuda::lora_down_scratch(tokens, x.columns(), owned(group),
                                                     stream.device().profile().multiprocessors));
    const bool kept = static_cast<bool>(mask.kept);
    if (op.dry()) return kept;
    cuda::LoraArguments arguments = arguments_of(stream, group, mask, x, u);
    arguments.partial = partial;
    if (mask.kept_is_written) arguments.kept = nullptr;
    cuda::lora_kernels().down(stream.queue(), arguments);
    return kept;
}

void lora_up_backward(Stream& stream, const LoraGroup& group, const Tensor& dy, const Tensor& u,
                      const Tensor& dh) {
    constexpr const char* kName = "lora_up_backward";
    const std::int64_t tokens = dy.rows();
    const std::int64_t tail = group.A.rows();
    check_compute_dtype(kName, dy);
    check_group(stream, kName, group, {}, tokens, dy.dtype());
    check_matrix(stream, kName, dy, tokens, group.B.rows(), dy.dtype());
    check_matrix(stream, kName, group.B, dy.columns(), tail, dy.dtype());
    check_matrix(stream, kName, u, tokens, tail, dy.dtype());
    check_matrix(stream, kName, dh, tokens, tail, dy.dtype());

    Cost cost;
    cost.bytes_read = bytes_of({&dy});
    cost.bytes_written = bytes_of({&dh});
    for (const LoraPart& part : group.parts) {
        const std::int64_t outputs = part.end - part.begin;
        const double product = 2 * elements(tokens, outputs) * static_cast<double>(group.rank);
        cost.flops += product;
        cost.bytes_read += bytes_of_elements(outputs, group.rank, dy.dtype());
        if (!part.B_gradient) continue;
        check_matrix(stream, kName, part.B_gradient, outputs, group.rank, DType::f32);
        cost.flops += product;
        cost.bytes_read +=
            bytes_of_elements(tokens, group.rank, dy.dtype()) + bytes_of({&part.B_gradient});
        cost.bytes_written += bytes_of({&part.B_gradient});
    }
    const OpScope op(stream, kName, cost);
    if (tokens == 0) return;
    if (!up_fuses(group, dy, u, dh)) return up_backward_by_parts(stream, group, dy, u, dh);
    const ScratchScope scope(stream.arena());
    cuda::LoraUpArguments arguments = up_arguments_of(stream, group, dy, u, dh);
    arguments.partial = partial_sums(stream, cuda::lora_up_scratch(arguments));
    if (op.dry()) return;
    cuda::lora_kernels().up_backward(stream.queue(), arguments);
}

void lora_down_backward(Stream& stream, const LoraGroup& group, const LoraMask& mask,
                        const Tensor& x, const Tensor& dh) {
    constexpr const char* kName = "lora_down_backward";
    const std::int64_t tokens = x.rows();
    check_compute_dtype(kName, x);
    check_group(stream, kName, group, mask, tokens, x.dtype());
    check_matrix(stream, kName, x, tokens, group.A.columns(), x.dtype());
    check_matrix(stream, kName, dh, tokens, group.A.rows(), x.dtype());

    Cost cost;
    cost.bytes_read = bytes_of({&x}) + mask_bytes(group, mask);
    bool trains = false;
    for (const LoraPart& part : group.parts) {
        if (!part.A_gradient) continue;
        trains = true;
        check_matrix(stream, kName, part.A_gradient, group.rank, x.columns(), DType::f32);
        cost.flops += 2 * elements(tokens, x.columns()) *
                      static_cast<double>(group.rank + (is_masked(group, mask) ? 1 : 0));
        cost.bytes_read +=
            bytes_of_elements(tokens, group.rank, x.dtype()) + bytes_of({&part.A_gradient});
        cost.bytes_written += bytes_of({&part.A_gradient});
    }
    if (!trains) return;
    const OpScope op(stream, kName, cost);
    if (tokens == 0) return;
    if (!backward_fuses(group, mask, x, dh))
        return down_backward_by_parts(stream, group, mask, x, dh);
    const ScratchScope scope(stream.arena());
    float* const partial = partial_sums(
        stream, cuda::lora_down_backward_scratch(tokens, x.columns(), owned(group),
                                                 stream.device().profile().multiprocessors));
    if (op.dry()) return;
    cuda::LoraArguments arguments = arguments_of(stream, group, mask, x, dh);
    arguments.partial = partial;
    cuda::lora_kernels().down_backward(stream.queue(), arguments);
}

void lora_input_backward(Stream& stream, const LoraGroup& group, const LoraMask& mask,
                         const Tensor& dh, const Tensor& dx) {
    constexpr const char* kName = "lora_input_backward";
    const std::int64_t tokens = dx.rows();
    check_compute_dtype(kName, dx);
    check_group(stream, kName, group, mask, tokens, dx.dtype());
    check_matrix(stream, kName, dx, tokens, group.A.columns(), dx.dtype());
    check_matrix(stream, kName, dh, tokens, group.A.rows(), dx.dtype());

    Cost cost;
    cost.flops = 2 * elements(tokens, dx.columns()) * static_cast<double>(owned(group));
    if (is_masked(group, mask))
        cost.flops += 2 * elements(tokens, dx.columns()) * static_cast<double>(parts_of(group));
    cost.bytes_read = bytes_of({&dx}) + mask_bytes(group, mask) +
                      bytes_of_elements(tokens + dx.columns(), owned(group), dx.dtype());
    cost.bytes_written = bytes_of({&dx});
    const OpScope op(stream, kName, cost);
    if (tokens == 0) return;
    if (!is_masked(group, mask) || !backward_fuses(group, mask, dx, dh))
        return input_backward_by_parts(stream, group, mask, dh, dx);
    if (op.dry()) return;
    cuda::lora_kernels().input_backward(stream.queue(), arguments_of(stream, group, mask, dx, dh));
}

}  // namespace garam
