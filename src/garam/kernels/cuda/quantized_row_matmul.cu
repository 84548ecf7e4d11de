// Tensor cores multiply the 16 values of the table, so that decoding is a look-up of two codes at once: a byte of
// codes picks a pair of bf16 from 256, which each lane has in a bank of shared memory of its own. A tile is 16 rows
// of the weight, a step 128 of its columns, of which each of four lanes has 32 in registers. The rows of a are columns
// of the product, eight, and each takes two of them (or four, kRuns): one for each run of 64 (or 32) columns of the step, with
// zeros for the others. So the sum over a block's codes is multiplied by absmax in fp32, and up to four (two) rows of a
// cost what one does.
//
// The look-ups decide how fast this can be: a step takes 56 cycles of a multiprocessor's shared memory, of which they are
// 32 and the loads of codes, which come from eight places each, 16. So absmax of all of a block's rows is decoded once, to
// the halves of the lines that the pairs leave.
//
// The rows of the weight are divided evenly among as many blocks as there are multiprocessors, or more where their scales do
// not fit one, or one a tile where there are fewer tiles; the steps of a block's tiles among its warps. Two blocks fit a
// multiprocessor: as in row_matmul.cu one begins while the work ahead still runs. Several weights (kMostParts) of
// one input, as of query, key and value, are rows of one: each has blocks of its own.
//
// A warp multiplies kStages steps while it loads as many, and has asked for kAhead more to come to L2 at its
// beginning. A tile's sum may be cut between warps: the parts are added in the warps' order.
//
// One row of a against weights with double quantisation goes by quantized_one_row.cu, where that fits.
#include <algorithm>

#include "garam/kernels/cuda/early_launch.cuh"
#include "garam/kernels/cuda/quantized_row_block.cuh"

namespace garam::cuda {

namespace quantized_row {

Blocks divide(Work& work, std::int64_t tile_rows, std::int64_t most_rows) {
    const std::int64_t at_once = multiprocessors();
    std::int64_t tiles = 0;
    for (int p = 0; p < work.part_count; ++p)
        tiles += ceil_div(work.parts[p].rows, tile_rows);
    Blocks blocks;
    for (int p = 0; p < work.part_count; ++p) {
        Part& part = work.parts[p];
        const std::int64_t own = ceil_div(part.rows, tile_rows);
        const std::int64_t share = tiles <= at_once ? own : own * at_once / tiles;
        part.first_block = static_cast<int>(blocks.count);
        part.blocks =
            static_cast<int>(std::max<std::int64_t>({share, ceil_div(part.rows, most_rows), 1}));
        part.rows_each = part.rows / part.blocks;
        part.rows_more = part.rows % part.blocks;
        blocks.count += static_cast<unsigned>(part.blocks);
        blocks.rows = std::max(blocks.rows, ceil_div(part.rows, part.blocks));
    }
    return blocks;
}

}  // namespace quantized_row

namespace {

using namespace quantized_row;

// The sums over two blocks of codes, each times its scale.
__device__ __forceinline__ float scaled(float first, float first_scale, float second,
                                        float second_scale) {
    return __fadd_rn(__fmul_rn(first, first_scale), __fmul_rn(second, second_scale));
}

// Where warp w begins in a block's steps of its tiles, tile after tile.
__device__ __forceinline__ int warp_begin(int w, int total) {
    return w * total / kWarps;
}

struct InSteps {
    __device__ __forceinline__ static constexpr int of(int vector) { return vector_place(vector); }
};

// Scale number i of a block's.
__device__ __forceinline__ float* scale_at(char* base, int i) {
    return reinterpret_cast<float*>(base + kLine / 2 + (i + (i & ~(kScalesOfLine - 1))) * 4);
}

// Scales of a block's rows, one for each run of 128 / kRuns columns, to their places. Of double quantisation they are
// read in vectors of four where rows begin with one: begin() asks for a thread's first ones, ahead of what else
// there is to do, end() writes them when the map is there.
template <int kRuns>
struct Scales {
    static constexpr int kWidth = kStep / kRuns;
    static constexpr int kAtOnce = 5;
    const Work& work;
    const Part& part;
    const int thread = static_cast<int>(threadIdx.x);
    int rows, runs, pitch, vectors = 0;  // vectors: 0: one by one
    std::uint32_t first_element, first_block;
    std::uint32_t codes[kAtOnce];
    float nested[kAtOnce];

