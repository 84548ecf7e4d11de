// One row against the rows of 4-bit weights, as decoding multiplies: the products of quantized_row_matmul.cu for a row of a
// alone, with the same bits, in fewer cycles of shared memory.
//
// A tile is 4 rows of the weight and 512 of its columns. To tensor cores it is 16 rows: each quarter of the columns has rows
// of its own. The row of a is 8 columns of the product, one for each run of 64 columns of the tile, zeros elsewhere; of the
// products, those of a quarter with its own runs are meant, one a lane. A load of codes reads four rows of 128 bytes
// then, not eight of 64, which is half the cycles; and a warp goes down the rows of a range of columns, so that a stays
// in registers.
//
// Scales are decoded as they are needed: the values of their 256 codes lie beside the pairs, in a bank of its own for each
// lane. Absmax of a block's rows is in shared memory as it is stored.
//
// The sum over each 128 columns of each row is kept, and in the end these are added in the order in which
// quantized_row_matmul.cu adds them.
#include "garam/kernels/cuda/early_launch.cuh"
#include "garam/kernels/cuda/quantized_row_block.cuh"

namespace garam::cuda::quantized_row {
namespace {

constexpr int kTileRows = 4;
constexpr int kQuarters = 4;
constexpr int kRange = kQuarters * kStep;  // columns of a tile
constexpr int kRangeVectors = kRange / kElements;
constexpr int kHeld = 3;  // tiles in registers
constexpr int kPrefetched =
    4;  // tiles that a warp asks for at its beginning beside those that it loads

// Where parts of shared memory lie behind the lines, in bytes.
struct OneRow : Work {
    int absmax_at = 0, nested_at = 0, a_at = 0;
    int bytes = 0;
};

// Rows in vectors of 8, as steps of 128 columns: the vectors that four lanes read at once are neighbours, and those of odd
// steps lie in the other banks.
struct InRanges {
    __device__ __forceinline__ static constexpr int of(int vector) {
        return vector_place(vector) ^ (vector / kStepVectors & 1) << 2;
    }
};

// Copies n values of 1 or 4 bytes to shared memory, without waiting where four bytes can be copied at once.
__device__ __forceinline__ void copy_values(char* to, const void* from, int bytes) {
    const bool in_words = reinterpret_cast<std::uintptr_t>(from) % 4 == 0;
    const int words = in_words ? bytes / 4 : 0;
    const char* const source = static_cast<const char*>(from);
    for (int i = static_cast<int>(threadIdx.x); i < words; i += kThreads)
        copy_async_4(shared_address(to + 4 * i), source + 4 * i, true);
    for (int i = 4 * words + static_cast<int>(threadIdx.x); i < bytes; i += kThreads)
        to[i] = source[i];
}

template <RowInput kInput, bool kDouble>
__global__ void __launch_bounds__(kThreads, 2)  // without spills
    quantized_one_row_kernel(const __grid_constant__ OneRow work) {
    extern __shared__ uint4 shared_memory[];
    __shared__ float shared[kWarps];  // of a sum over the block
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % kWarp;
    const int warp = __shfl_sync(0xffffffffu, thread / kWarp, 0);  // known to be the same in all
    const int k = static_cast<int>(work.k);
    const OwnRows own = OwnRows::of(work);
    const Part& part = *own.part;
    const int tiles = (own.rows + kTileRows - 1) / kTileRows;  // of a range
    const int ranges = (k + kRange - 1) / kRange;
    char* const base = reinterpret_cast<char*>(shared_memory);
    float* const sums = reinterpret_cast<float*>(base + kPairs * kLine);  // [range, row, quarter]
    char* const absmax = base + work.absmax_at;
    float* const nested = reinterpret_cast<float*>(base + work.nested_at);
    uint4* const a = reinterpret_cast<uint4*>(base + work.a_at);
    let_next_begin();

    const int total = ranges * tiles;
    const int begin = warp_begin(warp, total);
    const int end = warp_begin(warp + 1, total);
    int range = begin / tiles;
    int tile = begin - range * tiles;

    // Lane 4 g + t has the tensor core's rows g and g + 8: row g % 4 of the tile, quarters g / 4 and g / 4 + 2. Column
    // 2 u + i of a's side is run u % 2 of quarter u / 2 * 2 + i. So each lane has one sum that is meant: of its row, run
    // t % 2 of quarter t / 2 * 2 + g / 4.
    const int g = lane / 4;
    const int t = lane % 4;
    const int own_row = g % kTileRows;
    const int own_quarter = t / 2 * 2 + g / 4;

    const std::int64_t to_next_tile = std::int64_t{kTileRows} * k / 2;
    const std::uint8_t* codes =
        part.codes + ((own.first_row + tile * kTileRows + own_row) * static_cast<std::int64_t>(k) +
                      range * kRange + g / 4 * kStep + t * kLaneColumns) /
                         2;
    int tile_to_load = tile;
    int rows_to_load = own.rows - tile * kTileRows - own_row;  // from this lane's on
    int columns_to_load = k - range * kRange - g / 4 * kStep - t * kLaneColumns;
    const auto load = [&](Codes& to, bool any) {
        const bool inside = any && rows_to_load > 0;
        load_codes_if(inside && columns_to_load > 0, to.low, codes);
        load_codes_if(inside && columns_to_load > kRange / 2, to.high, codes + kRange / 4);
        codes += to_next_tile;
        rows_to_load -= kTileRows;
        if (++tile_to_load == tiles) {
            tile_to_load = 0;
            codes += kRange / 2 - tiles * to_next_tile;
            rows_to_load += tiles * kTileRows;
            columns_to_load -= kRange;
        }
    };
    Codes held[kHeld];
#pragma unroll
    for (int i = 0; i + 1 < kHeld; ++i)
        load(held[i], begin + i < end);
    // What comes behind that in the same columns, to L2: a sector of 32 bytes a lane.
    {
        const int row = (tile + kHeld - 1) * kTileRows + lane / 8;
        const int column = range * kRange + lane % 8 * 64;
        const std::uint8_t* const from =
            part.codes + ((own.first_row + row) * static_cast<std::int64_t>(k) + column) / 2;
#pragma unroll
        for (int i = 0; i < kPrefetched; ++i)
            if (begin + kHeld - 1 + i < end && row + i * kTileRows < own.rows && column < k)
                prefetch(from + i * to_next_tile);
    }
    // Scales are counted from the beginning of a nested block of the weight's, if they have such.
    const int row_scales = k >> part.block_shift;
    const int first_scale = own.first_row * row_scales;
    const int scales = own.rows * row_scales;
    int ahead = 0;  // of them, that are another block's
    float offset = 0;
    if constexpr (kDouble) {
        ahead = first_scale & (1 << part.nested_shift) - 1;
        const int first_nested = first_scale >> part.nested_shift;
        copy_values(absmax, static_cast<const char*>(part.absmax) + first_scale, scales);
        copy_values(reinterpret_cast<char*>(nested), part.nested_absmax + first_nested,
                    4 * (((ahead + scales - 1) >> part.nested_shift) + 1));
        offset = *part.offset;
    } else {
        copy_values(absmax, static_cast<const float*>(part.absmax) + first_scale, 4 * scales);
    }
    using Row = Made<kInput, kThreads, 1, InRanges>;
    Row::begin(work, a);
    copy_async_commit();

    write_pairs(work, base);
    for (int line = 4 * warp; kDouble && line < kPairs; line += 4 * kWarps) {
        const int code = line + lane / 8;
        const float value = work.map[code];
        *reinterpret_cast<float4*>(base + code * kLine + kLine / 2 + lane % 8 * 16) =
            make_float4(value, value, value, value);
    }
    prefetch_tail_weight(work, own);
    wait_for_previous();

    const int row_vectors = ranges * kRangeVectors;
    const int vectors = k / kElements;
    if constexpr (kInput == RowInput::given) {
        const auto* const from = static_cast<const uint4*>(work.a.data);
        for (int v = thread; v < row_vectors; v += kThreads)
            copy_async_16(shared_address(a + InRanges::of(v)), from + (v < vectors ? v : 0),
                          v < vectors);
        copy_async_commit();
    } else {
        for (int v = vectors + kThreads - 1 - thread; v < row_vectors; v += kThreads)
            a[InRanges::of(v)] = make_uint4(0, 0, 0, 0);
        Row::write(work, a, shared);
    }
    // Of a thread's first sum now, while the row comes.
    const float first_added = thread < own.rows ? added(work, own, 0, thread) : 0.0f;
    copy_async_wait<0>();
    __syncthreads();

    // Of a, a lane has column g: its run's 64 columns of its quarter are in two of the four lanes.
    const int quarter_of_a = g / 4 * 2 + g % 2;
    const bool reads_a = t / 2 == g / 2 % 2;
    std::uint32_t own_a = shared_address(
        a + InRanges::of((range * kQuarters + quarter_of_a) * kStepVectors + t * kLaneColumns / 8));
    asm volatile("" : "+r"(own_a)::"memory");  // no load of a comes before the barrier
    // Vectors of a lane are four apart; those of odd quarters begin at the second of the first two.
    const auto to_odd = static_cast<std::uint32_t>(quarter_of_a % 2 == 0 ? 64 : -64);
    std::uint32_t x[4][4] = {};  // zeros where nothing is read
    const auto load_a = [&] {
#pragma unroll
        for (int w = 0; w < 4; ++w)
            load_shared_16_if(
                reads_a, x[w],
                own_a + static_cast<std::uint32_t>(w / 2 * 128) + (w % 2 == 0 ? 0u : to_odd));
        own_a += kRange * 2;
    };
    load_a();

    // By a shuffle, or it is made again for each tile.
    const std::uint32_t own_bank =
        __shfl_sync(0xffffffffu, static_cast<std::uint32_t>(lane * 4), lane);
    const auto line_of = [&](std::uint32_t word, unsigned byte) {
        return base + __byte_perm(word, own_bank, 0x5504u + (byte << 4));
    };
    const auto pair_at = [&](std::uint32_t word, unsigned byte) {
        return *reinterpret_cast<const std::uint32_t*>(line_of(word, byte));
    };
    // Number of this lane's scale. Columns behind the last have that one's, and multiply zeros.
    int column = range * kRange + own_quarter * kStep + t % 2 * (kStep / 2);
    const auto scale_in_row = [&] {
        return ahead + own_row * row_scales + (min(column, k - 1) >> part.block_shift);
    };
    const int to_next_scale = kTileRows * row_scales;
    int scale = scale_in_row() + tile * kTileRows * row_scales;
    float* place = sums + ((range * tiles + tile) * kTileRows + own_row) * kQuarters + own_quarter;
    const auto decoded = [&] {
        if constexpr (!kDouble) return reinterpret_cast<const float*>(absmax)[scale];
        const std::uint32_t code = reinterpret_cast<const std::uint8_t*>(absmax - ahead)[scale];
        const float value = *reinterpret_cast<const float*>(line_of(code, 0) + kLine / 2);
        return __fadd_rn(__fmul_rn(value, nested[scale >> part.nested_shift]), offset);
    };
    auto bits = static_cast<std::uint32_t>(lane);
    forget(bits);
    const auto multiply = [&](const Codes& now) {
        const float by = decoded();
        float product[2][4] = {};
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const std::uint32_t first[4] = {pair_at(now.low[w], 0), pair_at(now.high[w], 0),
                                            pair_at(now.low[w], 1), pair_at(now.high[w], 1)};
            const std::uint32_t second[4] = {pair_at(now.low[w], 2), pair_at(now.high[w], 2),
                                             pair_at(now.low[w], 3), pair_at(now.high[w], 3)};
            multiply_add(product[0], first, x[w][0], x[w][1]);
            multiply_add(product[1], second, x[w][2], x[w][3]);
        }
        float whole[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            whole[i] = product[0][i] + product[1][i];
        const float low = (bits & 16) == 0 ? whole[0] : whole[1];
        const float high = (bits & 16) == 0 ? whole[2] : whole[3];
        const float one = __fmul_rn((bits & 2) == 0 ? low : high, by);
        const float both = __fadd_rn(one, __shfl_xor_sync(0xffffffffu, one, 1));
        if ((bits & 1) == 0) *place = both;
        place += kTileRows * kQuarters;
        scale += to_next_scale;
        if (++tile == tiles) {
            tile = 0;
            column += kRange;
            scale = scale_in_row();
            load_a();  // of what lies behind the last range, too
        }
    };
    // Loads are counted together, so that those of one half would wait for those of the other, were these not asked for
    // afterwards: their addresses depend on what the others read, by a zero that the compiler does not know.
    const auto zero = static_cast<std::uint32_t>(part.block_shift) >> 8;
#pragma unroll 1
    for (int unit = begin; unit < end; unit += kHeld) {
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            const Codes& now = held[i];
            codes += (now.low[3] | now.high[3]) & zero;
            load(held[(i + kHeld - 1) % kHeld], unit + i + kHeld - 1 < end);
            if (unit + i < end) multiply(now);
        }
    }
    __syncthreads();

