// Tensor cores multiply the 16 values of the table, so that decoding is a look-up of two codes at once: a byte of
// codes picks a pair of bf16 from 256, which each lane has in a bank of shared memory of its own. A tile is 16 rows
// of the weight, a step 128 of its columns, of which each of four lanes has 32 in registers. The rows of a are columns
// of the product, eight, and each takes two of them (or four): one for each run of 64 (or 32) columns of the step, with
// zeros for the others. So the sum over a block's codes is multiplied by absmax in fp32, and up to four (two) rows of a
// cost what one does.
//
// About 2.4 instructions a weight, of the 4.9 that the bandwidth of a large card leaves time for. Look-ups, loads and
// shuffles take 52 cycles of a multiprocessor's shared memory a step, where the bandwidth brings one in 79.
//
// The rows are divided among as many blocks as there are multiprocessors, the steps of a block's tiles among its
// warps. A warp multiplies kStages steps while it loads as many, and has asked for kAhead more to come to L2 at its
// beginning; as in row_matmul.cu this begins while the work ahead still runs. A tile's sum may be cut between warps:
// the parts are added in the warps' order.
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
// Codes that this block alone reads; their neighbours come to L2 with them. Nothing is read when `inside` is false,
// and x has no meaning then.
__device__ __forceinline__ void load_codes_if(bool inside, std::uint32_t (&x)[4],
                                              const std::uint8_t* place) {
    asm volatile(
        "{ .reg .pred inside; setp.ne.u32 inside, %5, 0;\n"
        "@inside ld.global.nc.L1::no_allocate.L2::256B.v4.b32 {%0, %1, %2, %3}, [%4]; }\n"
        : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
        : "l"(place), "r"(static_cast<std::uint32_t>(inside)));
}
// Zero when `inside` is false.
__device__ __forceinline__ std::uint32_t load_byte_if(bool inside, const void* place) {
    std::uint32_t x;
    asm volatile(
        "{ .reg .pred inside; setp.ne.u32 inside, %2, 0;\n"
        "mov.b32 %0, 0;\n"
        "@inside ld.global.nc.u8 %0, [%1]; }\n"
        : "=&r"(x)
        : "l"(place), "r"(static_cast<std::uint32_t>(inside)));
    return x;
}
__device__ __forceinline__ float load_float_if(bool inside, const float* place) {
    float x;
    asm volatile(
        "{ .reg .pred inside; setp.ne.u32 inside, %2, 0;\n"
        "mov.b32 %0, 0;\n"
        "@inside ld.global.nc.f32 %0, [%1]; }\n"
        : "=&f"(x)
        : "l"(place), "r"(static_cast<std::uint32_t>(inside)));
    return x;
}
// x stays as it was when `inside` is false.
__device__ __forceinline__ void load_shared_16_if(bool inside, std::uint32_t (&x)[4],
                                                  std::uint32_t shared) {
    asm volatile(
        "{ .reg .pred inside; setp.ne.u32 inside, %5, 0;\n"
        "@inside ld.shared.v4.b32 {%0, %1, %2, %3}, [%4]; }\n"
        : "+r"(x[0]), "+r"(x[1]), "+r"(x[2]), "+r"(x[3])
        : "r"(shared), "r"(static_cast<std::uint32_t>(inside))
        : "memory");
}

__device__ __forceinline__ float element_of(const void* data, bool is_bf16, std::int64_t i) {
    return is_bf16 ? to_float(static_cast<const Bf16*>(data)[i])
                   : static_cast<const float*>(data)[i];
}

struct InSteps {
    __device__ __forceinline__ static constexpr int of(int vector) { return vector_place(vector); }
};

// Absmax of blocks, or of nested ones and codes.
struct Scales {
    const float* absmax;
    const std::uint8_t* codes;  // nullptr: not double
    int block_shift, nested_shift;

    __device__ __forceinline__ explicit Scales(const FourBitWork& weight)
        : absmax(weight.nested_absmax != nullptr ? weight.nested_absmax
                                                 : static_cast<const float*>(weight.absmax)),
          codes(weight.nested_absmax != nullptr ? static_cast<const std::uint8_t*>(weight.absmax)
                                                : nullptr),
          block_shift(weight.block_shift),
          nested_shift(weight.nested_absmax != nullptr ? weight.nested_shift : 0) {}
};

