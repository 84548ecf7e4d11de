// Rotary embedding on a card (ops/rotary.h has the contract; a position beyond the tables gives
// NaN). Floor: the turned entries read and written once, at the bandwidth of the memory; the tables
// stay in the caches.
#pragma once

#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

struct Rotary {
    Rows x;
    DType dtype = DType::f32;
    std::int64_t tokens = 0, heads = 0, head_dim = 0, half = 0;
    Rows cos, sin;  // f32 [table_rows, half]
    std::int64_t table_rows = 0;
    const std::int32_t* positions = nullptr;
    bool inverse = false;
};

struct RotaryKernels {
    void (*run)(StreamHandle stream, const Rotary& work);
};
const RotaryKernels& rotary_kernels();

}  // namespace garam::cuda
