// Tensor cores multiply the 16 values of the table, so that decoding is a look-up of two codes at once: a byte of
// codes picks a pair of bf16 from 256, which each lane has in a bank of shared memory of its own. A tile is 8 rows of
// the weight, a step 256 of its columns. Products over 64 (32) codes, within one block of each row, begin at zero
// and are added to the tile's sums times absmax. Up to 16 rows of a cost what one does, but for its loads.
//
// About 3.7 instructions a weight, of the 4.9 that the bandwidth of a large card leaves time for, and look-ups fill
// two thirds of the time of shared memory.
//
// The tiles are divided among as many blocks as there are multiprocessors, the steps of a block's tiles among its
// warps. Each warp keeps kStages steps on their way to shared memory, and has asked for kAhead more to come to L2,
// from its first instruction to its last step; as in row_matmul.cu this begins while the work ahead still runs.
// A tile's sum may be cut between warps: the parts are added in the warps' order.
#include <algorithm>

#include "garam/kernels/cuda/early_launch.cuh"
#include "garam/kernels/cuda/four_bit.cuh"
#include "garam/kernels/cuda/quantized_row_matmul.h"
#include "garam/kernels/cuda/row_input.cuh"

namespace garam::cuda {
namespace {

using namespace quantized_row;

struct Work : MadeRow {
    FourBitWork weight;
    int m = 0;
    std::int64_t n = 0, k = 0;
    Rows a;
    int tail_columns = 0;
    Rows tail, tail_weight;
    Rows addend;
    const void* bias = nullptr;
    Rows c;
    bool c_is_bf16 = false;
    float pair_scale = 1;  // of the values that are multiplied
    float alpha = 1;       // with pair_scale divided out
    float tail_alpha = 1;
};

__device__ __forceinline__ void prefetch(const void* place) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(place));
}
// Nothing is read when `inside` is false, and x has no meaning then.
__device__ __forceinline__ void load_shared_16_if(bool inside, std::uint32_t (&x)[4],
                                                  std::uint32_t shared) {
    asm volatile(
        "{ .reg .pred inside; setp.ne.u32 inside, %5, 0;\n"
        "@inside ld.shared.v4.b32 {%0, %1, %2, %3}, [%4]; }\n"
        : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
        : "r"(shared), "r"(static_cast<std::uint32_t>(inside))
        : "memory");
}
// c = a * b, from zero.
__device__ __forceinline__ void multiply_first(float (&c)[4], const std::uint32_t (&a)[4],
                                               std::uint32_t b0, std::uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %10, %10, %10};\n"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

__device__ __forceinline__ float element_of(const void* data, bool is_bf16, std::int64_t i) {
    return is_bf16 ? to_float(static_cast<const Bf16*>(data)[i])
                   : static_cast<const float*>(data)[i];
}

// What a lane reads for a step beside codes: absmax of kScales blocks of its row, as f32 or a code.
template <int kScales>
struct Scales {
    std::uint32_t value[kScales];
    float nested[kScales];

    // `left`: columns from the first element to the end of the row.
    __device__ __forceinline__ void read(const FourBitWork& weight, std::uint32_t element,
                                         int left) {
#pragma unroll
        for (int s = 0; s < kScales; ++s) {
            constexpr int kEach = 64 / kScales;
            value[s] = 0;
            nested[s] = 0;
            if (s * kEach >= left) continue;
            const std::uint32_t block = (element + s * kEach) >> weight.block_shift;
            if (weight.nested_absmax != nullptr) {
                value[s] = static_cast<const std::uint8_t*>(weight.absmax)[block];
                nested[s] = weight.nested_absmax[block >> weight.nested_shift];
            } else {
                value[s] = static_cast<const std::uint32_t*>(weight.absmax)[block];
            }
        }
    }
    __device__ __forceinline__ float decode(int s, bool is_double, const float* map,
                                            float offset) const {
        return is_double ? __fadd_rn(__fmul_rn(map[value[s]], nested[s]), offset)
                         : __uint_as_float(value[s]);
    }
};