    __device__ __forceinline__ Scales(const Work& all, const Part& own, int first_row,
                                      int weight_rows)
        : work(all),
          part(own),
          rows(weight_rows),
          runs(static_cast<int>(all.k) / kWidth),
          pitch(static_cast<int>(scale_pitch(all.k, kRuns))),
          first_element(static_cast<std::uint32_t>(first_row) * static_cast<std::uint32_t>(all.k)),
          first_block(first_element >> own.block_shift) {
        const bool in_fours = part.nested_absmax != nullptr && 1 << part.block_shift == kWidth &&
                              runs % 4 == 0 && runs > 4 && part.nested_shift >= 2 &&
                              reinterpret_cast<std::uintptr_t>(part.absmax) % 4 == 0;
        if (in_fours) vectors = rows * static_cast<int>(work.vectors_of_row);
    }
    __device__ __forceinline__ void load(int first) {
        const auto* const words = static_cast<const std::uint32_t*>(part.absmax) + first_block / 4;
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
            const int i = first + u * kThreads;
            if (i >= vectors) break;
            codes[u] = words[i];
            nested[u] = part.nested_absmax[first_block + 4 * i >> part.nested_shift];
        }
    }
    __device__ __forceinline__ void begin() {
        load(thread);
    }
    __device__ __forceinline__ void write(int first, char* base, const float* map, float offset) {
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
            const int i = first + u * kThreads;
            if (i >= vectors) break;
            const auto row =
                static_cast<int>(__umulhi(static_cast<std::uint32_t>(i), work.by_vectors_of_row));
            const int place = row * (pitch - runs) + 4 * i;
            const auto decoded = [&](int shift) {
                return __fadd_rn(__fmul_rn(map[codes[u] >> shift & 255], nested[u]), offset);
            };
            *reinterpret_cast<float2*>(scale_at(base, place)) = make_float2(decoded(0), decoded(8));
            *reinterpret_cast<float2*>(scale_at(base, place + 2)) =
                make_float2(decoded(16), decoded(24));
        }
    }
    __device__ __forceinline__ void end(char* base, const float* map, float offset) {
#pragma unroll 1
        for (int first = thread; first < vectors; first += kAtOnce * kThreads) {
            if (first != thread) load(first);
            write(first, base, map, offset);
        }
#pragma unroll 4
        for (int i = thread; vectors == 0 && i < rows * runs; i += kThreads) {
            // Rows follow each other without gaps.
            const std::uint32_t block = first_element + i * kWidth >> part.block_shift;
            const int row = i / runs;
            const bool is_double = part.nested_absmax != nullptr;
            *scale_at(base, row * (pitch - runs) + i) =
                is_double
                    ? __fadd_rn(__fmul_rn(map[static_cast<const std::uint8_t*>(part.absmax)[block]],
                                          part.nested_absmax[block >> part.nested_shift]),
                                offset)
                    : static_cast<const float*>(part.absmax)[block];
        }
        // Those behind the columns multiply zeros.
        for (int row = thread; row < rows; row += kThreads)
            for (int run = runs; run < pitch; ++run)
                *scale_at(base, row * pitch + run) = 0;
    }
};

