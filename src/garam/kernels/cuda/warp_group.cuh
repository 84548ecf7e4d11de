// Products of a warp group (wgmma, sm_90a): 64 rows by kColumns, bf16 into fp32, run by the tensor cores on
// their own while the four warps go on. Only code compiled for sm_90a has them: GARAM_WARP_GROUPS.
//
// Operands in shared memory lie in a StepLayout: 16 columns (32 bytes, a step of depth) of all rows one after
// the other, then the next 16. The two halves of a row's 32 bytes change places in every other four rows
// (the card's 32-byte swizzle), so that eight rows of a half lie in different banks; the same bytes serve as
// [rows, depth] and, transposed, as [depth, rows]. The 32 bytes stay together, since the copies of 16 that
// fill them are one request to L2 only then.
//
// Accumulators: thread lane of warp w holds rows 16 w + g and + 8 (g = lane / 4), columns 8 n + 2 t, + 1
// (t = lane % 4) in x[n][0..1] and x[n][2..3], as mma.sync does; rounded, they are A of the next product.
//
// Order: begin_products() before the first product that reads registers written by the threads,
// products, commit_products(), wait_products<pending>(). Registers of a product under way must not be
// touched. What cp.async brought into shared memory becomes known to products by publish_to_products(), which
// those call that begin the products, once they know that it came; ordinary stores are published by the
// thread that stored, ahead of a barrier.
#pragma once

#include "garam/kernels/cuda/tensor_core.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GARAM_WARP_GROUPS 1
#endif

namespace garam::cuda {

constexpr int kWarpGroup = 128;

template <int kTileRows, int kTileColumns>
struct StepLayout {
    static_assert(kTileRows % 8 == 0 && kTileColumns % 16 == 0);
    static constexpr int kRows = kTileRows;
    static constexpr int kChunks = kTileColumns / 8;  // of 16 bytes
    static constexpr int kSteps = kTileColumns / 16;
    static constexpr int kStepBytes = kRows * 32;
    static constexpr int kBytes = kSteps * kStepBytes;  // tiles begin at multiples of 256
    static __device__ constexpr int offset(int row, int chunk) {
        return chunk / 2 * kStepBytes + row * 32 + ((chunk & 1) ^ (row >> 2 & 1)) * 16;
    }
};

// What the tensor cores are told of an operand: its address and two distances, in units of 16 bytes, and the
// swizzle. Steps add to the address, which never carries into the distances.
__device__ __forceinline__ std::uint64_t describe_operand(std::uint32_t shared, int leading_bytes,
                                                          int stride_bytes) {
    constexpr std::uint64_t kSwizzle32 = std::uint64_t{3} << 62;
    return static_cast<std::uint64_t>(shared >> 4) |
           static_cast<std::uint64_t>(leading_bytes >> 4) << 16 |
           static_cast<std::uint64_t>(stride_bytes >> 4) << 32 | kSwizzle32;
}

// [rows, depth] from `row` (a multiple of 8) on, by steps of 16 of depth.
template <typename Layout>
struct RowsOperand {
    std::uint64_t first;
    __device__ __forceinline__ explicit RowsOperand(std::uint32_t tile, int row = 0)
        : first(describe_operand(tile + static_cast<std::uint32_t>(row) * 32, 16, 8 * 32)) {}
    __device__ __forceinline__ std::uint64_t operator[](int step) const {
        return first + static_cast<std::uint64_t>(step * Layout::kStepBytes / 16);
    }
};
// The transpose [depth, columns], by steps of 16 rows of depth.
template <typename Layout>
struct ColumnsOperand {
    std::uint64_t first;
    __device__ __forceinline__ explicit ColumnsOperand(std::uint32_t tile)
        : first(describe_operand(tile, Layout::kStepBytes, 8 * 32)) {}
    __device__ __forceinline__ std::uint64_t operator[](int step) const {
        return first + static_cast<std::uint64_t>(step * 16 * 32 / 16);
    }
};

// The warp group of this thread, known to be the same in a whole warp: descriptors stay in uniform
// registers.
__device__ __forceinline__ int group_of_thread() {
    return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpGroup, 0);
}

