#include "garam/ops/cpu_matmul.h"

#include <algorithm>
#include <cstring>

#include "garam/ops/coded_matrix.h"
#include "garam/ops/cpu_kernels.h"

namespace garam {
namespace {

std::int64_t pieces(std::int64_t count, std::int64_t size) {
    return (count + size - 1) / size;
}

// A tall product with few columns whose a lies transposed is computed as c' = b' a': packing a's
// columns is then a copy. The same sums of the same products, hence the same bits.
bool better_transposed(const Product& p) {
    constexpr std::int64_t kFewColumns = 64;
    return p.transpose_a && p.n <= kFewColumns && p.n < p.m && p.c.dtype() == DType::f32;
}
Product transposed(const Product& p) {
    return {p.b, p.a, p.c, p.n, p.m, p.k, !p.transpose_b, !p.transpose_a, true};
}

// How c is cut into blocks, which decides about speed only.
struct Cut {
    std::int64_t rows, columns;  // of a block; the last ones are smaller
};

Cut cut_of(const cpu::MatmulCut& bounds, const Product& p, std::int64_t threads) {
    // Multiply-adds below which waking another thread does not pay.
    constexpr double kSmall = 1 << 18;
    constexpr std::int64_t kCache = 8 << 20;
    const double row_ticks = p.a.bytes() > kCache ? bounds.far_row_ticks : bounds.row_ticks;

    const auto work =
        static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
    if (work < kSmall) threads = 1;
    const std::int64_t panels = pieces(p.n, cpu::kMatmulPanel);
    const std::int64_t enough = 8 * threads;  // blocks to share out evenly
    Cut best{};
    double least = 0;
    for (std::int64_t row_blocks = pieces(p.m, bounds.most_rows);; row_blocks *= 2) {
        const std::int64_t rows = pieces(p.m, row_blocks);
        const std::int64_t widest = std::min(bounds.most_columns, bounds.most_elements / rows);
        for (std::int64_t column_blocks = pieces(p.n, widest);; ++column_blocks) {
            const std::int64_t block_panels = pieces(panels, column_blocks);
            if (block_panels * cpu::kMatmulPanel > widest) continue;
            const std::int64_t blocks = pieces(p.m, rows) * pieces(panels, block_panels);
            const auto height = static_cast<double>(rows);
            const auto width = static_cast<double>(block_panels);
            const double ticks = height * width + bounds.panel_ticks * width + row_ticks * height;
            const double total = ticks * static_cast<double>(pieces(blocks, threads));
            if (best.rows == 0 || total < least) {
                least = total;
                best = {rows, block_panels * cpu::kMatmulPanel};
            }
            if (block_panels == 1 || blocks >= enough) break;
        }
        if (rows <= 16 || pieces(p.m, rows) >= enough) break;
    }
    return best;
}

const cpu::MatmulKernel& matmul_kernel(const Stream& stream, DType dtype) {
    const DeviceProfile& profile = stream.device().profile();
    if (dtype != DType::bf16 || !profile.fast_bf16) return element_kernels(stream, dtype).matmul;
    return profile.bf16_tiles ? cpu::tiled_bf16_matmul() : cpu::fast_bf16_matmul();
}

// Of one worker, for any cut.
std::int64_t worker_scratch(const cpu::MatmulKernel& kernel, const Product& p) {
    const auto of_block = [&](std::int64_t m, std::int64_t n) {
        const cpu::MatmulCut& most = kernel.cut;
        const std::int64_t rows = std::min(m, most.most_rows);
        const std::int64_t columns =
            pieces(std::min(n, most.most_columns), cpu::kMatmulPanel) * cpu::kMatmulPanel;
        return kernel.scratch_bytes(rows, columns, std::min(rows * columns, most.most_elements),
                                    p.k);
    };
    const std::int64_t bytes =
        p.transpose_a ? std::max(of_block(p.m, p.n), of_block(p.n, p.m)) : of_block(p.m, p.n);
    return align_up(bytes + (p.coded != nullptr ? kernel.coded_bytes : 0));
}

void multiply(Stream& stream, const Product& given, bool accumulate, float alpha) {
    const cpu::MatmulKernel& kernel = matmul_kernel(stream, given.a.dtype());
    const std::int64_t workers =
        workers_for(stream, pieces(given.m, 16) * pieces(given.n, cpu::kMatmulPanel));
    const std::int64_t bytes = worker_scratch(kernel, given);
    const Tensor scratch = stream.arena().scratch(DType::u8, {workers, bytes});
    if (stream.is_dry()) return;

    const Product p = better_transposed(given) ? transposed(given) : given;
    const Cut cut = cut_of(kernel.cut, p, workers);
    const cpu::CodedMatrix coded = p.coded != nullptr ? coded_matrix(*p.coded) : cpu::CodedMatrix{};
    const std::int64_t strips = pieces(p.m, cut.rows);
    const std::int64_t blocks = strips * pieces(p.n, cut.columns);
    for_items(std::min(workers, blocks), blocks, [&](std::int64_t worker, std::int64_t item) {
        const std::int64_t row = item % strips * cut.rows;
        const std::int64_t column = item / strips * cut.columns;
        cpu::MatmulBlock block{};
        block.m = std::min(cut.rows, p.m - row);
        block.n = std::min(cut.columns, p.n - column);
        block.k = p.k;
        block.a = p.transpose_a ? rows_of(p.a, 0, row) : rows_of(p.a, row, 0);
        if (p.coded != nullptr) {
            block.coded = &coded;
            block.b.pitch = p.coded->columns;
            block.first_coded = p.transpose_b ? column * p.coded->columns : column;
            block.decode = element_kernels(stream, p.a.dtype()).decode;
        } else {
            block.b = p.transpose_b ? rows_of(p.b, column, 0) : rows_of(p.b, 0, column);
        }
        block.c = p.transpose_c ? rows_of(p.c, column, row) : rows_of(p.c, row, column);
        block.transpose_a = p.transpose_a;
        block.transpose_b = p.transpose_b;
        block.transpose_c = p.transpose_c;
        block.c_is_bf16 = p.c.dtype() == DType::bf16;
        block.accumulate = accumulate;
        block.alpha = alpha;
        kernel.block(block, element_at(scratch, worker, 0));
    });
}

// What an element of c holds before the sum over k is added.
void write_start(const Product& p, const MatmulOptions& options,
                 const cpu::ElementKernels& kernels) {
    const bool in_place = options.accumulate || options.addend.raw() == p.c.raw();
    if (in_place) return;
    const auto row_bytes = static_cast<std::size_t>(p.n) * size_of(p.c.dtype());
    parallel_for(p.m, rows_per_piece(p.n), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            void* const to = element_at(p.c, row, 0);
            if (options.addend)
                std::memcpy(to, element_at(options.addend, row, 0), row_bytes);
            else
                kernels.fill(0, to, p.n);
        }
    });
}

}  // namespace

void multiply_on_cpu(Stream& stream, const Product& p, const MatmulOptions& options) {
    const cpu::ElementKernels& kernels = element_kernels(stream, p.c.dtype());
    if (!stream.is_dry() && (options.addend || p.k == 0)) write_start(p, options, kernels);
    if (p.k > 0) {
        const ScratchScope scope(stream.arena());
        multiply(stream, p, options.accumulate || options.addend, options.alpha);
    }
    if (stream.is_dry() || !options.bias) return;
    parallel_for(p.m, rows_per_piece(p.n), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row)
            kernels.add(element_at(p.c, row, 0), options.bias.raw(), element_at(p.c, row, 0), p.n);
    });
}

}  // namespace garam
