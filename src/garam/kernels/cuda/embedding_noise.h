// Noise on embeddings on a card (ops/embedding_noise.h has the contract).
//
// Floor: x read and written once, at the bandwidth of the memory; the generator is integer work behind
// that, ten operations an element.
#pragma once

#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

struct EmbeddingNoise {
    Rows x;
    DType dtype = DType::f32;
    std::int64_t tokens = 0, columns = 0;
    float alpha = 0;
    std::uint64_t key = 0;
    const std::int32_t* step = nullptr;        // [1]; these four in device memory
    const std::int32_t* positions = nullptr;   // [tokens]
    const std::int64_t* samples = nullptr;     // [tokens]
    const std::int32_t* cu_seqlens = nullptr;  // [segments + 1]
    int segments = 0;
};

struct EmbeddingNoiseKernels {
    void (*run)(StreamHandle stream, const EmbeddingNoise& work);
};
const EmbeddingNoiseKernels& embedding_noise_kernels();

}  // namespace garam::cuda