__device__ __forceinline__ void publish_to_products() {
#ifdef GARAM_WARP_GROUPS
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
#endif
}
__device__ __forceinline__ void begin_products() {
#ifdef GARAM_WARP_GROUPS
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#endif
}
__device__ __forceinline__ void commit_products() {
#ifdef GARAM_WARP_GROUPS
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
#endif
}
template <int kPending>
__device__ __forceinline__ void wait_products() {
#ifdef GARAM_WARP_GROUPS
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
#endif
}
// Threads that fill a stage of shared memory and those that read it wait for each other here. `expected`
// arrivals end a phase; wait(parity) returns when the phase of that parity has ended. One thread begins it,
// and a barrier of the block follows.
struct StageBarrier {
    std::uint32_t at;  // 8 bytes of shared memory
    __device__ __forceinline__ void begin(int expected) const {
#ifdef GARAM_WARP_GROUPS
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(at), "r"(expected)
                     : "memory");
#endif
    }
    __device__ __forceinline__ void arrive() const {
#ifdef GARAM_WARP_GROUPS
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(at) : "memory");
#endif
    }
    // When all copies (cp.async) that this thread began have come.
    __device__ __forceinline__ void arrive_after_copies() const {
#ifdef GARAM_WARP_GROUPS
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(at) : "memory");
#endif
    }
    __device__ __forceinline__ void wait(std::uint32_t parity) const {
#ifdef GARAM_WARP_GROUPS
        asm volatile(
            "{ .reg .pred done;\n"
            "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
            "@!done bra again; }\n" ::"r"(at),
            "r"(parity)
            : "memory");
#endif
    }
};

// The registers that a kernel was given are divided anew between its warp groups: all four warps of one
// call it. Multiples of 8; the whole must not grow.
template <int kRegisters>
__device__ __forceinline__ void give_registers_back() {
#ifdef GARAM_WARP_GROUPS
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
#ifdef GARAM_WARP_GROUPS
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
#endif
}

// All threads of a warp group; `name` 1 to 15 differs between groups.
__device__ __forceinline__ void group_barrier(int name) {
    asm volatile("bar.sync %0, 128;\n" ::"r"(name) : "memory");
}

// Says that these registers change here, so that no use of them moves across a wait.
template <int kTiles>
__device__ __forceinline__ void pin_registers(float (&x)[kTiles][4]) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            asm volatile("" : "+f"(x[n][i])::"memory");
}

// add(x, a, b, keep): x [64, kColumns] = (keep ? x : 0) + a [64, 16] b [16, kColumns]. a: a step of a
// RowsOperand, or four registers (A of tensor_core.cuh, a warp's 16 rows). b: a step of a RowsOperand of
// [kColumns, depth], or with kTransposed of a ColumnsOperand of [depth, kColumns].
template <int kColumns>
struct GroupProduct;