// kScaleCodes: columns, 64 or 32, that a product sums; they divide k and lie in one block.
template <RowInput kInput, bool kTall, int kScaleCodes>
__global__ void __launch_bounds__(kThreads, kTall ? 1 : 2)
    quantized_row_matmul_kernel(const __grid_constant__ Work work) {
    static_assert(kScaleCodes == 64 || kScaleCodes == 32);
    constexpr int kScales = 64 / kScaleCodes;
    extern __shared__ uint4 shared_memory[];
    __shared__ float shared[kWarps];  // of a sum over the block
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % kWarp;
    const int warp = thread / kWarp;
    const int m = work.m;
    const int n = static_cast<int>(work.n);
    const int k = static_cast<int>(work.k);
    const int all_tiles = (n + kTile - 1) / kTile;
    const int first_tile =
        static_cast<int>(static_cast<std::int64_t>(blockIdx.x) * all_tiles / gridDim.x);
    const int tiles =
        static_cast<int>(static_cast<std::int64_t>(blockIdx.x + 1) * all_tiles / gridDim.x) -
        first_tile;
    const int steps = (k + kStep - 1) / kStep;  // of a tile
    const Layout at = layout_of(m, k, tiles);
    char* const base = reinterpret_cast<char*>(shared_memory);
    float* const map = reinterpret_cast<float*>(base + at.map);
    float* const continued = reinterpret_cast<float*>(base + at.continued);
    float* const sums = reinterpret_cast<float*>(base + at.sums);
    uint4* const rows = reinterpret_cast<uint4*>(base + at.rows);
    let_next_begin();

    const int total = tiles * steps;
    const auto begin_of = [&](int w) { return w * total / kWarps; };
    const int begin = begin_of(warp);
    const int end = begin_of(warp + 1);
    const bool is_double = work.weight.nested_absmax != nullptr;

    // A lane copies vector lane % 8 of rows lane / 8 and 4 more of the tile, and holds the scales of its own columns of
    // row lane / 4; beyond the last row this is read again. Units of 32 bytes are put in another order in each row,
    // so that rows lie in other banks.
    const std::uint32_t own_ring =
        shared_address(base) + static_cast<std::uint32_t>(warp * kWarpBytes + kLine / 2);
    const std::uint32_t copy_to = static_cast<std::uint32_t>(
        lane / 8 * kLine + ((lane % 8 / 2) ^ (lane / 8)) * 32 + lane % 2 * 16);
    // Rows follow each other in memory, so that what lies beyond the last one is told by its place. 32 bits count
    // elements.
    const std::uint32_t elements = static_cast<std::uint32_t>(n) * static_cast<std::uint32_t>(k);
    const auto first_element = [&](int row, int column) {
        return static_cast<std::uint32_t>((first_tile + begin / steps) * kTile + row) *
                   static_cast<std::uint32_t>(k) +
               static_cast<std::uint32_t>(begin % steps * kStep + column);
    };
    std::uint32_t copied = first_element(lane / 8, lane % 8 * 32);
    std::uint32_t scaled = first_element(lane / 4, lane % 4 * 64);
    int copied_within = begin % steps;
    const auto copy = [&](int stage, bool any, Scales<kScales>& scales) {
        if (any) {
            const int left = k - copied_within * kStep;  // columns of the row
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const std::uint32_t element = copied + static_cast<std::uint32_t>(4 * i * k);
                const bool inside = lane % 8 * 32 < left && element < elements;
                const std::uint8_t* const from = work.weight.codes + (inside ? element / 2 : 0);
                copy_async_16(own_ring + copy_to + stage * kStageBytes + i * 4 * kLine, from,
                              inside);
                if (inside && lane % 8 * 32 + kAhead * kStep < left)
                    prefetch(from + kAhead * (kStep / 2));
            }
            scales.read(work.weight, scaled, scaled < elements ? left - lane % 4 * 64 : 0);
            ++copied_within;
            copied += kStep;
            scaled += kStep;
            if (copied_within == steps) {
                copied_within = 0;
                copied += static_cast<std::uint32_t>(kTile * k - steps * kStep);
                scaled += static_cast<std::uint32_t>(kTile * k - steps * kStep);
            }
        }
        copy_async_commit();
    };
    Made<kInput, kThreads, kStages>::begin(work, rows);
    Scales<kScales> scales_at[kStages];
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage)
        copy(stage, begin + stage < end, scales_at[stage]);

    // Tables, and what the end adds, which is asked for now.
    const std::uint32_t pairs_at = shared_address(base);
    const auto own_bank = static_cast<std::uint32_t>(lane * 4);
    for (int code = warp; code < kPairs; code += kWarps)
        store_shared_4(pairs_at + static_cast<std::uint32_t>(code * kLine) + own_bank,
                       pack(work.weight.table[code / kCodes] * work.pair_scale,
                            work.weight.table[code % kCodes] * work.pair_scale));
    float offset = 0;
    if (is_double) {
        offset = *work.weight.offset;
        if (thread < kMapCodes) map[thread] = work.weight.map[thread];
    }
    const int first_row = first_tile * kTile;
    const int weight_rows = min(tiles * kTile, n - first_row);
    const auto* const tail_weight = static_cast<const Bf16*>(work.tail_weight.data);
    for (int i = thread; work.tail_columns > 0 && i < weight_rows; i += kThreads) {
        for (int t = 0; t < work.tail_columns; t += 64)
            prefetch(tail_weight + (first_row + i) * work.tail_weight.pitch + t);
    }
    wait_for_previous();

    const int row_vectors = steps * kStep / kElements;
    const int row_pitch = row_vectors + static_cast<int>(kRowPad) / kElements;
    const int vectors = k / kElements;
    if constexpr (kInput == RowInput::given) {
        for (int r = 0; r < m; ++r) {
            const Bf16* const from = static_cast<const Bf16*>(work.a.data) + r * work.a.pitch;
            for (int v = thread; v < row_vectors; v += kThreads)
                rows[r * row_pitch + v] =
                    v < vectors ? load_vector_of(from, v) : make_uint4(0, 0, 0, 0);
        }
    } else {
        for (int v = vectors + kThreads - 1 - thread; v < row_vectors; v += kThreads)
            rows[v] = make_uint4(0, 0, 0, 0);
        Made<kInput, kThreads, kStages>::write(work, rows, shared);
    }
    __syncthreads();

    // Fragments: lane 4 g + t has row g of a, and of the weight row g; sums of rows g (and g + 8) of a and rows
    // 2 t and 2 t + 1 of the weight.
    const int g = lane / 4;
    const int t = lane % 4;
    const std::uint32_t own_a =
        shared_address(rows) +
        static_cast<std::uint32_t>(g * row_pitch * 16 + t * (kScaleCodes / 2));
    const std::uint32_t next_a = static_cast<std::uint32_t>(8 * row_pitch * 16);
    const auto pair_at = [&](std::uint32_t word, unsigned byte) {
        return load_shared_4(pairs_at + __byte_perm(word, own_bank, 0x5504u + (byte << 4)));
    };
    constexpr int kHalves = kTall ? 2 : 1;
    float sum[kHalves][2] = {};
    int tile = begin / steps;
    int within = begin - tile * steps;
    float* place = within == 0 ? sums + tile * kTile * m : continued + warp * kTile * m;
    const auto multiply = [&](int stage, int step) {
        copy_async_wait<kStages - 1>();
        __syncwarp();
        float scale[kScales];
#pragma unroll
        for (int s = 0; s < kScales; ++s)
            scale[s] = scales_at[stage].decode(s, is_double, map, offset);
        const std::uint32_t codes_at =
            own_ring + static_cast<std::uint32_t>(stage * kStageBytes + g * kLine);
        const std::uint32_t a_at = own_a + static_cast<std::uint32_t>(within * kStep * 2);
#pragma unroll 2  // without spills
        for (int q = 0; q < kStep / 64; ++q) {
            const std::uint32_t unit = codes_at + static_cast<std::uint32_t>((q ^ (g & 3)) * 32);
#pragma unroll
            for (int s = 0; s < kScales; ++s) {
                // Of kScaleCodes codes of row g this lane has a quarter.
                std::uint32_t words[kScaleCodes / 32];
                if constexpr (kScales == 1) {
                    const float2 both = load_shared_pair(unit + t * 8);
                    words[0] = __float_as_uint(both.x);
                    words[1] = __float_as_uint(both.y);
                } else {
                    words[0] = load_shared_4(unit + s * 16 + t * 4);
                }
                // Of words 0 … 3 of a's vector the first and third go to one product, in rows g of its result, the
                // others to another, in rows g + 8; the other half of each has no meaning.
                float even[kHalves][4], odd[kHalves][4];
#pragma unroll
                for (int w = 0; w < kScaleCodes / 32; ++w) {
                    const std::uint32_t pairs[4] = {pair_at(words[w], 0), pair_at(words[w], 1),
                                                    pair_at(words[w], 2), pair_at(words[w], 3)};
#pragma unroll
                    for (int h = 0; h < kHalves; ++h) {
                        std::uint32_t x[4];
                        load_shared_16_if(g + 8 * h < m, x,
                                          a_at + h * next_a + q * 128 + s * 64 + w * 16);
                        if (w == 0) {
                            multiply_first(even[h], x, pairs[0], pairs[2]);
                            multiply_first(odd[h], x, pairs[1], pairs[3]);
                        } else {
                            multiply_add(even[h], x, pairs[0], pairs[2]);
                            multiply_add(odd[h], x, pairs[1], pairs[3]);
                        }
                    }
                }
                const float scale0 = __shfl_sync(0xffffffffu, scale[s], 8 * t + q);
                const float scale1 = __shfl_sync(0xffffffffu, scale[s], 8 * t + 4 + q);
#pragma unroll
                for (int h = 0; h < kHalves; ++h) {
                    sum[h][0] = fmaf(scale0, even[h][0] + odd[h][2], sum[h][0]);
                    sum[h][1] = fmaf(scale1, even[h][1] + odd[h][3], sum[h][1]);
                }
            }
        }
        __syncwarp();
        copy(stage, step + kStages < end, scales_at[stage]);
        if (++within == steps || step + 1 == end) {
#pragma unroll
            for (int h = 0; h < kHalves; ++h) {
                if (g + 8 * h < m) {
                    place[2 * t * m + g + 8 * h] = sum[h][0];
                    place[(2 * t + 1) * m + g + 8 * h] = sum[h][1];
                }
                sum[h][0] = 0;
                sum[h][1] = 0;
            }
            within = 0;
            ++tile;
            place = sums + tile * kTile * m;
        }
    };
    // Unrolled: a scale that is moved to another register has to have arrived.