// Of kSets * 8 / kRuns rows of a.
template <RowInput kInput, int kRuns, int kSets>
__global__ void __launch_bounds__(kThreads, kSets == 1 ? 2 : 1)  // without spills
    quantized_row_matmul_kernel(const __grid_constant__ Work work) {
    static_assert(kRuns == 2 || kRuns == 4);
    extern __shared__ uint4 shared_memory[];
    __shared__ float shared[kWarps];  // of a sum over the block
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % kWarp;
    const int warp = __shfl_sync(0xffffffffu, thread / kWarp, 0);  // known to be the same in all
    const int m = work.m;
    const int k = static_cast<int>(work.k);
    const OwnRows own = OwnRows::of(work);
    const Part& part = *own.part;
    const int first_row = own.first_row;
    const int weight_rows = own.rows;
    const int tiles = (weight_rows + kTile - 1) / kTile;
    const int steps = (k + kStep - 1) / kStep;  // of a tile
    const Layout at = layout_of(m, k, weight_rows);
    char* const base = reinterpret_cast<char*>(shared_memory);
    float* const map = reinterpret_cast<float*>(base + at.map);
    float* const continued = reinterpret_cast<float*>(base + at.continued);
    float* const sums = reinterpret_cast<float*>(base + at.sums);
    uint4* const rows = reinterpret_cast<uint4*>(base + at.a);
    let_next_begin();

    const int total = tiles * steps;
    const int begin = warp_begin(warp, total);
    const int end = warp_begin(warp + 1, total);
    int tile = begin / steps;
    int step = begin - tile * steps;

    // Fragments: lane 4 g + t has rows g and g + 8 of a tile and columns [32 t, 32 t + 32) of a step, and column g of
    // a's side, which is run g % kRuns of row g / kRuns; sums of rows g and g + 8 in columns 2 t and 2 t + 1.
    const int g = lane / 4;
    const int t = lane % 4;

    int columns_to_load = k - step * kStep - t * kLaneColumns;  // from this lane's on
    int rows_to_load = weight_rows - tile * kTile - g;
    const std::uint8_t* codes =
        part.codes + ((first_row + tile * kTile + g) * static_cast<std::int64_t>(k) + step * kStep +
                      t * kLaneColumns) /
                         2;
    const std::int64_t to_high = std::int64_t{4} * k;  // bytes of 8 rows
    const std::int64_t to_next_tile = std::int64_t{8} * k - std::int64_t{steps} * (kStep / 2);
    const auto load = [&](Codes& to, bool any) {
        const bool inside = any && columns_to_load > 0;
        load_codes_if(inside && rows_to_load > 0, to.low, codes);
        load_codes_if(inside && rows_to_load > 8, to.high, codes + to_high);
        codes += kStep / 2;
        columns_to_load -= kStep;
        if (columns_to_load <= -t * kLaneColumns) {
            columns_to_load += steps * kStep;
            rows_to_load -= kTile;
            codes += to_next_tile;
        }
    };
    Codes held[2][kStages];
    const auto load_stages = [&](Codes(&to)[kStages], int first) {
#pragma unroll
        for (int stage = 0; stage < kStages; ++stage)
            load(to[stage], first + stage < end);
    };
    load_stages(held[0], begin);
    Scales<kRuns> scales(work, part, first_row, weight_rows);
    scales.begin();
    // What comes behind that in the same rows, to L2: a sector of 32 bytes a lane.
    if (lane / 2 < weight_rows - tile * kTile) {
        const std::int64_t row = first_row + tile * kTile + lane / 2;
        const int column = (step + kStages) * kStep + lane % 2 * 64;
        const std::uint8_t* const from = part.codes + (row * k + column) / 2;
#pragma unroll
        for (int i = 0; i < kAhead; ++i)
            if (begin + kStages + i < end && column + i * kStep < k)
                prefetch(from + i * (kStep / 2));
    }
    Made<kInput, kThreads, InSteps> made_row;
    made_row.begin(work);

    write_pairs<kThreads>(work, base);
    float offset = 0;
    if (part.nested_absmax != nullptr) {
        offset = *part.offset;
        if (thread < kMapCodes) map[thread] = work.map[thread];
        __syncthreads();
    }
    scales.end(base, map, offset);
    prefetch_tail_weight<kThreads>(work, own);
    wait_for_previous();

    const int row_vectors = steps * kStepVectors;
    const int row_pitch = row_vectors + kVectorsOfRowPad;
    const int vectors = k / kElements;
    if constexpr (kInput == RowInput::given) {
        for (int r = 0; r < m; ++r) {
            const auto* const from = reinterpret_cast<const uint4*>(
                static_cast<const Bf16*>(work.a.data) + r * work.a.pitch);
            for (int v = thread; v < row_vectors; v += kThreads)
                rows[r * row_pitch + InSteps::of(v)] =
                    v < vectors ? from[v] : make_uint4(0, 0, 0, 0);
        }
    } else {
        for (int v = vectors + kThreads - 1 - thread; v < row_vectors; v += kThreads)
            rows[InSteps::of(v)] = make_uint4(0, 0, 0, 0);
        made_row.write(work, rows, shared);
    }
    // Of a thread's first sum now, while the rows come.
    const float first_added = thread < weight_rows * m
                                  ? added(work, own, thread / weight_rows, thread % weight_rows)
                                  : 0.0f;
    __syncthreads();

    constexpr int kSetRows = 8 / kRuns;
    const int own_a_row = g / kRuns;
    std::uint32_t own_a =
        shared_address(rows) + static_cast<std::uint32_t>((own_a_row * row_pitch + t) * 16);
    asm volatile("" : "+r"(own_a)::"memory");  // no load of a comes before the barrier
    const auto to_next_set = static_cast<std::uint32_t>(kSetRows * row_pitch * 16);
    // By a shuffle, or it is made again for each step.
    const std::uint32_t own_bank =
        __shfl_sync(0xffffffffu, static_cast<std::uint32_t>(lane * 4), lane);
    const auto pair_at = [&](std::uint32_t word, unsigned byte) {
        return *reinterpret_cast<const std::uint32_t*>(
            base + __byte_perm(word, own_bank, 0x5504u + (byte << 4)));
    };
    bool reads_a[kSets];
#pragma unroll
    for (int s = 0; s < kSets; ++s)
        reads_a[s] = (kRuns == 2 ? t / 2 : t) == g % kRuns && s * kSetRows + own_a_row < m;
    constexpr int kHeldOfA = kSets == 1 ? 4 : 1;
    std::uint32_t x[kHeldOfA][4] = {};  // zeros where nothing is read
    float sum[kSets][2] = {};
    float* place = step == 0 ? sums + tile * kTile * m : continued + warp * kTile * m;
    const int pitch = scales.pitch;
    // Of this lane's row in the tile, in the two columns of its sums.
    int scale = (tile * kTile + g) * pitch + step * kRuns + (kRuns == 4 ? t % 2 * 2 : 0);
    const int last_scale = weight_rows * pitch - 2;
    const auto scales_at = [&](int i) {
        return *reinterpret_cast<const float2*>(scale_at(base, i));
    };
    const auto multiply = [&](const Codes& now, bool is_last) {
        const std::uint32_t a_at = own_a + static_cast<std::uint32_t>(step * kStep * 2);
        if constexpr (kSets == 1) {
#pragma unroll
            for (int w = 0; w < 4; ++w)
                load_shared_16_if(reads_a[0], x[w], a_at + w * 64);
        }
        // Rows behind the weight's have scales of the last one.
        const float2 low = scales_at(min(scale, last_scale));
        const float2 high = scales_at(min(scale + 8 * pitch, last_scale));
        float product[kSets][2][4] = {};
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const Pairs pairs = pairs_of(pair_at, now.low[w], now.high[w]);
#pragma unroll
            for (int s = 0; s < kSets; ++s) {
                auto& a = x[w % kHeldOfA];
                if constexpr (kSets > 1) {
                    if (s * kSetRows >= m) break;
                    load_shared_16_if(reads_a[s], a, a_at + s * to_next_set + w * 64);
                }
                multiply_add(product[s][0], pairs.first, a[0], a[1]);
                multiply_add(product[s][1], pairs.second, a[2], a[3]);
            }
        }
#pragma unroll
        for (int s = 0; s < kSets; ++s) {
            const auto& p = product[s];
            sum[s][0] += scaled(p[0][0] + p[1][0], low.x, p[0][1] + p[1][1], low.y);
            sum[s][1] += scaled(p[0][2] + p[1][2], high.x, p[0][3] + p[1][3], high.y);
        }
        scale += kRuns;
        if (++step == steps || is_last) {
#pragma unroll
            for (int s = 0; s < kSets; ++s) {
                if constexpr (kRuns == 4) {
                    sum[s][0] += __shfl_xor_sync(0xffffffffu, sum[s][0], 1);
                    sum[s][1] += __shfl_xor_sync(0xffffffffu, sum[s][1], 1);
                }
                const int a_row = s * kSetRows + 2 * t / kRuns;
                if (a_row < m && (kRuns == 2 || t % 2 == 0)) {
                    place[g * m + a_row] = sum[s][0];
                    place[(g + 8) * m + a_row] = sum[s][1];
                }
                sum[s][0] = 0;
                sum[s][1] = 0;
            }
            scale += kTile * pitch - steps * kRuns;
            step = 0;
            ++tile;
            place = sums + tile * kTile * m;
        }
    };
    // Loads are counted together, so that those of one half would wait for those of the other, were these not asked for
    // afterwards: their addresses depend on what the others read, by a zero that the compiler does not know.
    const auto zero = static_cast<std::uint32_t>(part.block_shift) >> 8;
    const auto half = [&](const Codes(&now)[kStages], Codes(&next)[kStages], int unit) {
        std::uint32_t arrived = 0;
#pragma unroll
        for (int stage = 0; stage < kStages; ++stage)
            arrived |= now[stage].low[3] | now[stage].high[3];
        codes += arrived & zero;
        load_stages(next, unit + kStages);
#pragma unroll
        for (int stage = 0; stage < kStages; ++stage)
            if (unit + stage < end) multiply(now[stage], unit + stage + 1 == end);
    };
