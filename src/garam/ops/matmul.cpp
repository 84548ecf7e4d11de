// Three routes, chosen by the device's profile:
// - oneDNN on the operands as they lie: f32 always, bf16 where the processor multiplies it;
// - bf16 elsewhere: tiles widened to f32 in scratch, multiplied by oneDNN (whose own bf16 is slow
//   without avx512_bf16 and refused on AVX2);
// - a profile of a lesser instruction set than the processor's: the same tiles through our own
// kernel,
//   since oneDNN always uses what the processor has.
#include "garam/ops/matmul.h"

#include <algorithm>
#include <memory>

#include "garam/ops/checks.h"
#include "garam/ops/cpu_kernels.h"
#include "garam/ops/onednn_matmul.h"

namespace garam {
namespace {

// Tiles of the second and third route: at most 2 * 8 MiB of operands and 4 MiB of sums.
constexpr std::int64_t kTileM = 1024;
constexpr std::int64_t kTileN = 1024;
constexpr std::int64_t kTileK = 2048;

struct Product {
    Tensor a, b, c;
    MatmulOptions options;
    std::int64_t m, n, k;
};

bool lesser_than_host(const Stream& stream) {
    static const CpuIsa kHost = detect_cpu_profile().isa;
    return stream.device().profile().isa < kHost;
}

OnednnProduct direct_product(const Product& p) {
    OnednnProduct key;
    key.m = p.m;
    key.n = p.n;
    key.k = p.k;
    key.in = p.a.dtype();
    key.out = p.c.dtype();
    key.a_row = p.options.transpose_a ? 1 : p.a.pitch();
    key.a_column = p.options.transpose_a ? p.a.pitch() : 1;
    key.b_row = p.options.transpose_b ? 1 : p.b.pitch();
    key.b_column = p.options.transpose_b ? p.b.pitch() : 1;
    key.c_row = p.c.pitch();
    key.alpha = p.options.alpha;
    key.accumulate = p.options.accumulate;
    key.threads = num_threads();
    return key;
}

// Packs rows [row, row + rows) and columns [column, column + columns) of op(x) into out.
void pack_tile(const cpu::ElementKernels& kernels, const Tensor& x, bool transpose,
               std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns,
               float* out, std::int64_t pitch) {
    parallel_for(rows, rows_per_piece(columns), [&](std::int64_t begin, std::int64_t end) {
        const cpu::Rows from =
            transpose ? rows_of(x, column, row + begin) : rows_of(x, row + begin, column);
        kernels.pack(from, transpose, out + begin * pitch, pitch, end - begin, columns);
    });
}

void multiply_tile(const cpu::KernelTable& table, std::int64_t m, std::int64_t n, std::int64_t k,
                   const float* a, const float* b, float* c, std::int64_t n_pitch,
                   bool accumulate) {
    constexpr std::int64_t kRows = 48;
    constexpr std::int64_t kColumns = 64;
    const std::int64_t strips = (n_pitch + kColumns - 1) / kColumns;
    const std::int64_t blocks = (m + kRows - 1) / kRows;
    (void)n;
    parallel_for(blocks, 1, [&](std::int64_t block, std::int64_t) {
        const std::int64_t row = block * kRows;
        for (std::int64_t strip = 0; strip < strips; ++strip) {
            const std::int64_t column = strip * kColumns;
            table.gemm(std::min(kRows, m - row), std::min(kColumns, n_pitch - column), k,
                       a + row * k, k, b + column, n_pitch, c + row * n_pitch + column, n_pitch,
                       accumulate);
        }
    });
}

// c's tile = alpha * sums (+ c).
void store_tile(const cpu::KernelTable& table, const Product& p, std::int64_t row,
                std::int64_t column, std::int64_t rows, std::int64_t columns, float* sums,
                std::int64_t pitch) {
    parallel_for(rows, rows_per_piece(columns), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
            float* const from = sums + r * pitch;
            void* const to = element_at(p.c, row + r, column);
            if (p.options.alpha != 1.0f) table.f32.scale(from, p.options.alpha, from, columns);
            if (p.c.dtype() == DType::bf16) {
                if (p.options.accumulate) table.bf16.add_to_f32(to, from, columns);
                table.bf16.from_f32(from, to, columns);
            } else if (p.options.accumulate) {
                table.f32.add_to_f32(from, static_cast<float*>(to), columns);
            } else {
                table.f32.from_f32(from, to, columns);
            }
        }
    });
}

