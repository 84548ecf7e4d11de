// The loads of quantised rows that C++ has no words for.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace garam::cuda::quantized_row {

// Codes that a lane reads for a tile's step, of its two rows of the tensor core's.
struct Codes {
    std::uint32_t low[4], high[4];
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
// The same of codes that prefetch() has asked for, a warp's first ones excepted: nothing else comes with them.
__device__ __forceinline__ void load_asked_codes_if(bool inside, std::uint32_t (&x)[4],
                                                    const std::uint8_t* place) {
    asm volatile(
        "{ .reg .pred inside; setp.ne.u32 inside, %5, 0;\n"
        "@inside ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4]; }\n"
        : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
        : "l"(place), "r"(static_cast<std::uint32_t>(inside)));
}
// x stays as it was when `inside` is false. What lies there is never written again.
__device__ __forceinline__ void load_shared_16_if(bool inside, std::uint32_t (&x)[4],
                                                  std::uint32_t shared) {
    asm("{ .reg .pred inside; setp.ne.u32 inside, %5, 0;\n"
        "@inside ld.shared.v4.b32 {%0, %1, %2, %3}, [%4]; }\n"
        : "+r"(x[0]), "+r"(x[1]), "+r"(x[2]), "+r"(x[3])
        : "r"(shared), "r"(static_cast<std::uint32_t>(inside)));
}

}  // namespace garam::cuda::quantized_row