#pragma unroll 1
    for (int unit = begin; unit < end; unit += 2 * kStages) {
        half(held[0], held[1], unit);
        if (unit + kStages < end) half(held[1], held[0], unit + kStages);
    }
    __syncthreads();

    for (int i = thread; i < weight_rows * m; i += kThreads) {
        const int a_row = i / weight_rows;
        const int row = i - a_row * weight_rows;
        const int own_tile = row / kTile;
        float whole = sums[row * m + a_row];
#pragma unroll 4
        for (int w = 1; w < kWarps; ++w) {
            const int b = warp_begin(w, total);
            if (b > own_tile * steps && b < (own_tile + 1) * steps && b < warp_begin(w + 1, total))
                whole += continued[(w * kTile + row % kTile) * m + a_row];
        }
        write_result(
            work, own, a_row, row,
            work.alpha * whole + (i == thread ? first_added : added(work, own, a_row, row)));
    }
}

// The constants in [1, 2) by which the table's values are best rounded to bf16: FP4's, multiples of 1/12, are exact;
// NF4's are off by 0.0009 of themselves (root mean square), 0.0018 at the most, where without it would be 0.0014
// and 0.0031.
float pair_scale_of(QuantFormat format) {
    return format == QuantFormat::fp4 ? 1.5f : 1.4367676f;
}

