// The instructions that tiles in shared memory go through: copies that need no registers (cp.async),
// loads of matrix fragments (ldmatrix) and products (mma.sync m16n8k16, bf16 into fp32). All from sm_80.
//
// Fragments of a warp, with g = lane / 4 and t = lane % 4:
//   A [16, 16]  a[0] row g, columns 2t, 2t+1;  a[1] row g + 8;  a[2], a[3] the same of columns + 8
//   B [16, 8]   b[0] rows 2t, 2t+1 of column g;  b[1] rows + 8
//   C [16, 8]   c[0], c[1] row g, columns 2t, 2t+1;  c[2], c[3] row g + 8
// so that C of two neighbouring tiles, rounded, is A of the next product.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace garam::cuda {

using Bf16 = __nv_bfloat16;

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// 16 bytes, or zeros when `inside` is false (nothing is read then). Both addresses multiples of 16.
__device__ __forceinline__ void copy_async_16(std::uint32_t shared, const void* global,
                                              bool inside) {
    const int bytes = inside ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared), "l"(global),
                 "r"(bytes)
                 : "memory");
}
// The same for what other warps of the multiprocessor read too: it stays in their cache.
__device__ __forceinline__ void copy_async_16_cached(std::uint32_t shared, const void* global,
                                                     bool inside) {
    const int bytes = inside ? 16 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared), "l"(global),
                 "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void copy_async_4(std::uint32_t shared, const void* global,
                                             bool inside) {
    const int bytes = inside ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(shared), "l"(global),
                 "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void copy_async_8(std::uint32_t shared, const void* global,
                                             bool inside) {
    const int bytes = inside ? 8 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;\n" ::"r"(shared), "l"(global),
                 "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void copy_async_commit() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}
// Until at most kPending of this thread's groups are under way.
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// Four matrices of 8 rows of 16 bytes; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], std::uint32_t shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared)
                 : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4],
                                                         std::uint32_t shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared)
                 : "memory");
}

// c += a * b
__device__ __forceinline__ void multiply_add(float (&c)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1) {
    // volatile: it must not be moved into a branch that some lanes do not take.
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two neighbours of a row, the first in the low half.
__device__ __forceinline__ std::uint32_t pack(float first, float second) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// Hides from the compiler where a value comes from: what is derived from it in a loop is computed there,
// in a cycle or two, and not kept in registers from before the loop.
__device__ __forceinline__ void forget(std::uint32_t& x) {
    asm volatile("" : "+r"(x));
}
__device__ __forceinline__ void forget(const Bf16*& x) {
    asm volatile("" : "+l"(x));
}

// 2^x to two units; 0 for -infinity.
__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ void store_shared_4(std::uint32_t shared, std::uint32_t value) {
    asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(shared), "r"(value) : "memory");
}
__device__ __forceinline__ void store_shared_16(std::uint32_t shared, uint4 x) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(shared), "r"(x.x), "r"(x.y),
                 "r"(x.z), "r"(x.w)
                 : "memory");
}
__device__ __forceinline__ uint4 load_shared_16(std::uint32_t shared) {
    uint4 x;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(shared)
                 : "memory");
    return x;
}
__device__ __forceinline__ std::uint32_t load_shared_4(std::uint32_t shared) {
    std::uint32_t x;
    asm volatile("ld.shared.b32 %0, [%1];\n" : "=r"(x) : "r"(shared) : "memory");
    return x;
}
__device__ __forceinline__ float2 load_shared_pair(std::uint32_t shared) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];\n"
                 : "=f"(x.x), "=f"(x.y)
                 : "r"(shared)
                 : "memory");
    return x;
}

}  // namespace garam::cuda
