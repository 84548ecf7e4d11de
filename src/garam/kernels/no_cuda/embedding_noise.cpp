#include "garam/kernels/cuda/embedding_noise.h"

#include "garam/core/error.h"

namespace garam::cuda {

const EmbeddingNoiseKernels& embedding_noise_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
