// What all CUDA kernels share on the host's side. A kernel header declares plain structs of pointers and
// counts and one table of functions; without CUDA kernels/no_cuda gives tables that refuse. Kernels
// check nothing (the ops did) but the launch itself, allocate nothing, and only enqueue.
#pragma once

#include <cstdint>

#include "garam/core/dtype.h"

struct CUstream_st;  // at global scope, where CUDA has it

namespace garam::cuda {

using StreamHandle = CUstream_st*;  // cudaStream_t

// Rows of a matrix in device memory: first element, and elements from one row to the next.
struct Rows {
    void* data = nullptr;
    std::int64_t pitch = 0;
};

// Throws Bug naming the kernel when a launch was refused, Error when the card is lost.
void check_launch(const char* kernel);
// For libraries, which tell a lost card as a failure of their own: throws Error when it is lost.
void check_card(const char* doing);
// Of the current card, 1 or more.
int multiprocessors();

}  // namespace garam::cuda
