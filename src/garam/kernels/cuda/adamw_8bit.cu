#include <algorithm>

#include "garam/core/dynamic_code_tables.h"
#include "garam/kernels/cuda/adamw_8bit.h"
#include "garam/kernels/cuda/device_code.cuh"

namespace garam::cuda {
namespace {

constexpr int kBlock = 256;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kEach = kBlock / kWarp;  // elements of a lane
constexpr std::int64_t kMostBlocksOfWarp = 8;
constexpr std::int64_t kEnoughGroups = 1024;  // thread blocks that keep any card busy

struct Codes {
    DynamicCode m, v;
};
static_assert(sizeof(Codes) % 16 == 0);
__device__ const Codes kCodes = {make_dynamic_code(true), make_dynamic_code(false)};

// Tensors, or blocks of them, as arguments of a launch: the blocks [begin, end).
constexpr int kMostParts = 112;
struct Batch {
    AdamW8bitPart parts[kMostParts];
    std::int64_t begin, end;
    std::int64_t each;  // blocks of a warp
    int count;
};
static_assert(sizeof(Batch) <= 3900);  // within 4 KB together with the rest

// Where the lane's element j lies in its block: by fours, so that a warp moves 512 bytes at once;
// where vectors cannot be taken, one beside the next lane's.
template <bool kVectors>
__device__ __forceinline__ int place_of(int lane, int j) {
    return kVectors ? j / 4 * 128 + lane * 4 + j % 4 : j * kWarp + lane;
}

template <bool kVectors, typename T>
__device__ __forceinline__ void read(const T* from, int lane, int n, T (&x)[kEach]) {
    if constexpr (kVectors) {
#pragma unroll
        for (int j = 0; j < kEach; j += 4) {
            const auto four =
                *reinterpret_cast<const Vector<T, 4>*>(from + place_of<true>(lane, j));
#pragma unroll
            for (int k = 0; k < 4; ++k)
                x[j + k] = four.at[k];
        }
    } else {
#pragma unroll
        for (int j = 0; j < kEach; ++j)
            x[j] = place_of<false>(lane, j) < n ? from[place_of<false>(lane, j)] : T{};
    }
}
template <bool kVectors, typename T>
__device__ __forceinline__ void write(T* to, int lane, int n, const T (&x)[kEach]) {
    if constexpr (kVectors) {
#pragma unroll
        for (int j = 0; j < kEach; j += 4) {
            Vector<T, 4> four;
#pragma unroll
            for (int k = 0; k < 4; ++k)
                four.at[k] = x[j + k];
            *reinterpret_cast<Vector<T, 4>*>(to + place_of<true>(lane, j)) = four;
        }
    } else {
#pragma unroll
        for (int j = 0; j < kEach; ++j)
            if (place_of<false>(lane, j) < n) to[place_of<false>(lane, j)] = x[j];
    }
}

template <bool kSigned>
__device__ __forceinline__ int code_of(const DynamicCode& code, float x) {
    constexpr int kShift = kSigned ? DynamicCode::kSignedShift : DynamicCode::kUnsignedShift;
    constexpr int kBase = kSigned ? DynamicCode::kSignedBase : DynamicCode::kUnsignedBase;
    constexpr int kCells = kSigned ? DynamicCode::kSignedCells : DynamicCode::kUnsignedCells;
    const int bits = __float_as_int(x);
    int cell = min(max(((bits & 0x7fffffff) >> kShift) - kBase, 0), kCells - 1);
    if (kSigned && bits < 0) cell += kCells;
    const int first = code.first[cell];
    return first + (x > code.above[first] ? 1 : 0);
}

template <bool kVectors>
__device__ __forceinline__ void update(const AdamW8bitStep& step, float scale, const Codes& codes,
                                       float* weight, const float* gradient,
                                       const AdamW8bitStates& states, std::int64_t block, int n,
                                       int lane) {
    std::uint8_t* const m_codes = states.m_codes + block * kBlock;
    std::uint8_t* const v_codes = states.v_codes + block * kBlock;
    float w[kEach];
    float g[kEach];
    std::uint8_t m_code[kEach];
    std::uint8_t v_code[kEach];
    read<kVectors>(weight, lane, n, w);
    read<kVectors>(gradient, lane, n, g);
    read<kVectors>(m_codes, lane, n, m_code);
    read<kVectors>(v_codes, lane, n, v_code);
    const float m_scale = states.m_absmax[block];
    const float v_scale = states.v_absmax[block];
    float m[kEach];
    float v[kEach];
    float m_largest = 0;
    float v_largest = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
        const float slope = __fmul_rn(g[j], scale);
        m[j] = __fadd_rn(__fmul_rn(__fmul_rn(codes.m.value[m_code[j]], m_scale), step.beta1),
                         __fmul_rn(slope, step.one_minus_beta1));
        v[j] = __fadd_rn(__fmul_rn(__fmul_rn(codes.v.value[v_code[j]], v_scale), step.beta2),
                         __fmul_rn(__fmul_rn(slope, step.one_minus_beta2), slope));
        if (!kVectors && place_of<false>(lane, j) >= n) m[j] = v[j] = 0;
        m_largest = fmaxf(m_largest, fabsf(m[j]));
        v_largest = fmaxf(v_largest, v[j]);
        const float root = __fadd_rn(__fsqrt_rn(v[j]), step.epsilon);
        w[j] = __fmul_rn(__fadd_rn(w[j], __fmul_rn(step.step_size, __fdiv_rn(m[j], root))),
                         step.decay);
    }
    write<kVectors>(weight, lane, n, w);
    m_largest = warp_max(m_largest);
    v_largest = warp_max(v_largest);
    const float m_divisor = m_largest > 0 ? m_largest : 1.0f;  // a block of zeros
    const float v_divisor = v_largest > 0 ? v_largest : 1.0f;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
        int first = code_of<true>(codes.m, __fdiv_rn(m[j], m_divisor));
        if (first == DynamicCode::kSignedZero && m[j] < 0) --first;
        int second = code_of<false>(codes.v, __fdiv_rn(v[j], v_divisor));
        if (second == 0 && (v[j] > 0 || first != DynamicCode::kSignedZero)) second = 1;
        m_code[j] = static_cast<std::uint8_t>(first);
        v_code[j] = static_cast<std::uint8_t>(second);
    }
    write<kVectors>(m_codes, lane, n, m_code);
    write<kVectors>(v_codes, lane, n, v_code);
    if (lane == 0) {
        states.m_absmax[block] = m_largest;
        states.v_absmax[block] = v_largest;
    }
}