// What a lane reads for a step. kParts: runs of columns of a step that lie in one block of codes each, two of 64 or
// four of 32; of 16 rows' parts a lane has one or two scales, as f32 or as codes.
template <int kParts>
struct Step {
    static constexpr int kScales = kParts / 2;
    std::uint32_t low[4], high[4];  // codes of rows lane / 4 and lane / 4 + 8
    float absmax[kScales];          // of the blocks, or of nested ones
    std::uint32_t code[kScales];    // of double quantisation

    __device__ __forceinline__ void read_scale(const Scales& scales, int s, bool inside,
                                               std::uint32_t element) {
        const std::uint32_t block = element >> scales.block_shift;
        absmax[s] = load_float_if(inside, scales.absmax + (block >> scales.nested_shift));
        code[s] = load_byte_if(inside && scales.codes != nullptr, scales.codes + block);
    }
    // Any bits of what it reads last of each.
    __device__ __forceinline__ std::uint32_t last() const {
        std::uint32_t x = low[3] | high[3];
#pragma unroll
        for (int s = 0; s < kScales; ++s)
            x |= __float_as_uint(absmax[s]) | code[s];
        return x;
    }
    __device__ __forceinline__ float scale(int s, bool is_double, const float* map,
                                           float offset) const {
        return is_double ? __fadd_rn(__fmul_rn(map[code[s]], absmax[s]), offset) : absmax[s];
    }
};