#pragma unroll 1
    for (int step = begin; step < end; step += kStages) {
#pragma unroll
        for (int stage = 0; stage < kStages; ++stage)
            if (step + stage < end) multiply(stage, step + stage);
    }
    copy_async_wait<0>();
    __syncthreads();

    for (int i = thread; i < weight_rows * m; i += kThreads) {
        const int a_row = i / weight_rows;
        const int row = i - a_row * weight_rows;
        const int own = row / kTile;
        float whole = sums[row * m + a_row];
#pragma unroll 4
        for (int w = 1; w < kWarps; ++w) {
            const int b = begin_of(w);
            if (b > own * steps && b < (own + 1) * steps && b < begin_of(w + 1))
                whole += continued[(w * kTile + row % kTile) * m + a_row];
        }
        float result = work.alpha * whole;
        const std::int64_t column = first_row + row;
        if (work.tail_columns > 0) {
            const Bf16* const own_tail =
                static_cast<const Bf16*>(work.tail.data) + a_row * work.tail.pitch;
            float tail = 0;
            for (int v = 0; v < work.tail_columns / kElements; ++v)
                tail = add_products(
                    load_vector_of(own_tail, v),
                    load_vector_of(tail_weight + column * work.tail_weight.pitch, v), tail);
            result += work.tail_alpha * tail;
        }
        if (work.addend.data != nullptr)
            result +=
                element_of(work.addend.data, work.c_is_bf16, a_row * work.addend.pitch + column);
        if (work.bias != nullptr) result += element_of(work.bias, work.c_is_bf16, column);
        const std::int64_t to = a_row * work.c.pitch + column;
        if (work.c_is_bf16)
            static_cast<Bf16*>(work.c.data)[to] = from_float<Bf16>(result);
        else
            static_cast<float*>(work.c.data)[to] = result;
    }
}

