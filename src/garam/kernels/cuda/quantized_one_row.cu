// One row against the rows of 4-bit weights with double quantisation, as decoding multiplies: the products of
// quantized_row_matmul.cu for a row of a alone, in fewer cycles of shared memory and with more warps.
//
// A tile is 4 rows of the weight and 512 of its columns. To tensor cores it is 16 rows: each quarter of the columns has rows
// of its own. The row of a is 8 columns of the product, one for each run of 64 columns of the tile, zeros elsewhere; of the
// products, those of a quarter with its own runs are meant, one a lane. A load of codes reads four rows of 128 bytes
// then, not eight of 64, which is half the cycles; and a warp goes down the rows of a range of columns, so that a stays
// in registers.
//
// Absmax of a block's rows is in shared memory as it is stored, and decoded as it is needed. The sum over each 128 columns
// of each row is kept; in the end these are added in their order, so that no number of multiprocessors changes a bit.
//
// A multiprocessor has one block, and room for the first of the next kernel. That one begins when few tiles are left: what
// it asks for any earlier is out of L2 again before it is used. For the same reason a warp asks for few tiles ahead.
#include <algorithm>
#include <limits>

#include "garam/kernels/cuda/early_launch.cuh"
#include "garam/kernels/cuda/quantized_row_block.cuh"