// Of kSets * 8 / kParts rows of a.
template <RowInput kInput, int kParts, int kSets>
__global__ void __launch_bounds__(kThreads, kSets == 1 && kParts == 2 ? 2 : 1)  // without spills
    quantized_row_matmul_kernel(const __grid_constant__ Work work) {
    static_assert(kParts == 2 || kParts == 4);
    using Held = Step<kParts>;
    extern __shared__ uint4 shared_memory[];
    __shared__ float shared[kWarps];  // of a sum over the block
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % kWarp;
    const int warp = __shfl_sync(0xffffffffu, thread / kWarp, 0);  // known to be the same in all
    const int m = work.m;
    const int k = static_cast<int>(work.k);
    const auto first_row = static_cast<int>(blockIdx.x * work.n / gridDim.x);
    const int weight_rows = static_cast<int>((blockIdx.x + 1) * work.n / gridDim.x) - first_row;
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
    const auto begin_of = [&](int w) { return w * total / kWarps; };
    const int begin = begin_of(warp);
    const int end = begin_of(warp + 1);
    const bool is_double = work.weight.nested_absmax != nullptr;

    // Fragments: lane 4 g + t has rows g and g + 8 of a tile and columns [32 t, 32 t + 32) of a step, and column g of
    // a's side, which is part g % kParts of row g / kParts; sums of rows g and g + 8 in columns 2 t and 2 t + 1.
    const int g = lane / 4;
    const int t = lane % 4;

    // 32 bits count elements.
    int to_load_within = begin % steps;
    int rows_to_load = weight_rows - begin / steps * kTile - g;  // from this lane's on
    const std::int64_t first_code = first_row + begin / steps * kTile + g;
    const std::uint8_t* codes =
        work.weight.codes + (first_code * k + to_load_within * kStep + t * kLaneColumns) / 2;
    const std::int64_t to_high = std::int64_t{4} * k;  // bytes of 8 rows
    const std::int64_t to_next_tile = std::int64_t{8} * k - std::int64_t{steps} * (kStep / 2);
    const Scales scales(work.weight);
    const int scale_row = kParts == 2 ? t / 2 * 8 : 0;
    const int scale_column = kParts == 2 ? t % 2 * 64 : t * 32;
    auto element = static_cast<std::uint32_t>((first_code + scale_row) * k +
                                              to_load_within * kStep + scale_column);
    const auto load = [&](Held& held, bool any) {
        const int left = k - to_load_within * kStep;  // columns of the rows
        const bool in_columns = any && t * kLaneColumns < left;
        load_codes_if(in_columns && rows_to_load > 0, held.low, codes);
        load_codes_if(in_columns && rows_to_load > 8, held.high, codes + to_high);
        const bool has_scale = any && scale_column < left;
        held.read_scale(scales, 0, has_scale && rows_to_load > scale_row, element);
        if constexpr (kParts == 4)
            held.read_scale(scales, 1, has_scale && rows_to_load > 8,
                            element + static_cast<std::uint32_t>(8 * k));
        codes += kStep / 2;
        element += kStep;
        if (++to_load_within == steps) {
            to_load_within = 0;
            rows_to_load -= kTile;
            codes += to_next_tile;
            element += static_cast<std::uint32_t>(kTile * k - steps * kStep);
        }
    };
    Held held[2][kStages];
    const auto load_stages = [&](Held(&to)[kStages], int first) {
#pragma unroll
        for (int stage = 0; stage < kStages; ++stage)
            load(to[stage], first + stage < end);
    };
    load_stages(held[0], begin);
    // What comes behind that in the same rows, to L2: a sector of 32 bytes a lane.
    if (lane / 2 < weight_rows - begin / steps * kTile) {
        const std::int64_t row = first_row + begin / steps * kTile + lane / 2;
        const int column = (begin % steps + kStages) * kStep + lane % 2 * 64;
        const std::uint8_t* const from = work.weight.codes + (row * k + column) / 2;
#pragma unroll
        for (int i = 0; i < kAhead; ++i)
            if (begin + kStages + i < end && column + i * kStep < k)
                prefetch(from + i * (kStep / 2));
    }
    using Row = Made<kInput, kThreads, 1, InSteps>;
    Row::begin(work, rows);
    copy_async_commit();

    // Tables: a value a lane, of which four lines of pairs are written at once.
    const std::uint32_t value =
        pack(work.weight.table[lane % kCodes] * work.pair_scale, 0.0f) & 0xffffu;
    for (int line = 4 * warp; line < kPairs; line += 4 * kWarps) {
        const int code = line + lane / 8;
        const std::uint32_t first = __shfl_sync(0xffffffffu, value, code / kCodes);
        const std::uint32_t pair = first | __shfl_sync(0xffffffffu, value, code % kCodes) << 16;
        *reinterpret_cast<uint4*>(base + code * kLine + lane % 8 * 16) =
            make_uint4(pair, pair, pair, pair);
    }
    float offset = 0;
    if (is_double) {
        offset = *work.weight.offset;
        if (thread < kMapCodes) map[thread] = work.weight.map[thread];
    }
    const auto* const tail_weight = static_cast<const Bf16*>(work.tail_weight.data);
    for (int i = thread; work.tail_columns > 0 && i < weight_rows; i += kThreads) {
        for (int column = 0; column < work.tail_columns; column += 64)
            prefetch(tail_weight + (first_row + i) * work.tail_weight.pitch + column);
    }
    wait_for_previous();

    const int row_vectors = steps * kStepVectors;
    const int row_pitch = row_vectors + kVectorsOfRowPad;
    const int vectors = k / kElements;
    if constexpr (kInput == RowInput::given) {
        for (int r = 0; r < m; ++r) {
            const auto* const from = reinterpret_cast<const uint4*>(
                static_cast<const Bf16*>(work.a.data) + r * work.a.pitch);
            for (int v = thread; v < row_vectors; v += kThreads)
                copy_async_16(shared_address(rows + r * row_pitch + InSteps::of(v)),
                              from + (v < vectors ? v : 0), v < vectors);
        }
        copy_async_commit();
    } else {
        for (int v = vectors + kThreads - 1 - thread; v < row_vectors; v += kThreads)
            rows[InSteps::of(v)] = make_uint4(0, 0, 0, 0);
        Row::write(work, rows, shared);
    }
    // What is added to sum number i of the block; of a thread's first one now, while the rows come.
    const auto added = [&](int i) {
        const int a_row = i / weight_rows;
        const std::int64_t column = first_row + i - a_row * weight_rows;
        float sum = 0;
        if (work.tail_columns > 0) {
            const Bf16* const own_tail =
                static_cast<const Bf16*>(work.tail.data) + a_row * work.tail.pitch;
            for (int v = 0; v < work.tail_columns / kElements; ++v)
                sum = add_products(load_vector_of(own_tail, v),
                                   load_vector_of(tail_weight + column * work.tail_weight.pitch, v),
                                   sum);
            sum *= work.tail_alpha;
        }
        if (work.addend.data != nullptr)
            sum += element_of(work.addend.data, work.c_is_bf16, a_row * work.addend.pitch + column);
        if (work.bias != nullptr) sum += element_of(work.bias, work.c_is_bf16, column);
        return sum;
    };
    const float first_added = thread < weight_rows * m ? added(thread) : 0.0f;
    copy_async_wait<0>();
    __syncthreads();

    const int own_part = kParts == 2 ? t / 2 : t;
    const int own_a_row = g / kParts;
    constexpr int kSetRows = 8 / kParts;
    const std::uint32_t own_a =
        shared_address(rows) + static_cast<std::uint32_t>((own_a_row * row_pitch + t) * 16);
    const auto to_next_set = static_cast<std::uint32_t>(kSetRows * row_pitch * 16);
    const auto own_bank = static_cast<std::uint32_t>(lane * 4);
    const auto pair_at = [&](std::uint32_t word, unsigned byte) {
        return *reinterpret_cast<const std::uint32_t*>(
            base + __byte_perm(word, own_bank, 0x5504u + (byte << 4)));
    };
    bool reads_a[kSets];
#pragma unroll
    for (int s = 0; s < kSets; ++s)
        reads_a[s] = own_part == g % kParts && s * kSetRows + own_a_row < m;
    std::uint32_t x[kSets == 1 ? 2 : 1][4] = {};  // zeros where nothing is read
    float sum[kSets][2] = {};
    int tile = begin / steps;
    int within = begin - tile * steps;
    float* place = within == 0 ? sums + tile * kTile * m : continued + warp * kTile * m;
    const auto multiply = [&](const Held& now, bool is_last) {
        float own[Held::kScales];
#pragma unroll
        for (int s = 0; s < Held::kScales; ++s)
            own[s] = now.scale(s, is_double, map, offset);
        const std::uint32_t a_at = own_a + static_cast<std::uint32_t>(within * kStep * 2);
        float product[kSets][4] = {};
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const std::uint32_t first[4] = {pair_at(now.low[w], 0), pair_at(now.high[w], 0),
                                            pair_at(now.low[w], 1), pair_at(now.high[w], 1)};
            const std::uint32_t second[4] = {pair_at(now.low[w], 2), pair_at(now.high[w], 2),
                                             pair_at(now.low[w], 3), pair_at(now.high[w], 3)};
#pragma unroll
            for (int s = 0; s < kSets; ++s) {
                auto& a = x[kSets == 1 ? w % 2 : 0];
                if (kSets > 1 && s * kSetRows >= m) break;
                load_shared_16_if(reads_a[s], a, a_at + s * to_next_set + w * 64);
                multiply_add(product[s], first, a[0], a[1]);
                multiply_add(product[s], second, a[2], a[3]);
            }
        }
        // Scales of rows g and g + 8 in this lane's two parts.
        constexpr unsigned kAll = 0xffffffffu;
        const int part = kParts == 2 ? 0 : t % 2 * 2;
        const float low0 = __shfl_sync(kAll, own[0], part, 4);
        const float low1 = __shfl_sync(kAll, own[0], part + 1, 4);
        const float high0 = __shfl_sync(kAll, own[Held::kScales - 1], kParts == 2 ? 2 : part, 4);
        const float high1 =
            __shfl_sync(kAll, own[Held::kScales - 1], kParts == 2 ? 3 : part + 1, 4);
#pragma unroll
        for (int s = 0; s < kSets; ++s) {
            sum[s][0] = fmaf(low1, product[s][1], fmaf(low0, product[s][0], sum[s][0]));
            sum[s][1] = fmaf(high1, product[s][3], fmaf(high0, product[s][2], sum[s][1]));
        }
        if (++within == steps || is_last) {
#pragma unroll
            for (int s = 0; s < kSets; ++s) {
                if constexpr (kParts == 4) {
                    sum[s][0] += __shfl_xor_sync(kAll, sum[s][0], 1);
                    sum[s][1] += __shfl_xor_sync(kAll, sum[s][1], 1);
                }
                const int a_row = s * kSetRows + 2 * t / kParts;
                if (a_row < m && (kParts == 2 || t % 2 == 0)) {
                    place[g * m + a_row] = sum[s][0];
                    place[(g + 8) * m + a_row] = sum[s][1];
                }
                sum[s][0] = 0;
                sum[s][1] = 0;
            }
            within = 0;
            ++tile;
            place = sums + tile * kTile * m;
        }
    };
    // Loads are counted together, so that those of one half would wait for those of the other, were these not asked for
    // afterwards: their addresses depend on what the others read, by a zero that the compiler does not know.
    const auto zero = static_cast<std::uint32_t>(work.weight.block_shift) >> 8;
    const auto half = [&](const Held(&now)[kStages], Held(&next)[kStages], int step) {
        std::uint32_t arrived = 0;
#pragma unroll
        for (int stage = 0; stage < kStages; ++stage)
            arrived |= now[stage].last();
        codes += arrived & zero;
        element += arrived & zero;
        load_stages(next, step + kStages);
#pragma unroll
        for (int stage = 0; stage < kStages; ++stage)
            if (step + stage < end) multiply(now[stage], step + stage + 1 == end);
    };