    const int steps = (k + kStep - 1) / kStep;
    const int steps_of_block = (own.rows + kTile - 1) / kTile * steps;
    for (int row = thread; row < own.rows; row += kThreads) {
        const int before = row / kTile * steps;  // of earlier tiles of quantized_row_matmul.cu
        int w = 1;
        const auto next_cut = [&](int step) {
            while (w < kWarps && warp_begin(w, steps_of_block) - before <= step)
                ++w;
            return w < kWarps ? warp_begin(w, steps_of_block) - before : steps;
        };
        int cut = next_cut(0);
        bool is_first = true;
        float whole = 0, sum = 0;
#pragma unroll 4
        for (int r = 0; r < ranges; ++r) {
            const float4 quarters =
                reinterpret_cast<const float4*>(sums)[r * tiles * kTileRows + row];
            const float of[kQuarters] = {quarters.x, quarters.y, quarters.z, quarters.w};
#pragma unroll
            for (int q = 0; q < kQuarters; ++q) {
                const int step = r * kQuarters + q;
                if (step == cut && step < steps) {
                    whole = is_first ? sum : whole + sum;
                    is_first = false;
                    sum = 0;
                    cut = next_cut(step);
                }
                if (step < steps) sum += of[q];
            }
        }
        whole = is_first ? sum : whole + sum;
        write_result(work, own, 0, row,
                     work.alpha * whole + (row == thread ? first_added : added(work, own, 0, row)));
    }
}

// Of blocks of at most `rows` rows. What rows behind a block's would have is garbage that is never looked at.
template <bool kDouble>
void lay_out(OneRow& work, std::int64_t rows) {
    const std::int64_t ranges = ceil_div(work.k, kRange);
    const std::int64_t whole = ceil_div(rows, kTileRows) * kTileRows;
    std::int64_t absmax_bytes = 0, nested_bytes = 0;
    for (int p = 0; p < work.part_count; ++p) {
        const Part& part = work.parts[p];
        const std::int64_t scales = whole * (work.k >> part.block_shift);
        absmax_bytes = std::max(absmax_bytes, kDouble ? scales : 4 * scales);
        if (kDouble) nested_bytes = std::max(nested_bytes, 4 * ((scales >> part.nested_shift) + 2));
    }
    constexpr std::int64_t kVectorBytes = 16;
    std::int64_t at = std::int64_t{kPairs} * kLine + ranges * whole * kQuarters * 4;
    const auto take = [&](std::int64_t bytes) {
        const std::int64_t begin = at;
        at += ceil_div(bytes, kVectorBytes) * kVectorBytes;
        return static_cast<int>(begin);
    };
    work.absmax_at = take(absmax_bytes);
    work.nested_at = take(nested_bytes);
    work.a_at =
        take((ranges + 1) * kRangeVectors * kVectorBytes);  // read, not used, behind the last
    work.bytes = static_cast<int>(at);
}

template <RowInput kInput, bool kDouble>
void launch(StreamHandle stream, const OneRow& work, unsigned blocks, bool early) {
    const auto kernel = quantized_one_row_kernel<kInput, kDouble>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, work.bytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    if (early)
        launch_early(kernel, dim3(blocks), kThreads, work.bytes, stream, work);
    else
        kernel<<<blocks, kThreads, static_cast<std::size_t>(work.bytes), stream>>>(work);
    check_launch("quantized_one_row");
}

template <bool kDouble>
bool multiply(StreamHandle stream, RowInput input, const Work& all, const Blocks& blocks,
              std::int64_t most_bytes, bool early) {
    OneRow work{all};
    lay_out<kDouble>(work, blocks.rows);
    if (work.bytes > most_bytes) return false;
    switch (input) {
        case RowInput::given:
            launch<RowInput::given, kDouble>(stream, work, blocks.count, early);
            break;
        case RowInput::rms_norm:
            launch<RowInput::rms_norm, kDouble>(stream, work, blocks.count, early);
            break;
        case RowInput::silu_mul:
            launch<RowInput::silu_mul, kDouble>(stream, work, blocks.count, early);
            break;
        case RowInput::gelu_tanh_mul:
            launch<RowInput::gelu_tanh_mul, kDouble>(stream, work, blocks.count, early);
            break;
    }
    return true;
}

}  // namespace

bool multiply_one_row(StreamHandle stream, RowInput input, const Work& work, const Blocks& blocks,
                      std::int64_t most_bytes, bool early) {
    const bool is_double = work.parts[0].nested_absmax != nullptr;
    for (int p = 0; p < work.part_count; ++p) {
        const Part& part = work.parts[p];
        const bool rows_begin_blocks = (work.k & (std::int64_t{1} << part.block_shift) - 1) == 0;
        if (!rows_begin_blocks || part.nested_absmax != nullptr != is_double) return false;
    }
    return is_double ? multiply<true>(stream, input, work, blocks, most_bytes, early)
                     : multiply<false>(stream, input, work, blocks, most_bytes, early);
}

}  // namespace garam::cuda::quantized_row