namespace garam::cuda::quantized_row {
namespace {

constexpr int kOneRowThreads = 512;
constexpr int kOneRowWarps = kOneRowThreads / kWarp;
constexpr int kTileRows = 4;
constexpr int kQuarters = 4;
constexpr int kRange = kQuarters * kStep;  // columns of a tile
constexpr int kRangeBytes = kRange / 2;    // of a row's codes
constexpr int kRangeVectors = kRange / kElements;
constexpr int kAhead = 4;  // tiles that a warp has asked for before it loads them
constexpr int kLate = 4;   // tiles of a warp that are left when the next kernel may begin

// Where parts of shared memory lie behind the lines and the sums, in bytes.
struct OneRow : Work {
    int map_at = 0, absmax_at = 0, nested_at = 0;
    int bytes = 0;
};

// Rows in vectors of 8, as steps of 128 columns, in the halves of the lines that the pairs leave: the vectors that four
// lanes read at once are neighbours, and those of odd steps lie in the other banks.
constexpr int kHalfVectors = kLine / 2 / 16;  // of half a line
constexpr int kMostRanges =
    kPairs * kHalfVectors / kRangeVectors - 1;  // that behind the last is read, too
struct InHalves {
    __device__ __forceinline__ static constexpr int of(int vector) {
        const int place = vector_place(vector) ^ (vector / kStepVectors & 1) << 2;
        return place + (place & ~(kHalfVectors - 1)) + kHalfVectors;
    }
};

// Copies bytes to shared memory, without waiting where four can be copied at once.
__device__ __forceinline__ void copy_bytes(char* to, const void* from, int bytes) {
    const bool in_words = reinterpret_cast<std::uintptr_t>(from) % 4 == 0;
    const int words = in_words ? bytes / 4 : 0;
    const char* const source = static_cast<const char*>(from);
    for (int i = static_cast<int>(threadIdx.x); i < words; i += kOneRowThreads)
        copy_async_4(shared_address(to + 4 * i), source + 4 * i, true);
    for (int i = 4 * words + static_cast<int>(threadIdx.x); i < bytes; i += kOneRowThreads)
        to[i] = source[i];
}

template <RowInput kInput>
__global__ void __launch_bounds__(kOneRowThreads, 2)  // without spills
    quantized_one_row_kernel(const __grid_constant__ OneRow work) {
    extern __shared__ __align__(128) uint4 shared_memory[];  // load_a() needs lines
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
    float* const map = reinterpret_cast<float*>(base + work.map_at);      // and the offset
    char* const absmax = base + work.absmax_at;
    float* const nested = reinterpret_cast<float*>(base + work.nested_at);
    uint4* const a = shared_memory;

    const int total = ranges * tiles;
    const int begin = warp * total / kOneRowWarps;
    const int end = (warp + 1) * total / kOneRowWarps;
    int range = begin / tiles;
    const int first_tile = begin - range * tiles;

    // Lane 4 g + t has the tensor core's rows g and g + 8: row g % 4 of the tile, quarters g / 4 and g / 4 + 2. Column
    // 2 u + i of a's side is run u % 2 of quarter u / 2 * 2 + i. So each lane has one sum that is meant: of its row, run
    // t % 2 of quarter t / 2 * 2 + g / 4.
    const int g = lane / 4;
    const int t = lane % 4;
    const int own_row = g % kTileRows;
    const int own_quarter = t / 2 * 2 + g / 4;
    const int first_column = g / 4 * kStep + t * kLaneColumns;

    // Bytes from the beginning of the block's rows.
    const int row_bytes = k / 2;
    const std::uint8_t* codes = part.codes + own.first_row * static_cast<std::int64_t>(row_bytes);
    asm volatile("" : "+l"(codes));  // added once
    const std::uint32_t to_next_tile = kTileRows * row_bytes;
    const std::uint32_t to_next_range = kRangeBytes - tiles * to_next_tile;  // modulo 2^32
    const std::uint32_t block_bytes = own.rows * row_bytes;

    // Scales are counted from the beginning of a nested block of the weight's.
    const int row_scales = k >> part.block_shift;
    const int first_scale = own.first_row * row_scales;
    const int scales = own.rows * row_scales;
    const int ahead = first_scale & (1 << part.nested_shift) - 1;  // of them, another block's
    const int to_next_scale = kTileRows * row_scales;
    auto bits = static_cast<std::uint32_t>(lane);
    forget(bits);
    // This lane's first one of a range. Columns behind the last have that one's, and multiply zeros.
    const auto scale_of_range = [&](int of) {
        const int column = of * kRange + static_cast<int>((bits & 2) + (bits >> 4)) * kStep +
                           static_cast<int>(bits & 1) * (kStep / 2);
        return ahead + static_cast<int>(bits >> 2 & 3) * row_scales +
               (min(column, k - 1) >> part.block_shift);
    };
    int scale = scale_of_range(range) + first_tile * to_next_scale;

    // A sector of 32 bytes a lane.
    constexpr int kSector = 32;
    constexpr int kSectors = kRangeBytes / kSector;  // of a row
    std::uint32_t ahead_at = range * kRangeBytes +
                             (first_tile * kTileRows + lane / kSectors) * row_bytes +
                             lane % kSectors * kSector;
    int left_ahead = tiles - first_tile;
    int ahead_unit = begin;
    const auto ask = [&] {
        if (ahead_unit < end && ahead_at < block_bytes) prefetch(codes + ahead_at);
        ++ahead_unit;
        ahead_at += to_next_tile;
        if (--left_ahead == 0) {
            left_ahead = tiles;
            ahead_at += to_next_range;
        }
    };

    // Rows behind the block's last are that one again, and no one looks at their sums.
    std::uint32_t load_at =
        range * kRangeBytes + (first_tile * kTileRows + own_row) * row_bytes + first_column / 2;
    std::uint32_t last_load = range * kRangeBytes + (own.rows - 1) * row_bytes + first_column / 2;
    int columns_to_load = k - range * kRange - first_column;
    int left_to_load = tiles - first_tile;  // of the range
    const auto load = [&](Codes& to) {
        const std::uint8_t* const from = codes + min(load_at, last_load);
        load_asked_codes_if(columns_to_load > 0, to.low, from);
        load_asked_codes_if(columns_to_load > kRange / 2, to.high, from + kRangeBytes / 2);
        load_at += to_next_tile;
        if (--left_to_load == 0) {
            left_to_load = tiles;
            load_at += to_next_range;
            last_load += kRangeBytes;
            columns_to_load -= kRange;
        }
    };
    Codes held[2];
    if (begin < end) load(held[0]);
#pragma unroll 1
    for (int i = 0; i < kAhead; ++i)
        ask();

    const int first_nested = first_scale >> part.nested_shift;
    copy_bytes(absmax, static_cast<const char*>(part.absmax) + first_scale, scales);
    copy_bytes(reinterpret_cast<char*>(nested), part.nested_absmax + first_nested,
               4 * (((ahead + scales - 1) >> part.nested_shift) + 1));
    if (thread == 0) copy_async_4(shared_address(map + kMapCodes), part.offset, true);
    copy_async_commit();
    Made<kInput, kOneRowThreads, InHalves> made_row;
    made_row.begin(work);

    write_pairs<kOneRowThreads>(work, base);
    for (int i = thread; i < kMapCodes; i += kOneRowThreads)
        map[i] = work.map[i];
    prefetch_tail_weight<kOneRowThreads>(work, own);
    wait_for_previous();

    const int row_vectors = ranges * kRangeVectors;
    const int vectors = k / kElements;
    if constexpr (kInput == RowInput::given) {
        const auto* const from = static_cast<const uint4*>(work.a.data);
        for (int v = thread; v < row_vectors; v += kOneRowThreads)
            a[InHalves::of(v)] = v < vectors ? from[v] : make_uint4(0, 0, 0, 0);
    } else {
        for (int v = vectors + kOneRowThreads - 1 - thread; v < row_vectors; v += kOneRowThreads)
            a[InHalves::of(v)] = make_uint4(0, 0, 0, 0);
        made_row.write(work, a, sums);  // whose place serves for a sum over the block
    }
    // Of a thread's first sum now, while the row comes.
    const float first_added = thread < own.rows ? added(work, own, 0, thread) : 0.0f;
    copy_async_wait<0>();
    __syncthreads();

    // Of a, a lane has column g: its run's 64 columns of its quarter are in two of the four lanes.
    const int quarter_of_a = g / 4 * 2 + g % 2;
    const bool reads_a = t / 2 == g / 2 % 2;
    std::uint32_t own_a =
        shared_address(a + InHalves::of(quarter_of_a * kStepVectors + t * kLaneColumns / 8));
    asm volatile("" : "+r"(own_a)::"memory");  // no load of a comes before the barrier
    std::uint32_t x[4][4] = {};                // zeros where nothing is read
    const auto load_a = [&](int of) {
        const std::uint32_t from =
            own_a + static_cast<std::uint32_t>(of * (kRangeVectors / kHalfVectors * kLine));
        // Vectors of a lane are four apart; those of odd quarters begin at the second of the first two.
#pragma unroll
        for (int w = 0; w < 4; ++w)
            load_shared_16_if(
                reads_a, x[w],
                (w % 2 == 0 ? from : from ^ 64) + static_cast<std::uint32_t>(w / 2 * kLine));
    };
    load_a(range);

    // By a shuffle, or it is made again for each tile.
    const std::uint32_t own_bank =
        __shfl_sync(0xffffffffu, static_cast<std::uint32_t>(lane * 4), lane);
    const auto pair_at = [&](std::uint32_t word, unsigned byte) {
        return *reinterpret_cast<const std::uint32_t*>(
            base + __byte_perm(word, own_bank, 0x5504u + (byte << 4)));
    };
    int left = tiles - first_tile;  // tiles of the range
    float* place = sums + (begin * kTileRows + own_row) * kQuarters + own_quarter;
    const float offset = map[kMapCodes];
    const auto decoded = [&] {
        const std::uint32_t code = reinterpret_cast<const std::uint8_t*>(absmax - ahead)[scale];
        return __fadd_rn(__fmul_rn(map[code], nested[scale >> part.nested_shift]), offset);
    };
    const auto multiply = [&](const Codes& now) {
        const float by = decoded();
        float product[2][4] = {};
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const Pairs pairs = pairs_of(pair_at, now.low[w], now.high[w]);
            multiply_add(product[0], pairs.first, x[w][0], x[w][1]);
            multiply_add(product[1], pairs.second, x[w][2], x[w][3]);
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
        if (--left == 0) {
            left = tiles;
            ++range;
            scale = scale_of_range(range);
            load_a(range);  // of what lies behind the last range, too
        }
    };
    // Loads are counted together, so that those of one tile would wait for those of the other, were these not asked for
    // afterwards: their addresses depend on what the others read, by a zero that the compiler does not know.
    const auto zero = static_cast<std::uint32_t>(part.block_shift) >> 8;
    const auto step = [&](const Codes& now, Codes& next, int unit) {
        load_at += (now.low[3] | now.high[3]) & zero;
        if (unit + 1 < end) load(next);
        ask();
        multiply(now);
    };
    const int next_begins = begin + max((end - begin - kLate) & ~1, 0);
#pragma unroll 1
    for (int unit = begin; unit < end; unit += 2) {
        if (unit == next_begins) let_next_begin();
        step(held[0], held[1], unit);
        if (unit + 1 < end) step(held[1], held[0], unit + 1);
    }
    __syncthreads();

    for (int row = thread; row < own.rows; row += kOneRowThreads) {
        float whole = 0;
#pragma unroll 4
        for (int r = 0; r < ranges; ++r) {
            const float4 quarters =
                reinterpret_cast<const float4*>(sums)[r * tiles * kTileRows + row];
            whole += quarters.x;
            whole += quarters.y;
            whole += quarters.z;
            whole += quarters.w;
        }
        write_result(work, own, 0, row,
                     work.alpha * whole + (row == thread ? first_added : added(work, own, 0, row)));
    }
}

// Of blocks of at most `rows` rows. What rows behind a block's would have is garbage that is never looked at.
void lay_out(OneRow& work, std::int64_t rows) {
    const std::int64_t ranges = ceil_div(work.k, kRange);
    const std::int64_t whole = ceil_div(rows, kTileRows) * kTileRows;
    std::int64_t absmax_bytes = 0, nested_bytes = 0;
    for (int p = 0; p < work.part_count; ++p) {
        const Part& part = work.parts[p];
        const std::int64_t scales = whole * (work.k >> part.block_shift);
        absmax_bytes = std::max(absmax_bytes, scales);
        nested_bytes = std::max(nested_bytes, 4 * ((scales >> part.nested_shift) + 2));
    }
    constexpr std::int64_t kVectorBytes = 16;
    std::int64_t at = std::int64_t{kPairs} * kLine + ranges * whole * kQuarters * 4;
    const auto take = [&](std::int64_t bytes) {
        const std::int64_t begin = at;
        at += ceil_div(bytes, kVectorBytes) * kVectorBytes;
        return static_cast<int>(begin);
    };
    work.map_at = take((kMapCodes + 1) * 4);
    work.absmax_at = take(absmax_bytes);
    work.nested_at = take(nested_bytes);
    work.bytes = static_cast<int>(at);
}

template <RowInput kInput>
void launch(StreamHandle stream, const OneRow& work, unsigned blocks, bool early) {
    const auto kernel = quantized_one_row_kernel<kInput>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, work.bytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    if (early)
        launch_early(kernel, dim3(blocks), kOneRowThreads, work.bytes, stream, work);
    else
        kernel<<<blocks, kOneRowThreads, static_cast<std::size_t>(work.bytes), stream>>>(work);
    check_launch("quantized_one_row");
}

}  // namespace

bool multiply_one_row(StreamHandle stream, RowInput input, const Work& all, std::int64_t most_bytes,
                      bool early) {
    for (int p = 0; p < all.part_count; ++p) {
        const Part& part = all.parts[p];
        const bool rows_begin_blocks = (all.k & (std::int64_t{1} << part.block_shift) - 1) == 0;
        if (!rows_begin_blocks || part.nested_absmax == nullptr) return false;
    }
    OneRow work{all};
    const Blocks blocks = divide(work, kTileRows, std::numeric_limits<int>::max());
    lay_out(work, blocks.rows);
    if (work.bytes > most_bytes || ceil_div(work.k, kRange) > kMostRanges) return false;
    switch (input) {
        case RowInput::given:
            launch<RowInput::given>(stream, work, blocks.count, early);
            break;
        case RowInput::rms_norm:
            launch<RowInput::rms_norm>(stream, work, blocks.count, early);
            break;
        case RowInput::silu_mul:
            launch<RowInput::silu_mul>(stream, work, blocks.count, early);
            break;
        case RowInput::gelu_tanh_mul:
            launch<RowInput::gelu_tanh_mul>(stream, work, blocks.count, early);
            break;
    }
    return true;
}

}  // namespace garam::cuda::quantized_row