#pragma unroll 1
    for (int step = begin; step < end; step += 2 * kStages) {
        half(held[0], held[1], step);
        if (step + kStages < end) half(held[1], held[0], step + kStages);
    }
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
        const float result = work.alpha * whole + (i == thread ? first_added : added(i));
        const std::int64_t to = a_row * work.c.pitch + first_row + row;
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
    const std::int64_t at_once = std::min(multiprocessors(), n);
    return at_once * ceil_div(n, at_once * most_weight_rows(m));
}
std::int64_t shared_bytes(std::int64_t m, std::int64_t n, std::int64_t k) {
    return layout_of(m, k, ceil_div(n, blocks_for(n, m))).bytes;
}
// Columns of a step's parts: they divide k and lie in one block of codes each.
int parts_of(std::int64_t k, int block_shift) {
    return k % 64 == 0 && block_shift >= 6 ? 2 : 4;
}

template <RowInput kInput, int kParts, int kSets>
void launch(StreamHandle stream, const Work& work, bool early) {
    const auto kernel = quantized_row_matmul_kernel<kInput, kParts, kSets>;
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

template <RowInput kInput, int kParts>
void launch_for(StreamHandle stream, const Work& work, bool early) {
    if constexpr (kInput == RowInput::given) {
        if (work.m > 8 / kParts) return launch<kInput, kParts, 4>(stream, work, early);
    }
    launch<kInput, kParts, 1>(stream, work, early);
}
template <RowInput kInput>
void launch_for(StreamHandle stream, const Work& work, bool early) {
    if (parts_of(work.k, work.weight.block_shift) == 2)
        launch_for<kInput, 2>(stream, work, early);
    else
        launch_for<kInput, 4>(stream, work, early);
}

void launch_for(StreamHandle stream, RowInput input, const Work& work, bool early) {
    switch (input) {
        case RowInput::given:
            return launch_for<RowInput::given>(stream, work, early);
        case RowInput::rms_norm:
            return launch_for<RowInput::rms_norm>(stream, work, early);
        case RowInput::silu_mul:
            return launch_for<RowInput::silu_mul>(stream, work, early);
        case RowInput::gelu_tanh_mul:
            return launch_for<RowInput::gelu_tanh_mul>(stream, work, early);
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
    std::int64_t rows =
        std::min<std::int64_t>(x.m, 32 / parts_of(x.weight.columns, x.weight.block_shift));
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