// The constants in [1, 2) by which the table's values are best rounded to bf16: FP4's, multiples of 1/12, are exact;
// NF4's are off by 0.0009 of themselves (root mean square), 0.0018 at the most, where without it would be 0.0014
// and 0.0031.
float pair_scale_of(WeightCodes format) {
    return format == WeightCodes::fp4 ? 1.5f : 1.4367676f;
}

std::int64_t multiprocessors() {
    int device = 0;
    int count = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return std::max(count, 1);
}
// Of threads for n rows of a weight and m of a.
std::int64_t blocks_for(std::int64_t n, std::int64_t m) {
    const std::int64_t tiles = ceil_div(n, kTile);
    return std::max(std::min(multiprocessors(), tiles),
                    ceil_div(tiles, std::min(kMostTiles, kMostTilesRows / m)));
}
std::int64_t shared_bytes(std::int64_t m, std::int64_t n, std::int64_t k) {
    return layout_of(m, k, ceil_div(ceil_div(n, kTile), blocks_for(n, m))).bytes;
}

template <RowInput kInput, bool kTall, int kScaleCodes>
void launch(StreamHandle stream, const Work& work, bool early) {
    const auto kernel = quantized_row_matmul_kernel<kInput, kTall, kScaleCodes>;
    const auto bytes = static_cast<int>(shared_bytes(work.m, work.n, work.k));
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    const dim3 grid(static_cast<unsigned>(blocks_for(work.n, work.m)));
    if (early)
        launch_early(kernel, grid, kThreads, bytes, stream, work);
    else
        kernel<<<grid, kThreads, static_cast<std::size_t>(bytes), stream>>>(work);
    check_launch("quantized_row_matmul");
}