// An instruction names each accumulator; operands are numbered, so what follows them begins at `count`.
#define GARAM_X4(n) "+f"(x[n][0]), "+f"(x[n][1]), "+f"(x[n][2]), "+f"(x[n][3])
#define GARAM_X8(n) GARAM_X4(n), GARAM_X4(n + 1)
#define GARAM_X16(n) GARAM_X8(n), GARAM_X8(n + 2)
#define GARAM_X32 GARAM_X16(0), GARAM_X16(4)
#define GARAM_X40 GARAM_X32, GARAM_X8(8)
#define GARAM_X48 GARAM_X40, GARAM_X8(10)
#define GARAM_X64 GARAM_X48, GARAM_X16(12)
#define GARAM_NAMES_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define GARAM_NAMES_32 \
    GARAM_NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define GARAM_NAMES_40 GARAM_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define GARAM_NAMES_48 GARAM_NAMES_40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define GARAM_NAMES_64 \
    GARAM_NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define GARAM_GROUP_PRODUCT(columns, count, i0, i1, i2, i3, i4, i5, i6)                          \
    template <>                                                                                  \
    struct GroupProduct<columns> {                                                               \
        using Sums = float[columns / 8][4];                                                      \
        template <bool kTransposed>                                                              \
        static __device__ __forceinline__ void add(Sums& x, std::uint64_t a, std::uint64_t b,    \
                                                   bool keep) {                                  \
            asm volatile("{ .reg .pred keep; setp.ne.b32 keep, %" #i2                            \
                         ", 0; wgmma.mma_async.sync.aligned.m64n" #columns                       \
                         "k16.f32.bf16.bf16 {" GARAM_NAMES_##count                               \
                         "}, %" #i0 ", %" #i1 ", keep, 1, 1, 0, %" #i3 "; }\n"                   \
                         : GARAM_X##count                                                        \
                         : "l"(a), "l"(b), "r"(static_cast<int>(keep)), "n"(kTransposed ? 1 : 0) \
                         : "memory");                                                            \
        }                                                                                        \
        template <bool kTransposed>                                                              \
        static __device__ __forceinline__ void add(Sums& x, const std::uint32_t (&a)[4],         \
                                                   std::uint64_t b, bool keep) {                 \
            asm volatile("{ .reg .pred keep; setp.ne.b32 keep, %" #i5                            \
                         ", 0; wgmma.mma_async.sync.aligned.m64n" #columns                       \
                         "k16.f32.bf16.bf16 {" GARAM_NAMES_##count                               \
                         "}, {%" #i0 ",%" #i1 ",%" #i2 ",%" #i3 "}, %" #i4 ", keep, 1, 1, %" #i6 \
                         "; }\n"                                                                 \
                         : GARAM_X##count                                                        \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                   \
                           "r"(static_cast<int>(keep)), "n"(kTransposed ? 1 : 0)                 \
                         : "memory");                                                            \
        }                                                                                        \
    };

#ifdef GARAM_WARP_GROUPS
GARAM_GROUP_PRODUCT(64, 32, 32, 33, 34, 35, 36, 37, 38)
GARAM_GROUP_PRODUCT(80, 40, 40, 41, 42, 43, 44, 45, 46)
GARAM_GROUP_PRODUCT(96, 48, 48, 49, 50, 51, 52, 53, 54)
GARAM_GROUP_PRODUCT(128, 64, 64, 65, 66, 67, 68, 69, 70)
#endif

#undef GARAM_GROUP_PRODUCT
#undef GARAM_NAMES_16
#undef GARAM_NAMES_32
#undef GARAM_NAMES_40
#undef GARAM_NAMES_48
#undef GARAM_NAMES_64
#undef GARAM_X4
#undef GARAM_X8
#undef GARAM_X16
#undef GARAM_X32
#undef GARAM_X40
#undef GARAM_X48
#undef GARAM_X64

// x [64, kColumns] = a [64, kDepth] * b [kColumns, kDepth] transposed, begun and committed.
template <int kDepth, int kColumns, typename ARows, typename BRows>
__device__ __forceinline__ void begin_row_product(float (&x)[kColumns / 8][4],
                                                  const RowsOperand<ARows>& a,
                                                  const RowsOperand<BRows>& b) {
#ifdef GARAM_WARP_GROUPS
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step)
        GroupProduct<kColumns>::template add<false>(x, a[step], b[step], step > 0);
#endif
    commit_products();
}
// x [64, kColumns] += a [64, kDepth] (registers) * b [kDepth, kColumns].
template <int kDepth, int kColumns, typename BRows>
__device__ __forceinline__ void begin_column_product(float (&x)[kColumns / 8][4],
                                                     const std::uint32_t (&a)[kDepth / 16][4],
                                                     const ColumnsOperand<BRows>& b) {
#ifdef GARAM_WARP_GROUPS
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step)
        GroupProduct<kColumns>::template add<true>(x, a[step], b[step], true);
#endif
    commit_products();
}

}  // namespace garam::cuda