void multiply_in_tiles(Stream& stream, const Product& p, bool own_kernel) {
    const auto padded = [](std::int64_t n) {
        return (n + cpu::kGemmColumns - 1) / cpu::kGemmColumns * cpu::kGemmColumns;
    };
    const std::int64_t tile_m = std::min(p.m, kTileM);
    const std::int64_t tile_n = padded(std::min(p.n, kTileN));
    const std::int64_t tile_k = std::min(p.k, kTileK);
    Arena& arena = stream.arena();
    const Tensor a = arena.scratch(DType::f32, {tile_m, tile_k});
    const Tensor b = arena.scratch(DType::f32, {tile_k, tile_n});
    const Tensor c = arena.scratch(DType::f32, {tile_m, tile_n});
    const cpu::KernelTable& table = kernel_table(stream);
    const cpu::ElementKernels& kernels = element_kernels(stream, p.a.dtype());
    float* const a_tile = a.data<float>();
    float* const b_tile = b.data<float>();
    float* const sums = c.data<float>();

    // oneDNN's own scratch is asked for with the largest tile, also on a dry device.
    const auto prepared = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool accumulate) {
        OnednnProduct key;
        key.m = m;
        key.n = n;
        key.k = k;
        key.a_row = k;
        key.a_column = key.b_column = 1;
        key.b_row = key.c_row = padded(n);
        key.accumulate = accumulate;
        key.threads = num_threads();
        return prepare(key);
    };
    for (std::int64_t row = 0; row < p.m; row += kTileM) {
        const std::int64_t rows = std::min(kTileM, p.m - row);
        for (std::int64_t column = 0; column < p.n; column += kTileN) {
            const std::int64_t columns = std::min(kTileN, p.n - column);
            const std::int64_t pitch = padded(columns);
            for (std::int64_t inner = 0; inner < p.k; inner += kTileK) {
                const std::int64_t depth = std::min(kTileK, p.k - inner);
                std::shared_ptr<const PreparedProduct> product;
                Tensor workspace;
                const ScratchScope scope(arena);
                if (!own_kernel) {
                    product = prepared(rows, columns, depth, inner > 0);
                    workspace = arena.scratch(DType::u8, {product->scratch_bytes()});
                }
                if (stream.is_dry()) continue;
                pack_tile(kernels, p.a, p.options.transpose_a, row, inner, rows, depth, a_tile,
                          depth);
                pack_tile(kernels, p.b, p.options.transpose_b, inner, column, depth, columns,
                          b_tile, pitch);
                if (own_kernel)
                    multiply_tile(table, rows, columns, depth, a_tile, b_tile, sums, pitch,
                                  inner > 0);
                else
                    product->execute(a_tile, b_tile, sums, workspace.raw());
            }
            if (!stream.is_dry()) store_tile(table, p, row, column, rows, columns, sums, pitch);
        }
    }
}

}  // namespace

void matmul(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& c,
            const MatmulOptions& options) {
    constexpr const char* kName = "matmul";
    const std::int64_t m = options.transpose_a ? a.columns() : a.rows();
    const std::int64_t k = options.transpose_a ? a.rows() : a.columns();
    const std::int64_t n = options.transpose_b ? b.rows() : b.columns();
    check_compute_dtype(kName, a);
    check_compute_dtype(kName, c);
    check_operand(stream, kName, a);
    check_matrix(stream, kName, b, options.transpose_b ? n : k, options.transpose_b ? k : n,
                 a.dtype());
    check_matrix(stream, kName, c, m, n, c.dtype());
    GARAM_CHECK(a.dtype() == DType::bf16 || c.dtype() == DType::f32,
                "matmul: f32 operands give an f32 product");

    Cost cost;
    cost.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    cost.bytes_read = bytes_of({&a, &b}) + (options.accumulate ? bytes_of({&c}) : 0.0);
    cost.bytes_written = bytes_of({&c});
    OpScope op(stream, kName, cost);
    if (m == 0 || n == 0) return;
    if (k == 0) {
        if (op.dry() || options.accumulate) return;
        const auto clear = element_kernels(stream, c.dtype()).fill;
        for (std::int64_t row = 0; row < m; ++row)
            clear(0, element_at(c, row, 0), n);
        return;
    }
    const ScratchScope scope(stream.arena());
    const Product product{a, b, c, options, m, n, k};
    const bool own_kernel = lesser_than_host(stream);
    const bool widen = a.dtype() == DType::bf16 && !stream.device().profile().fast_bf16;
    if (own_kernel || widen) {
        multiply_in_tiles(stream, product, own_kernel);
        return;
    }
    const auto prepared = prepare(direct_product(product));
    const Tensor workspace = stream.arena().scratch(DType::u8, {prepared->scratch_bytes()});
    if (op.dry()) return;
    prepared->execute(a.raw(), b.raw(), c.raw(), workspace.raw());
}

}  // namespace garam