// A warp takes `each` blocks in a row, all of which were read by the warp itself before it writes
// them.
__global__ void __launch_bounds__(kThreads, 4)
    adamw_8bit(AdamW8bitStep step, const float* gradient_scale, AdamW8bitStates states,
               const __grid_constant__ Batch batch) {
    const float scale = *gradient_scale;
    if (isnan(scale)) return;
    __shared__ Codes codes;
    for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof(Codes) / 16);
         i += kThreads)
        reinterpret_cast<uint4*>(&codes)[i] = reinterpret_cast<const uint4*>(&kCodes)[i];
    __syncthreads();
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const std::int64_t warp =
        static_cast<std::int64_t>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
    std::int64_t block = batch.begin + warp * batch.each;
    const std::int64_t end = min(block + batch.each, batch.end);
    if (block >= end) return;
    // The last part that begins at the block or before.
    int part = 0;
    for (int above = batch.count; above - part > 1;) {
        const int middle = (part + above) / 2;
        if (batch.parts[middle].block <= block)
            part = middle;
        else
            above = middle;
    }
    for (; block < end; ++block) {
        while (part + 1 < batch.count && batch.parts[part + 1].block <= block)
            ++part;
        const AdamW8bitPart& of = batch.parts[part];
        const std::int64_t element = (block - of.block) * kBlock;
        const int n = static_cast<int>(min(of.elements - element, std::int64_t{kBlock}));
        float* const weight = of.weight + element;
        const float* const gradient = of.gradient + element;
        const bool aligned = ((reinterpret_cast<std::uintptr_t>(weight) |
                               reinterpret_cast<std::uintptr_t>(gradient)) &
                              15) == 0;
        if (n == kBlock && aligned)
            update<true>(step, scale, codes, weight, gradient, states, block, n, lane);
        else
            update<false>(step, scale, codes, weight, gradient, states, block, n, lane);
    }
}

void run(StreamHandle stream, const AdamW8bitStep& step, const float* gradient_scale,
         const AdamW8bitPart* parts, std::int64_t count, const AdamW8bitStates& states,
         std::int64_t blocks) {
    for (std::int64_t begin = 0; begin < count; begin += kMostParts) {
        const std::int64_t end = std::min(begin + kMostParts, count);
        Batch batch;
        std::copy(parts + begin, parts + end, batch.parts);
        batch.count = static_cast<int>(end - begin);
        batch.begin = parts[begin].block;
        batch.end = end < count ? parts[end].block : blocks;
        const std::int64_t all = batch.end - batch.begin;
        batch.each = std::clamp(all / (kWarps * kEnoughGroups), std::int64_t{1}, kMostBlocksOfWarp);
        const std::int64_t of_group = batch.each * kWarps;
        adamw_8bit<<<static_cast<unsigned>((all + of_group - 1) / of_group), kThreads, 0, stream>>>(
            step, gradient_scale, states, batch);
        check_launch("adamw_8bit");
    }
}

}  // namespace

const AdamW8bitKernels& adamw_8bit_kernels() {
    static const AdamW8bitKernels kKernels{run};
    return kKernels;
}

}  // namespace garam::cuda