template <RowInput kInput, bool kTall>
void launch_for(StreamHandle stream, const Work& work, bool early) {
    if (work.k % 64 == 0 && work.weight.block_shift >= 6)
        launch<kInput, kTall, 64>(stream, work, early);
    else
        launch<kInput, kTall, 32>(stream, work, early);
}

void launch_for(StreamHandle stream, RowInput input, const Work& work, bool early) {
    switch (input) {
        case RowInput::given:
            return work.m > 8 ? launch_for<RowInput::given, true>(stream, work, early)
                              : launch_for<RowInput::given, false>(stream, work, early);
        case RowInput::rms_norm:
            return launch_for<RowInput::rms_norm, false>(stream, work, early);
        case RowInput::silu_mul:
            return launch_for<RowInput::silu_mul, false>(stream, work, early);
        case RowInput::gelu_tanh_mul:
            return launch_for<RowInput::gelu_tanh_mul, false>(stream, work, early);
    }
}

bool is_aligned(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}
bool in_vectors(const Rows& rows, std::int64_t count) {
    return is_aligned(rows.data) && (count == 1 || rows.pitch % kElements == 0);
}

// Rows of a that fit a block's memory beside the rest.
std::int64_t rows_at_once(const QuantizedRowMatmul& x) {
    const std::int64_t most = std::max(x.shared_bytes - 1024, kMostShared);
    std::int64_t rows = x.m;
    while (rows > 0 && shared_bytes(rows, x.weight.rows, x.weight.columns) > most)
        --rows;
    return rows;
}

bool takes(const QuantizedRowMatmul& x) {
    return x.a_is_bf16 && takes_weight(x.weight) && is_aligned(x.weight.codes) &&
           in_vectors(x.a, x.m) && is_aligned(x.weight_or_up) && x.tail_columns % kElements == 0 &&
           in_vectors(x.tail, x.m) && in_vectors(x.tail_weight, x.weight.rows);
}

Rows from_row(const Rows& rows, std::int64_t row, std::int64_t bytes) {
    return {
        rows.data == nullptr ? nullptr : static_cast<char*>(rows.data) + row * rows.pitch * bytes,
        rows.pitch};
}

void multiply(StreamHandle stream, const QuantizedRowMatmul& x) {
    if (x.m == 0 || x.weight.rows == 0) return;
    const std::int64_t most = takes(x) ? rows_at_once(x) : 0;
    if (most == 0) return quantized_rows_plain(stream, x);
    Work work;
    work.made = x.weight.columns;
    work.x = x.a.data;
    work.weight_or_up = x.weight_or_up;
    work.eps = x.eps;
    work.weight_offset = x.weight_offset;
    work.rounds_once = x.rounds_once;
    work.weight = four_bit_work(x.weight);
    work.n = x.weight.rows;
    work.k = x.weight.columns;
    work.tail_columns = static_cast<int>(x.tail_columns);
    work.tail_weight = x.tail_weight;
    work.bias = x.bias;
    work.c_is_bf16 = x.c_is_bf16;
    work.pair_scale = pair_scale_of(x.weight.format);
    work.alpha = x.alpha / work.pair_scale;
    work.tail_alpha = x.alpha;
    const std::int64_t size = x.c_is_bf16 ? 2 : 4;
    for (std::int64_t row = 0; row < x.m; row += most) {
        work.m = static_cast<int>(std::min(most, x.m - row));
        work.a = from_row(x.a, row, 2);
        work.tail = from_row(x.tail, row, 2);
        work.addend = from_row(x.addend, row, size);
        work.c = from_row(x.c, row, size);
        launch_for(stream, x.input, work, x.weight_is_settled && row == 0);
    }
}

}  // namespace

const QuantizedRowMatmulKernels& quantized_row_matmul_kernels() {
    static constexpr QuantizedRowMatmulKernels kTable{multiply};
    return kTable;
}

}  // namespace garam::cuda