// Of all weights, the more of them.
int runs_of(const QuantizedRowMatmul& x) {
    int most = 2;
    for (int p = 0; p < x.parts; ++p)
        most =
            std::max(most, quantized_row::runs_of(x.weights[p].columns, x.weights[p].block_shift));
    return most;
}

template <RowInput kInput, int kRuns, int kSets>
void launch(StreamHandle stream, const Work& work, const Blocks& blocks, bool early) {
    const auto kernel = quantized_row_matmul_kernel<kInput, kRuns, kSets>;
    const int bytes = static_cast<int>(layout_of(work.m, work.k, blocks.rows).bytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    if (early)
        launch_early(kernel, dim3(blocks.count), kThreads, bytes, stream, work);
    else
        kernel<<<blocks.count, kThreads, static_cast<std::size_t>(bytes), stream>>>(work);
    check_launch("quantized_row_matmul");
}

template <RowInput kInput, int kRuns>
void launch_for(StreamHandle stream, const Work& work, const Blocks& blocks, bool early) {
    if constexpr (kInput == RowInput::given) {
        if (work.m > 8 / kRuns) return launch<kInput, kRuns, 4>(stream, work, blocks, early);
    }
    launch<kInput, kRuns, 1>(stream, work, blocks, early);
}
template <RowInput kInput>
void launch_for(StreamHandle stream, int runs, const Work& work, const Blocks& blocks, bool early) {
    if (runs == 2)
        launch_for<kInput, 2>(stream, work, blocks, early);
    else
        launch_for<kInput, 4>(stream, work, blocks, early);
}

void launch_for(StreamHandle stream, RowInput input, int runs, const Work& work,
                const Blocks& blocks, bool early) {
    switch (input) {
        case RowInput::given:
            return launch_for<RowInput::given>(stream, runs, work, blocks, early);
        case RowInput::rms_norm:
            return launch_for<RowInput::rms_norm>(stream, runs, work, blocks, early);
        case RowInput::silu_mul:
            return launch_for<RowInput::silu_mul>(stream, runs, work, blocks, early);
        case RowInput::gelu_tanh_mul:
            return launch_for<RowInput::gelu_tanh_mul>(stream, runs, work, blocks, early);
    }
}

bool is_aligned(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}
bool in_vectors(const Rows& rows, std::int64_t count) {
    return is_aligned(rows.data) && (count == 1 || rows.pitch % kElements == 0);
}

std::int64_t most_shared(const QuantizedRowMatmul& x) {
    return std::max(x.shared_bytes - 1024, kMostShared);
}

// Rows of a that fit a block's memory beside the rest, of those that one product takes.
std::int64_t rows_at_once(const QuantizedRowMatmul& x, int runs) {
    const std::int64_t most = most_shared(x);
    const std::int64_t k = x.weights[0].columns;
    if (most_weight_rows(k, runs) == 0) return 0;
    std::int64_t rows = std::min<std::int64_t>(x.m, 32 / runs);
    while (rows > 0 && most_bytes(rows, k, runs) > most)
        --rows;
    return rows;
}

bool takes(const QuantizedRowMatmul& x) {
    std::int64_t rows = 0;
    for (int p = 0; p < x.parts; ++p) {
        const QuantizedWeight& weight = x.weights[p];
        if (!takes_weight(weight) || !is_aligned(weight.codes)) return false;
        rows += weight.rows;
    }
    return x.a_is_bf16 && in_vectors(x.a, x.m) && is_aligned(x.weight_or_up) &&
           x.tail_columns % kElements == 0 && in_vectors(x.tail, x.m) &&
           in_vectors(x.tail_weight, rows);
}

Rows from_row(const Rows& rows, std::int64_t row, std::int64_t bytes) {
    return {
        rows.data == nullptr ? nullptr : static_cast<char*>(rows.data) + row * rows.pitch * bytes,
        rows.pitch};
}

void multiply(StreamHandle stream, const QuantizedRowMatmul& x) {
    if (x.m == 0) return;
    const int runs = runs_of(x);
    const std::int64_t most = takes(x) ? rows_at_once(x, runs) : 0;
    if (most == 0) {
        if (x.weights[0].rows > 0) quantized_rows_plain(stream, x);
        return;
    }
    Work work;
    work.part_count = 0;
    int rows = 0;
    for (int p = 0; p < x.parts; ++p) {
        const QuantizedWeight& weight = x.weights[p];
        if (weight.rows == 0) continue;
        Part& part = work.parts[work.part_count++];
        part.codes = static_cast<const std::uint8_t*>(weight.codes);
        part.absmax = weight.absmax;
        part.nested_absmax = weight.nested_absmax;
        part.offset = weight.offset;
        part.block_shift = weight.block_shift;
        part.nested_shift = weight.nested_shift;
        part.first_row = rows;
        part.rows = static_cast<int>(weight.rows);
        rows += part.rows;
        if (weight.nested_absmax != nullptr) std::copy_n(weight.map, kMapCodes, work.map);
    }
    if (rows == 0) return;
    std::copy_n(x.weights[0].table, kCodes, work.table);
    work.made = x.weights[0].columns;
    work.x = x.a.data;
    work.weight_or_up = x.weight_or_up;
    work.eps = x.eps;
    work.weight_offset = x.weight_offset;
    work.rounds_once = x.rounds_once;
    work.k = x.weights[0].columns;
    work.tail_columns = static_cast<int>(x.tail_columns);
    work.tail_weight = x.tail_weight;
    work.bias = x.bias;
    work.c_is_bf16 = x.c_is_bf16;
    work.pair_scale = pair_scale_of(x.weights[0].format);
    work.alpha = x.alpha / work.pair_scale;
    work.tail_alpha = x.alpha;
    const std::int64_t size = x.c_is_bf16 ? 2 : 4;
    const auto begin_at = [&](std::int64_t row) {
        work.m = static_cast<int>(std::min(most, x.m - row));
        work.a = from_row(x.a, row, 2);
        work.tail = from_row(x.tail, row, 2);
        work.addend = from_row(x.addend, row, size);
        work.c = from_row(x.c, row, size);
    };
    begin_at(0);
    if (x.m == 1 && runs == 2 &&
        multiply_one_row(stream, x.input, work, most_shared(x), x.weight_is_settled))
        return;
    work.vectors_of_row =
        static_cast<std::uint32_t>(std::max<std::int64_t>(work.k * runs / kStep / 4, 1));
    work.by_vectors_of_row =
        static_cast<std::uint32_t>(((std::uint64_t{1} << 32) - 1) / work.vectors_of_row + 1);
    const Blocks blocks = divide(work, kTile, most_weight_rows(work.k, runs));
    for (std::int64_t row = 0; row < x.m; row += most) {
        begin_at(row);
        launch_for(stream, x.input, runs, work, blocks, x.weight_is_settled && row == 0);
    }
}

}  // namespace

const QuantizedRowMatmulKernels& quantized_row_matmul_kernels() {
    static constexpr QuantizedRowMatmulKernels kTable{multiply};
    return kTable;
}

}  // namespace garam::cuda
